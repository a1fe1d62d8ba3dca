"""A real nginx with the README's own configuration between a phone and a real daemon."""

import asyncio
import os
import re
import shutil
import socket
import ssl
import subprocess
import time

import aiohttp
import pytest

from tests.support import certificates
from tests.support.daemon import ROOT, Daemon
from tests.support.main_job import SAID, demo_agent, main_job
from tests.support.phone import Phone
from tests.support.samples import Carrier
from tests.support.waiting import until

START_S = 10.0
OUTSIDE = """\
daemon off;
error_log stderr;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def readme_server(folder, port, backend):
    """The README's server block, with only its port, certificate and backend replaced."""
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    for pattern, value in [
        (r"listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        (r"(ssl_certificate) \S+;", rf"\1 {folder}/cert.pem;"),
        (r"(ssl_certificate_key) \S+;", rf"\1 {folder}/key.pem;"),
        (r"http://127.0.0.1:8770;", f"http://127.0.0.1:{backend};"),
    ]:
        block, count = re.subn(pattern, value, block)
        assert count, pattern
    return block


class Nginx:
    """nginx in the foreground, as a child; the port of its server."""

    def __init__(self, program, folder, backend, change=lambda block: block):
        self.port = free_port()
        server = change(readme_server(folder, self.port, backend))
        (folder / "nginx.conf").write_text(OUTSIDE.format(folder=folder, server=server))
        command = [program, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while self.process.poll() is None and time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
        self.process.kill()
        raise AssertionError(self.process.communicate()[1].decode())

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def program():
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        message = "nginx is not installed"
        if os.environ.get("LOOMI_REQUIRE_HERMES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def start(program, daemon, tmp_path):
    """Starts an nginx in front of the daemon; the README's, or changed."""
    certificates.make(tmp_path)
    started = []

    def start(change=lambda block: block):
        started.append(Nginx(program, tmp_path, daemon.port, change))
        return started[-1].port

    yield start
    for one in started:
        one.close()


@pytest.fixture
def trust(tmp_path, start):
    return ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))


@pytest.fixture
async def http(trust):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        yield session


async def test_a_phone_pairs_and_receives_through_it(daemon, start, trust):
    async with demo_agent(daemon):
        phone = await main_job(daemon, f"wss://127.0.0.1:{start()}/ws", ssl=trust)
    phone.last_seq = 0
    async with phone.connect() as connection:
        again = await connection.wait_type("run.completed")
        assert again.payload["text"] == SAID


async def test_health_through_it(start, http):
    async with http.get(f"https://127.0.0.1:{start()}/health") as answer:
        assert await answer.json() == {"ok": True, "v": 1}


ALL = re.compile(r"location = /ws")
NOTHING_ELSE = re.compile(r"location / \{\s+return 404;\s+\}")


def everything(block):
    """A careless owner's variant: every path is passed on."""
    return ALL.sub("location /", NOTHING_ELSE.sub("", block))


@pytest.fixture
def bearer(daemon):
    return f"Bearer {(daemon.state_dir / 'admin.token').read_text().strip()}"


@pytest.mark.parametrize("change", [lambda block: block, everything], ids=["README", "all paths"])
async def test_no_pairing_code_is_made_through_it(daemon, start, http, bearer, change):
    port = start(change)
    headers = {"Authorization": bearer}
    direct = f"http://127.0.0.1:{daemon.port}/internal/pair/new"
    async with http.post(direct, headers=headers) as answer:
        assert answer.status == 200, "the token is right, and direct calls work"
        assert "token" in await answer.json()
    for host in ("127.0.0.1", "localhost"):
        url = f"https://127.0.0.1:{port}/internal/pair/new"
        more = {**headers, "Host": host}
        async with http.post(url, headers=more) as answer:
            assert answer.status in {403, 404}  # nginx's own, or loomid's
            assert "token" not in await answer.text()


async def test_a_file_up_and_down_through_it(daemon, start, trust, http):
    """In pieces as it comes: nginx keeps nothing back, and refuses nothing that loomid takes."""
    phone = Phone(f"wss://127.0.0.1:{start()}/ws", ssl=trust)
    async with phone.connect(daemon.pair()["qr"]["token"]):
        pass
    carrier, data = Carrier(phone, http), os.urandom(5_000_000)
    _, begun = await carrier.begin(data)
    part = daemon.state_dir / "uploads" / begun["upload_id"]
    go_on = asyncio.Event()

    async def in_pieces():
        yield data[:1_000_000]
        await go_on.wait()
        yield data[1_000_000:]

    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(carrier.append(begun["upload_id"], 0, in_pieces()))
        await until(lambda: part.exists() and part.stat().st_size == 1_000_000)
        go_on.set()
    status, done = sending.result()
    assert status == 200, done
    path = f"/files/{done['attachment']['attachment_id']}"
    assert await carrier.call("GET", path) == (200, data)
    part_of_it = await carrier.call("GET", path, headers={"Range": "bytes=10-19"})
    assert part_of_it == (206, data[10:20])
    assert (await carrier.call("GET", path, headers={"Authorization": "Bearer x.y"}))[0] == 401

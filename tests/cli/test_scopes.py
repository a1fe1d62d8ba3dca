"""What a phone may do, from the owner's terminal to the live connection."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from loomid.adminclient import Refused
from loomid.lmp import scopes
from tests.support.daemon import Daemon
from tests.support.loomictl import begin, loomictl
from tests.support.phone import Phone

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d")) as running:
        yield running


async def ctl(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(loomictl, daemon.runtime_dir, *arguments)


async def token(daemon: Daemon, **asked: Any) -> str:
    made = await asyncio.to_thread(daemon.pair, **asked)
    return str(made["qr"]["token"])


async def audit(daemon: Daemon, *arguments: str) -> list[tuple[str, str, str]]:
    """Oldest first: who, action, about."""
    done = await ctl(daemon, "audit", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["audit"]
    return [(one["who"], one["action"], one["about"]) for one in reversed(found)]


async def test_paired_without_a_word(daemon: Daemon) -> None:
    phone = Phone(daemon.url)
    async with phone.connect(await token(daemon)) as c:
        assert c.hello_ok is not None
        assert c.hello_ok.payload["scopes"] == list(scopes.DEFAULT)


async def test_paired_by_loomictl_with_scopes(daemon: Daemon) -> None:
    asked = ("pair", "--json", "--scope", "approve", "--scope", "admin,view")
    with begin(daemon.runtime_dir, *asked) as waiting:
        code = json.loads(await asyncio.to_thread(waiting.stdout.readline))
        async with Phone(code["url"]).connect(code["token"]) as c:
            assert c.hello_ok is not None
            assert c.hello_ok.payload["scopes"] == ["view", "approve", "admin"]
        await asyncio.to_thread(waiting.communicate, timeout=10)


async def test_a_change_is_told_and_holds_at_once(daemon: Daemon) -> None:
    phone = Phone(daemon.url)
    async with phone.connect(await token(daemon, name="Ann's")) as c:
        sent = await c.request("session.send", text="hi", request_id="r1")
        assert sent.payload["code"] == "gateway_offline"  # it may, and nobody is there
        done = await ctl(daemon, "devices", "scope", "Ann's", "approve", "view")
        assert (done.returncode, "may view, approve" in done.stdout) == (0, True)
        told = await c.wait_type("device.updated")
        assert told.payload["scopes"] == ["view", "approve"]
        refused = await c.request("session.send", text="hi", request_id="r2")
        assert refused.payload["params"]["needs"] == "send"
        assert "Ann's" in (await ctl(daemon, "devices")).stdout
        assert "view,approve" in (await ctl(daemon, "devices")).stdout
        assert (await ctl(daemon, "devices", "scope", "Ann's", "view,send")).returncode == 0
        sent = await c.request("session.send", text="hi", request_id="r3")
        assert sent.payload["code"] == "gateway_offline"
    device = phone.device_id
    assert await audit(daemon, "--device", "Ann's") == [
        (device, "device.paired", None),
        ("loomictl", "device.scopes", device),
        (device, "refused", "session.send"),
        ("loomictl", "device.scopes", device),
    ]


async def test_it_holds_after_a_restart(tmp_path: Any) -> None:
    with Daemon(tmp_path) as daemon:
        phone = Phone(daemon.url)
        waits = await token(daemon, scopes=["admin"])
        async with phone.connect(await token(daemon, scopes=["approve"])):
            pass
        assert phone.device_id is not None
        await ctl(daemon, "devices", "scope", phone.device_id, "send")
        await asyncio.to_thread(daemon.restart)
        async with phone.connect() as c, Phone(daemon.url).connect(waits) as other:
            assert c.hello_ok is not None
            assert other.hello_ok is not None
            assert c.hello_ok.payload["scopes"] == ["view", "send"]
            assert other.hello_ok.payload["scopes"] == ["view", "admin"]


async def test_a_phone_changes_its_own_name_and_what_it_is(daemon: Daemon) -> None:
    async with Phone(daemon.url).connect(await token(daemon, scopes=["view"])) as c:
        info = {"os": "Android 17", "app_version": "x" * 200}
        said = await c.request("device.update", request_id="r1", name="Bo's", device_info=info)
        assert said.type == "device.update.result"
        device = said.payload["device_id"]
        assert said.payload["device_info"] == {
            "model": "Pixel",
            "os": "Android 17",
            "app_version": "x" * 100,
        }
        only = await c.request("device.update", request_id="r2")
        assert only.payload == said.payload | {"request_id": "r2"}
        for name in ("", " ", "x" * 65, "a\nb"):
            bad = await c.request("device.update", request_id=name or "r3", name=name)
            assert bad.payload["code"] == "bad_frame"
        await ctl(daemon, "rename", "Bo's", "Bob's")
        told = await c.wait_type("device.updated")
        assert told.payload == {"device_id": device, "name": "Bob's", "scopes": ["view"]}
        listed = next(d for d in await asyncio.to_thread(daemon.devices) if d["name"] == "Bob's")
        assert (listed["device_id"], listed["os"]) == (device, "Android 17")
    assert (await audit(daemon, "--device", device))[1:] == [
        (device, "device.renamed", device),
        ("loomictl", "device.renamed", device),
    ]


async def test_a_name_like_an_id_is_no_way_to_the_scopes_of_another(daemon: Daemon) -> None:
    async with (
        Phone(daemon.url).connect(await token(daemon)) as one,
        Phone(daemon.url).connect(await token(daemon)) as other,
    ):
        assert one.phone.device_id is not None
        begin_of = one.phone.device_id[:12]
        await other.request("device.update", request_id="r1", name=begin_of)
        done = await ctl(daemon, "devices", "scope", begin_of, "admin")
        assert (done.returncode, "fits 2 devices" in done.stderr) == (1, True)
        assert (await ctl(daemon, "devices", "scope", one.phone.device_id, "view")).returncode == 0
        assert (await one.wait_type("device.updated")).payload["scopes"] == ["view"]


async def test_the_audit_of_a_revoked_phone(daemon: Daemon) -> None:
    async with Phone(daemon.url).connect(await token(daemon, name="Eve's")) as c:
        device = c.phone.device_id
        assert device is not None
        await ctl(daemon, "revoke", device)
        assert await c.wait_closed() == 4003
    told = [(device, "device.paired", None), ("loomictl", "device.revoked", device)]
    assert await audit(daemon, "--device", device, "--since", "1h") == told
    shown = await ctl(daemon, "audit", "--device", device)
    assert f"Eve's ({device})" in shown.stdout
    assert "name=Eve's" in shown.stdout
    assert await audit(daemon, "--device", "Eve's") == told
    assert await audit(daemon, "--device", device.removeprefix("dev_")[:8]) == told
    nothing = await ctl(daemon, "audit", "--device", "dev_nobody")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "there is no device 'dev_nobody'" in nothing.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("pair", "--scope", "all"),
        ("devices", "scope", "dev_1"),
        ("devices", "scope", "dev_1", "root"),
        ("audit", "--since", "yesterday"),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str, ...]) -> None:
    assert loomictl(None, *arguments).returncode == 2


def test_what_the_admin_socket_refuses(daemon: Daemon) -> None:
    for body in ({"scopes": "view"}, {"scopes": []}, {"scopes": ["root"]}, {"scopes": [1]}):
        with pytest.raises(Refused, match="scopes"):
            daemon.pair(**body)
        with pytest.raises(Refused, match="scopes"):
            daemon.call("PATCH", "/devices/dev_none", body=body)
    with pytest.raises(Refused, match="since"):
        daemon.call("GET", "/audit?since=x")
    with pytest.raises(Refused, match="no such device"):
        daemon.call("PATCH", "/devices/dev_none", body={"scopes": ["view"]})

"""The plugin's life in real gateways: loading, reloading, connecting again, what can be missing."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from tests.support.daemon import Daemon
from tests.support.hermes import Gateway, until
from tests.support.model import DANGER
from tests.support.peer import Peer, inject, key_of, run

Make = Callable[..., tuple[Gateway, Peer]]


def test_hello(gateway: Gateway, peer: Peer) -> None:
    hello = peer.hellos[-1]
    assert re.fullmatch("[0-9a-f]{16}", hello.gateway_id)
    assert (gateway.home / "loomi/gateway_id").read_text() == hello.gateway_id
    assert re.fullmatch("[0-9a-f]{16}", hello.boot)
    assert gateway.process
    assert hello.pid == gateway.process.pid
    assert hello.pid_started > 0
    assert hello.hermes_version.startswith(f"0.{gateway.release.name}")
    assert hello.home_key == key_of("home")
    assert hello.name == ""
    assert ("stream" in hello.features) == gateway.release.streams
    assert ("edits" in hello.features) != gateway.release.streams
    assert ("on_stream_delta" in hello.hooks) == gateway.release.streams
    assert "pre_llm_call" in hello.hooks


def test_messages_are_held_until_restored_and_keep_their_order(own: Make) -> None:
    """Sent as soon as the shim says hello, which is before the gateway takes messages."""
    gateway, peer = own(entry_point=True)
    gateway.start(ready=False)
    peer.until(lambda: peer.hellos, 60, "hello")
    for number in range(3):
        peer.send("inject", chat_id=f"early{number}", text=f"say {number + 1}", mode="queue",
                  message_id=f"m-early{number}")  # fmt: skip
    for number in range(3):
        peer.wait("processing.ended", 0, 60, message_id=f"m-early{number}")
    injected = [fact["message_id"] for fact in peer.all("injected")]
    assert sorted(injected) == ["m-early0", "m-early1", "m-early2"]
    assert len(peer.all("turn.started")) == 3
    first = peer.all("processing.started")[0]
    assert first["n"] > peer.all("injected")[0]["n"]


def test_restart_is_another_boot_of_the_same_gateway(own: Make) -> None:
    gateway, peer = own(config={"platforms": {"loomi": {"extra": {"name": "Work"}}}})
    gateway.start()
    peer.until(lambda: peer.hellos, 10)
    first = peer.hellos[-1]
    gateway.stop()
    peer.until(lambda: first.boot in peer.byes, 10, "an orderly goodbye")
    gateway.start()
    second = peer.until(lambda: peer.hellos[-1].boot != first.boot and peer.hellos[-1], 20)
    assert second.gateway_id == first.gateway_id
    assert second.name == "Work"
    gateway.kill()


def test_connect_again(gateway: Gateway, peer: Peer) -> None:
    before = gateway.ask("state")
    assert gateway.ask("connect_again") is True
    assert gateway.ask("reconnect") is True
    after = gateway.ask("state")
    assert (after["boot"], after["link"]) == (before["boot"], before["link"])
    until(lambda: gateway.ask("state")["link_state"] == "linked", 20, "linked again")
    at, turn = run(peer, "say 2", "again", "m-again")
    assert len(peer.all("turn.started", at, turn_id=turn)) == 1


def test_disconnect_is_off_the_loop(gateway: Gateway, peer: Peer) -> None:
    assert gateway.ask("disconnect") > 0
    gateway.ask("disconnect")
    gateway.ask("connect_again")
    until(lambda: gateway.ask("state")["link_state"] == "linked", 20, "linked again")
    run(peer, "say 1", "back", "m-back")


def test_forced_reload(gateway: Gateway, peer: Peer) -> None:
    before = gateway.ask("state")
    asked_at = peer.mark()
    inject(peer, f"danger {DANGER}", "reload", "m-rel0")
    asked = peer.wait("approval.asked", asked_at, session_key=key_of("reload"))
    gateway.ask("reload")
    gateway.ask("reload")
    assert gateway.ask("state")["link"] == before["link"]
    assert peer.call("approve", approval_id=asked["approval_id"], choice="once").error is None
    peer.wait("approval.done", asked_at, approval_id=asked["approval_id"], choice="once")
    peer.wait("processing.ended", asked_at, message_id="m-rel0")
    at, turn = run(peer, "tool", "reload", "m-rel")
    for kind in ("turn.started", "turn.answered", "turn.ended"):
        assert len(peer.all(kind, at, turn_id=turn)) == 1, kind
    assert len(peer.all("tool.ended", at, turn_id=turn)) == 1
    numbers = [fact["n"] for fact in peer.facts if fact["boot"] == before["boot"]]
    assert sorted(set(numbers)) == list(range(numbers[0], numbers[-1] + 1))
    assert gateway.ask("connect_again") is True
    run(peer, "say 1", "reload", "m-rel2")


def test_reload_through_the_control_socket(gateway: Gateway, peer: Peer) -> None:
    if gateway.release.name != "22":
        pytest.skip("only 0.22 reloads plugins at run time")
    link = gateway.ask("state")["link"]
    code = (
        "import os; from pathlib import Path; from gateway import control_socket as c;"
        "print(c.query_gateway_control(Path(os.environ['HERMES_HOME']), 'reload-plugins',"
        " params={}, timeout=20))"
    )
    done = gateway.python("-c", code)
    assert done.returncode == 0, done.stderr[-800:]
    assert gateway.ask("state")["link"] == link
    at, turn = run(peer, "say 2", "ctl", "m-ctl")
    assert len(peer.all("turn.started", at, turn_id=turn)) == 1
    peer.wait("stream.ended", at, turn_id=turn)


def test_read_only_home(own: Make) -> None:
    gateway, peer = own()
    gateway.prepare()
    (gateway.home / "loomi").write_text("a file where the directory should be")
    gateway.start()
    peer.until(lambda: peer.hellos, 10)
    assert re.fullmatch("[0-9a-f]{16}", peer.hellos[-1].gateway_id)
    lines = [line for line in gateway.log.splitlines() if "cannot be kept" in line]
    assert len(lines) == 1
    assert "loomi/gateway_id" in lines[0]


def hide_zmq(gateway: Gateway) -> None:
    """The interpreter has no pyzmq, except in a directory named _vendor."""
    hider = gateway.folder / "hider"
    hider.mkdir()
    (hider / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Hide(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'zmq' and not any(p.endswith('_vendor') for p in sys.path):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    gateway.env["PYTHONPATH"] = str(hider)


def test_without_pyzmq(own: Make) -> None:
    gateway, peer = own(other=True)
    gateway.prepare()
    hide_zmq(gateway)
    gateway.start()
    lines = [line for line in gateway.log.splitlines() if "pyzmq is missing" in line]
    assert len(lines) == 1
    assert "loomictl hermes install" in lines[0]
    assert not peer.hellos
    gateway.ask("inject", text="say 1")  # the rest of the gateway works


def test_pyzmq_of_our_own(own: Make) -> None:
    """`_vendor/` is used only when there is no other."""
    gateway, peer = own()
    gateway.prepare()
    vendor = gateway.home / "plugins/loomi/_vendor"
    vendor.mkdir()
    site = gateway.python("-c", "import zmq; print(zmq.__path__[0])").stdout.strip()
    (vendor / "zmq").symlink_to(site)
    hide_zmq(gateway)
    gateway.start()
    peer.until(lambda: peer.hellos, 10)
    assert "pyzmq is missing" not in gateway.log


def test_isolated_plugins(own: Make) -> None:
    gateway, peer = own(config={"plugins": {"isolation": "host"}})
    if gateway.release.name != "22":
        pytest.skip("only 0.22 can isolate plugins")
    gateway.start()
    lines = [line for line in gateway.log.splitlines() if "loomi: phones are off" in line]
    assert lines
    assert "plugins.isolation" in lines[0]
    assert not peer.hellos


def test_no_daemon_is_one_line(own: Make) -> None:
    gateway, peer = own(config={"platforms": {"loomi": {"extra": {"endpoint": None}}}})
    gateway.env["LOOMI_RUNTIME_DIR"] = str(gateway.folder / "nobody")
    gateway.start()
    places = until(
        lambda: [line for line in gateway.log.splitlines() if "no loomid answers" in line],
        20,
        "line",
    )
    assert len(places) == 1
    for place in ("nobody/hermes.sock", "/run/loomid/hermes.sock", ".local/state/loomid/run"):
        assert place in places[0]
    assert not peer.hellos


def test_found_by_its_runtime_directory(own: Make) -> None:
    gateway, peer = own(config={"platforms": {"loomi": {"extra": {"endpoint": None}}}})
    gateway.env["LOOMI_RUNTIME_DIR"] = str(peer.path.parent)
    gateway.start()
    peer.until(lambda: peer.hellos, 10)


def test_other_processes_open_nothing_and_keep_their_output(own: Make) -> None:
    """Only the gateway registers our hooks: a stream hook would mute the CLI."""
    gateway, peer = own()
    gateway.prepare()
    done = gateway.run("chat", "-q", "say 3", "-t", "terminal", timeout=90)
    assert done.returncode == 0, done.stderr[-800:]
    assert "w0 w1 w2" in done.stdout
    assert not peer.hellos
    code = (
        "from hermes_cli.plugins import discover_plugins, get_plugin_manager;"
        "discover_plugins(); manager = get_plugin_manager();"
        "print([name for name, found in manager._hooks.items()"
        " if any('loomi' in getattr(f, '__name__', '') for f in found)])"
    )
    done = gateway.python("-c", code)
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr[-800:]


class _Door(BaseHTTPRequestHandler):
    """Loomid's admin door as far as `hermes loomi` asks it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return "local"

    def do_POST(self) -> None:
        words = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, words))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for said in LINES[words[0]]:
            data = json.dumps(said).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


LINES = {
    "pair": [{"say": "▀▄▀ the code\n▀▄▀"}, {"say": "Paired Pixel (d_1)."}],
    "devices": [{"say": "d_1  online  Pixel"}],
    "revoke": [{"error": "there is no such device: d_2"}],
}


def test_cli(own: Make) -> None:
    gateway, _ = own()
    gateway.prepare()
    gateway.env["LOOMI_RUNTIME_DIR"] = str(gateway.folder)
    refused = gateway.run("loomi", "devices")
    assert refused.returncode == 1
    assert "loomid does not run" in refused.stderr
    assert str(gateway.folder / "admin.sock") in refused.stderr
    with ThreadingUnixStreamServer(str(gateway.folder / "admin.sock"), _Door) as door:
        door.asked = []  # type: ignore[attr-defined]
        door.daemon_threads = True
        threading.Thread(target=door.serve_forever, daemon=True).start()
        paired = gateway.run("loomi", "pair", "--name", "My phone")
        assert paired.returncode == 0, paired.stderr[-800:]
        assert "▀▄▀ the code" in paired.stdout
        assert "Paired Pixel (d_1)." in paired.stdout
        assert "d_1  online  Pixel" in gateway.run("loomi", "devices").stdout
        unknown = gateway.run("loomi", "revoke", "d_2")
        assert unknown.returncode == 1
        assert "no such device" in unknown.stderr
        door.shutdown()
    words = [["pair", "--name", "My phone"], ["devices"], ["revoke", "d_2"]]
    assert door.asked == [("/hermes", each) for each in words]  # type: ignore[attr-defined]
    assert not (gateway.home / "loomi").exists()  # only a gateway has an id


def test_ctrl_c_while_a_code_is_shown(own: Make, tmp_path: Path) -> None:
    gateway, _ = own()
    gateway.prepare()
    with Daemon(tmp_path) as daemon:
        gateway.env["LOOMI_RUNTIME_DIR"] = str(daemon.runtime_dir)
        with gateway.begin("loomi", "pair") as pairing:
            assert pairing.stderr is not None
            said = []
            while not (said and said[-1].endswith("Waiting …\n")):
                said.append(pairing.stderr.readline())
                assert said[-1], said
            pairing.send_signal(signal.SIGINT)
            _, err = pairing.communicate(timeout=60)
    assert (pairing.returncode, err) == (130, "The code is withdrawn.\n")

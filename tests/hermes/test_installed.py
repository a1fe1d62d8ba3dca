"""`loomictl hermes install` into a plain Hermes home, then a real gateway that uses it."""

import shutil
from io import StringIO

from ruamel.yaml import YAML

from loomid.installer import install, uninstall
from tests.support.hermes import until
from tests.support.peer import inject


def plain_home(gateway):
    """A home as its owner wrote it, without a trace of us; its config's text."""
    gateway.config = {
        "plugins": None,
        "platforms": None,
        "display": {"platforms": None},
        "streaming": None,
    }
    gateway.prepare()
    shutil.rmtree(gateway.home / "plugins")
    out = StringIO()
    YAML().dump(gateway._config(), out)
    text = "# mine\n" + out.getvalue().replace("\n", "  # kept\n", 1)
    (gateway.home / "config.yaml").write_text(text)
    return text


def test_an_installed_plugin_links_and_tells_and_leaves_nothing(own, monkeypatch):
    gateway, peer = own()
    text = plain_home(gateway)
    monkeypatch.setenv("PATH", f"{gateway.release.python().parent}:/usr/bin:/bin")
    installed = install(gateway.home, None, peer.endpoint)
    assert installed.found[0].startswith(f"Hermes 0.{gateway.release.name}."), installed
    assert install(gateway.home, None, peer.endpoint).done == []
    rest = iter((gateway.home / "config.yaml").read_text().splitlines())
    assert all(line in rest for line in text.splitlines())

    gateway.start()
    peer.until(lambda: peer.hellos, 10, "the shim's hello")
    at = peer.mark()
    assert inject(peer, "think", "c1", "m1").error is None
    started = peer.wait("turn.started", at, platform="loomi")
    peer.wait("processing.ended", at, message_id="m1", outcome="success")
    if gateway.release.streams:
        channels = {fact["channel"] for fact in peer.all("delta", at, turn_id=started["turn_id"])}
        assert channels == {"text", "reasoning"}
    at = peer.mark()
    assert inject(peer, "say 12 150", "c1", "m2").error is None
    peer.wait("processing.ended", at, message_id="m2", outcome="success")
    edits = peer.all("edited", at)
    assert bool(edits) is not gateway.release.streams, "only 0.19 needs streaming edits"
    assert install(gateway.home, None, peer.endpoint).done == []

    gateway.stop()
    seen = len(gateway.log)
    done = uninstall(gateway.home)
    name = "hermesx" if gateway.release.name == "20" else "hermes"
    assert f" {name} gateway " in done[-1]
    left = YAML(typ="safe").load(gateway.home / "config.yaml")  # Hermes has written it anew
    before = YAML(typ="safe").load(text)
    assert {key: left.get(key) for key in before} == before, done
    for place in ("plugins", "platforms", "display"):
        assert "loomi" not in str(left.get(place)), done
    assert not (gateway.home / "plugins" / "loomi").exists()
    hellos = len(peer.hellos)
    gateway.start(ready=False)
    # What Hermes says of each chat that was ours; README tells that it is harmless.
    until(lambda: "Skipping invalid routing entry" in gateway.log[seen:], 60, "it starts")
    assert "'loomi' is not a valid Platform" in gateway.log[seen:]
    assert gateway.process.poll() is None
    assert len(peer.hellos) == hellos

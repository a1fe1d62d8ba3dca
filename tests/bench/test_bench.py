"""The benchmark runs, counts right, and its load client notices what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.bench import swarm
from tests.bench.messages import Order, message
from tests.bench.subjects import AIOHTTP, LOOMID, PATH, ROOT
from tests.bench.swarm import Failed, Swarm

pytestmark = pytest.mark.skipif(swarm.missing() is not None, reason=str(swarm.missing()))


@pytest.mark.timeout(240)
def test_quick(tmp_path):
    """A quick run measures everything; each phone gets every event in order, or it says so."""
    figures, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    command = [sys.executable, "-m", "tests.bench", "--quick", "--servers", "loomid,aiohttp"]
    command += ["--phones", "1,20", "--json", str(figures), "--svg", str(plot)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads(figures.read_text())
    names = {subject.name for subject in (LOOMID, PATH, AIOHTTP)}
    assert result["left_out"] == {}
    assert set(result["about"]["versions"]) == names
    for phones in ("1", "20"):
        assert set(result["fanout"][phones]) == names
        for row in result["fanout"][phones].values():
            assert "failed" not in row, row
            assert row["full"]["events"] >= 10
            for got in row.values():
                assert got["events"] > 0  # paced, on a busy machine it may be few
                assert got["deliveries_s"] == pytest.approx(got["events_s"] * int(phones))
                assert got["p50_ms"] <= got["p99_ms"]
    assert set(result["storm"]) == names
    for row in result["storm"].values():
        assert "failed" not in row, row
        assert row["stayed_p50_ms"] <= row["stayed_p99_ms"]
    minute = result["hook_to_phone"]
    assert 0 < minute["reads"] <= minute["tokens"]
    assert set(result["hook_cost"]) == {"baseline", "running", "absent", "stopped"}
    assert result["idle"]["memory_mib"] > 0
    assert result["start"]["full_s"] > 0
    assert set(result["memory"]) == names
    assert "**1,000 events a second" in run.stdout
    assert "against aiohttp send_str at 1 " in run.stdout
    assert all(name in plot.read_text() for name in names)


def test_a_gap_is_noticed(tmp_path):
    """An event that is missing fails the measurement, although the last one came."""
    with AIOHTTP.start(tmp_path, 3) as server, Swarm("ws", server.port, server.words) as phones:
        phones.open()
        assert server.publish(Order(1, 2))["last"] == 2
        assert phones.until(2)["messages"] == 6
        server.publish(Order(4, 1))
        with pytest.raises(Failed, match="3 out of order; phone 0: 4 after 2"):
            phones.until(4)


def test_a_lost_connection_is_noticed(tmp_path):
    """A server that goes away fails the measurement at once."""
    with AIOHTTP.start(tmp_path, 3) as server, Swarm("ws", server.port, server.words) as phones:
        phones.open()
        server.publisher.kill()
        with pytest.raises(Failed, match="connection ended"):
            phones.until(1)


def test_what_is_missed_comes_after_the_reconnect(tmp_path):
    """A phone says what it has, and gets the rest; those that stayed get it once."""
    with LOOMID.start(tmp_path, 4) as server, Swarm("ws", server.port, server.words, 1) as phones:
        phones.open()
        server.publish(Order(1, 10))
        phones.until(10)
        phones.shut(1, 4)
        server.publish(Order(11, 100))
        phones.until(110, 0, 1)
        phones.clear()
        phones.open(1, 4)
        got = phones.until(110)
        assert got["messages"] == 300
        assert [group["count"] for group in got["latency_us"]] == [300, 0]


def test_size():
    """A message has the size that the tables name."""
    assert len(message(100_000)) == 250

"""Each number is right: compared with what the phones, the shim and the test itself saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import aiohttp
import pytest

from hermes_shim.ledger import Backlog
from loomid.adminclient import Refused
from tests.support.loomictl import loomictl
from tests.support.measured import parsed
from tests.support.samples import Carrier, sha256

ANSWER = "the words of an answer"


async def test_events_and_facts_by_type(world):
    async with world.paired() as (phone, connection):
        await world.online()
        for turn in ("t1", "t2"):
            world.turn(turn, tools=3)
        await connection.wait_type("run.completed", 2)
        # After the end of a run its task's status is told.
        now = await world.measured(lambda now: now("facts_total", kind="turn.ended") == 2)
        seen = Counter(got.type for got in phone.events())
        assert now.by("type", "events_total") == seen
        assert (seen["run.completed"], seen["run.tool_finished"]) == (2, 6)
        assert now.by("kind", "facts_total") == {
            "gateway.up": 1,
            "inventory": 1,
            "turn.started": 2,
            "api.started": 2,
            "tool.started": 6,
            "tool.ended": 6,
            "turn.answered": 2,
            "turn.ended": 2,
        }
        assert (now("phones_connected"), now("devices")) == (1, 1)
        assert (now("gateways", state="online"), now("gateways", state="offline")) == (1, 0)
        assert now("window_events") == seen.total()
        assert now("window_bytes") > 0
        await world.measured(lambda now: now("facts_unacknowledged") == 0)


async def test_what_lives_and_what_waits(world):
    await world.online()
    world.host.start_turn("t1")
    world.host.ask("a1", "t1")
    now = await world.measured(lambda now: now("approvals_pending"))
    assert (now("runs_live"), now("approvals_pending")) == (1, 1)
    world.host.decide("a1", "deny")
    world.host.end_turn("t1")
    now = await world.measured(lambda now: not now("runs_live"))
    assert now("approvals_pending") == 0


async def test_every_event_of_a_hook_is_observed_once(world):
    """By the traces of all events: as many as have a hook's time and were written."""
    async with world.paired() as (phone, connection), world.paired("Tab") as (_, other):
        await world.online()
        world.turn("t1", tools=5)
        await connection.wait_type("run.completed")
        await other.wait_type("run.completed")
        await world.measured(lambda now: now("facts_total", kind="turn.ended") == 1)
        hooks = 0
        for got in phone.events():
            found = await world.call("GET", f"/trace/{got.frame.event_id}?device={phone.device_id}")
            hooks += found["devices"][0]["hook"] is not None
        now = await world.measure()
        assert 0 < hooks < len(phone.events())  # gateway.status is loomid's own
        assert now("hook_to_phone_seconds_count") == hooks
        assert now("hook_to_phone_seconds_bucket", le="+Inf") == hooks
        assert 0 < now("hook_to_phone_seconds_sum") < 10 * hooks
        assert now("commit_seconds_count") >= 1


async def test_what_nobody_was_there_for_is_not_observed(world):
    async with world.paired() as (phone, _):
        pass
    await world.measured(lambda now: not now("phones_connected"))
    await world.online()
    world.turn("t1")
    await world.measured(lambda now: now("events_total", type="run.completed"))
    async with phone.connect() as connection:
        await connection.wait_type("run.completed")
        assert (await world.measure())("hook_to_phone_seconds_count") == 0
        world.turn("t2")
        await connection.wait_type("run.completed", 2)
        assert (await world.measure())("hook_to_phone_seconds_count") >= 1


async def test_how_connections_begin_and_end(world):
    async with world.paired() as (phone, _):
        pass
    await world.measured(
        lambda now: now("connections_closed_total", code="1000", cause="closed by the phone")
    )
    async with phone.connect(), phone.connect():  # the second takes the first one's place
        pass
    replaced = "replaced by a newer connection"
    await world.measured(lambda now: not now("phones_connected"))
    async with phone.connect() as connection:
        connection.ws._writer.transport.abort()
    await world.measured(lambda now: not now("phones_connected"))
    async with phone.connect(last_seq=phone.last_seq):
        pass
    phone.credential = "x" * 43
    async with phone.open() as connection:
        with pytest.raises(Exception, match="closed with 4001"):
            await connection.hello()
    now = await world.measured(
        lambda now: now("connections_closed_total", code="4001", cause="unauthorized")
    )
    assert now.by("outcome", "hellos_total") == {"paired": 1, "resumed": 4}
    assert now.by("cause", "reconnects_total") == {
        "closed by the phone": 2,
        replaced: 1,
        "connection lost": 1,
    }
    assert now("connections_closed_total", code="4004", cause=replaced) == 1
    assert now("connections_closed_total", code="1006", cause="connection lost") == 1


async def test_after_a_restart_it_is_not_known_how_a_connection_ended(world):
    async with world.paired() as (phone, _):
        pass
    await asyncio.to_thread(world.daemon.restart)
    async with phone.connect():
        assert (await world.measure()).by("cause", "reconnects_total") == {"not known": 1}


async def test_a_code_of_a_phones_own_making_makes_no_label(world):
    async with world.paired() as (_, connection):
        await connection.ws.close(code=3456)
    await world.measured(
        lambda now: now("connections_closed_total", code="other", cause="closed by the phone")
    )


async def test_requests_by_type_and_outcome(world):
    async with world.paired() as (_, connection):
        sent = {"text": "hello", "request_id": "r0"}
        await connection.request("session.send", **sent)
        await world.online()
        await connection.request("session.send", **sent | {"request_id": "r1"})
        await connection.request("session.send", **sent | {"request_id": "r1"})
        await connection.request("run.cancel", run_id="run_x", request_id="r2")
        now = await world.measure()
    assert now("requests_total", type="session.send", outcome="gateway_offline") == 1
    assert now("requests_total", type="session.send", outcome="ok") == 2
    assert now("requests_total", type="run.cancel", outcome="unknown_run") == 1


async def test_files_that_come_and_go(world):
    async with world.paired() as (phone, _), aiohttp.ClientSession() as session:
        carrier = Carrier(phone, session)
        data = b"0123456789"
        _, begun = await carrier.begin(data)
        await carrier.append(begun["upload_id"], 0, data[:4])
        await carrier.begin(data)
        await carrier.begin(b"other", media_type="image/png")
        assert (await carrier.append(begun["upload_id"], 9, b""))[0] == 409
        _, done = await carrier.append(begun["upload_id"], 4, data[4:])
        path = f"/files/{done['attachment']['attachment_id']}"
        await carrier.call("GET", path)
        await carrier.call("GET", path, headers={"Range": "bytes=7-"})
        await carrier.call("GET", path, headers={"If-None-Match": f'"{sha256(data)}"'})
        await carrier.call("GET", "/files/att_none")
        _, begun = await carrier.begin(b"other", media_type="image/png")
        await carrier.append(begun["upload_id"], 0, b"other")
        now = await world.measured(
            lambda now: now("transfers_total", door="files", outcome="given") == 2
        )
    for (door, outcome), count in {
        ("upload", "begun"): 3,
        ("upload", "partial"): 1,
        ("upload", "resumed"): 1,
        ("upload", "bad_range"): 1,
        ("upload", "finished"): 1,
        ("upload", "mismatch"): 1,
        ("files", "unchanged"): 1,
        ("files", "unknown_file"): 1,
    }.items():
        assert now("transfers_total", door=door, outcome=outcome) == count, outcome
    assert now.by("direction", "transfer_bytes_total") == {"in": 15, "out": 13}
    assert (now("files_kept"), now("files_kept_bytes")) == (1, 10)
    await world.call("DELETE", f"/devices/{phone.device_id}")
    now = await world.measured(lambda now: not now("files_kept"))
    assert now.by("reason", "files_removed_total") == {"unused": 1}


async def test_lag_is_what_a_phone_was_not_given_yet(world):
    """By the traces of all events: those without a write to that phone."""
    async with world.paired("slow") as (slow, stuck), world.paired() as (phone, connection):
        await world.online()
        stuck.ws._writer.transport.pause_reading()
        for i in range(150):
            world.turn(f"t{i}", text="x" * 20_000)
        await connection.wait_type("run.completed", 150, timeout=30)
        now = await world.measured(lambda now: now("facts_total", kind="turn.ended") == 150)
        lags = now.by("device", "phone_lag_events")
        assert lags[phone.device_id] == 0
        behind = 0
        for got in phone.events():
            found = await world.call("GET", f"/trace/{got.frame.event_id}?device={phone.device_id}")
            (one,) = found["devices"]
            assert one["state"] == "traced"
            behind += not next(w for w in one["written"] if w["device_id"] == slow.device_id)["at"]
        assert lags[slow.device_id] == behind > 0
        stuck.ws._writer.transport.resume_reading()
        await stuck.wait_type("run.completed", 150, timeout=30)
        await world.measured(lambda now: now("phone_lag_events", device=slow.device_id) == 0)
    now = await world.measured(lambda now: not now("phones_connected"))
    assert now.by("device", "phone_lag_events") == {}


async def test_facts_that_found_no_room_in_the_shim(world):
    link = world.host.link
    link._backlog = backlog = Backlog("boot1", most_bytes=40_000)
    link.emit("interim", {"text": object()})
    for i in range(50):
        delta = {"turn_id": "t1", "iteration": i, "text": "x", "channel": "text"}
        link.emit("delta", delta)
    link.start()
    now = await world.measured(
        lambda now: now("facts_dropped_total", by="shim", reason="overflow_delta") > 0
    )
    for reason in ("overflow_delta", "unsendable"):
        assert now("facts_dropped_total", by="shim", reason=reason) == backlog.dropped[reason] > 0
    link.emit("interim", {"text": object()})
    await world.measured(
        lambda now: now("facts_dropped_total", by="shim", reason="unsendable") == 2
    )
    lost = (await world.call("GET", "/status"))["figures"]["facts_lost"]
    assert lost == dict(backlog.dropped)
    told = await asyncio.to_thread(loomictl, world.daemon.runtime_dir, "status")
    assert f"LOST before they were sent: {lost['unsendable']} unsendable" in told.stdout


async def test_facts_that_are_not_understood(world):
    await world.online()
    for i in range(3):
        world.host.link.emit(f"of a newer shim {i}", {"text": ANSWER})
    world.host.link.emit("tool.started", {"turn_id": 5})
    world.host.end_turn("never begun")
    now = await world.measured(lambda now: now("facts_total", kind="turn.ended"))
    assert now("facts_dropped_total", by="link", reason="unknown fact") == 3
    assert now("facts_dropped_total", by="link", reason="invalid fact tool.started") == 1
    assert "newer shim" not in now.text


async def test_deltas_that_went_out_together(world):
    async with world.paired() as (phone, connection):
        await world.online()
        world.host.start_turn("t1")
        stream = {"turn_id": "t1", "iteration": 1}
        about = {"session_id": "s-c1", "model": "m", "provider": "p", "surface": "loomi"}
        world.host.link.emit("stream.started", stream | about)
        for _ in range(100):
            world.host.link.emit("delta", {**stream, "text": "word ", "channel": "text"})
        ended = {"text": "word " * 100, "finished": True, "error": None}
        world.host.link.emit("stream.ended", stream | ended)
        world.host.end_turn("t1")
        await connection.wait_type("run.completed")
        frames = phone.events("run.delta")
        now = await world.measured(lambda now: now("facts_total", kind="turn.ended"))
        assert 0 < len(frames) < 100
        assert now("deltas_coalesced_total") == 100 - len(frames)


async def test_only_the_admin_socket_has_them_and_nothing_in_them_is_secret(world):
    async with world.paired("Ada's phone") as (phone, connection):
        await world.online()
        world.turn("t1", text=ANSWER)
        await connection.wait_type("run.completed")
        now = await world.measure()
        figures = json.dumps((await world.call("GET", "/status"))["figures"])
    for secret in (phone.credential, ANSWER, "Ada", "rm -rf", "hi\n"):
        assert secret not in now.text + figures
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", "/trace/e_1"):
            url = f"http://127.0.0.1:{world.daemon.port}{path}"
            async with session.get(url) as response:
                assert response.status == 404


async def test_loomictl_prints_the_text(world):
    await world.online()
    printed = await asyncio.to_thread(loomictl, world.daemon.runtime_dir, "metrics")
    assert (printed.returncode, printed.stderr) == (0, "")
    names = {family.name for family in parsed(printed.stdout)}
    assert {"loomid_events", "loomid_commit_seconds", "loomid_info"} <= names
    told = await asyncio.to_thread(loomictl, world.daemon.runtime_dir, "status")
    assert "storing: half within " in told.stdout
    assert "LOST" not in told.stdout


async def test_nonsense_is_refused(world):
    for event in ("e_0", "e_", "123", "e_1x", "e_" + "9" * 20, "e_%20"):
        with pytest.raises(Refused, match="from 1 on, as e_123"):
            await world.call("GET", f"/trace/{event}")
    with pytest.raises(Refused, match="no such device"):
        await world.call("GET", "/trace/e_1?device=dev_x")

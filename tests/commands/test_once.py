"""The same request_id runs once and gets one answer (LMP §5)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from loomid.errors import RequestIdReused
from loomid.lmp import requests
from loomid.vault import Intent
from tests.support.answering import PHONE, TABLET, Host, Side, key_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEND = {"text": "hi", "request_id": "r1"}


async def test_a_repetition_gets_the_same_answer(side: Side, host: Host) -> None:
    first = await side.ask("session.send", **SEND)
    host.link.stop()  # what is known needs no gateway
    await until(lambda: side.gateways.boot_of("gw1") is None)
    assert await side.ask("session.send", **SEND) == first
    assert len(host.commands) == 1


async def test_repetitions_at_once_run_once(side: Side, host: Host) -> None:
    asking = [side.ask("session.send", **SEND) for _ in range(8)]
    first, *others = await asyncio.gather(*asking)
    assert others == [first] * 7
    assert len(host.commands) == 1


async def test_each_device_has_request_ids_of_its_own(side: Side, host: Host) -> None:
    one, other = await asyncio.gather(
        side.ask("session.send", PHONE, **SEND), side.ask("session.send", TABLET, **SEND)
    )
    assert one["task_id"] != other["task_id"]
    assert len(host.commands) == 2


async def test_another_body_with_the_same_id_is_refused(side: Side, host: Host) -> None:
    host.silent.add("inject")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(side.ask("session.send", **SEND))
        await until(lambda: host.commands)
        with pytest.raises(RequestIdReused):
            await side.ask("session.send", text="ho", request_id="r1")
        host.answer(host.commands[0])
    for type_, body in [
        ("session.send", {"text": "ho", "request_id": "r1"}),
        ("session.send", {"text": "", "request_id": "r1"}),
        ("run.cancel", {"run_id": "x", "request_id": "r1"}),
        ("approval.resolve", {"approval_id": "x", "choice": "once", "request_id": "r1"}),
    ]:
        assert (await side.refused(type_, **body)).code == "request_id_reused"
    assert await side.ask("session.send", request_id="r1", text="hi") == first.result()


@pytest.mark.parametrize(
    "code", ["stale", "starting", "not_supported", "reserved_text", "bad_args"]
)
async def test_what_did_not_run_is_not_kept(side: Side, host: Host, code: str) -> None:
    host.errors["inject"] = code
    refused = await side.refused("session.send", **SEND)
    assert refused.proves_nothing_ran
    host.errors.clear()
    assert (await side.ask("session.send", **SEND))["accepted"]
    assert len({command.id for command in host.commands}) == 2


async def test_what_may_have_run_is_kept(side: Side, host: Host) -> None:
    host.errors["inject"] = "failed"
    first = await side.refused("session.send", **SEND)
    assert (first.code, first.params) == ("gateway_error", {"reason": "failed"})
    host.errors.clear()
    second = await side.refused("session.send", **SEND)
    assert (second.code, second.params) == (first.code, first.params)
    assert len(host.commands) == 1


async def test_no_answer_in_time_is_an_unknown_outcome(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    async with Side(tmp_path, deadline_s=0.2) as side:
        host = await side.online(make_host())
        host.silent.add("inject")
        assert (await side.refused("session.send", **SEND)).code == "outcome_unknown"
        host.answer(host.commands[0])  # too late
        assert (await side.refused("session.send", **SEND)).code == "outcome_unknown"
        assert len(host.commands) == 1


async def test_a_phone_that_goes_away_changes_nothing(side: Side, host: Host) -> None:
    host.silent.add("inject")
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(side.ask("session.send", **SEND))
        await until(lambda: host.commands)
        gone.cancel()
    host.answer(host.commands[0])
    assert (await side.ask("session.send", **SEND))["accepted"]
    assert len(host.commands) == 1


async def test_an_error_of_our_own_ends_neither_the_daemon_nor_the_memory(
    side: Side, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(side.vault, "finish", fail)
        assert (await side.refused("session.send", **SEND)).code == "internal"
    # It ran; the gateway is asked what became of it, and it does not run again.
    assert (await side.ask("session.send", **SEND))["accepted"]
    assert len(host.commands) == 1


# ── across restarts ─────────────────────────────────────────────────────────


async def _killed_while_sending(path: Path, host: Host) -> None:
    """loomid ends while the command is with the gateway."""
    host.silent.add("inject")
    async with Side(path) as side:
        await side.online(host)
        asking = asyncio.ensure_future(side.ask("session.send", **SEND))  # noqa: TID251
        await until(lambda: host.commands)
    assert asking.cancelled() or await asyncio.wait([asking])


async def test_answers_survive_a_restart(tmp_path: Path, make_host: Callable[..., Host]) -> None:
    host = make_host()
    async with Side(tmp_path) as side:
        await side.online(host)
        first = await side.ask("session.send", **SEND)
    async with Side(tmp_path) as side:
        assert await side.ask("session.send", **SEND) == first
    assert len(host.commands) == 1


async def test_a_result_of_before_the_restart_is_recalled(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    await _killed_while_sending(tmp_path, host)
    host.answer(host.commands[0])
    async with Side(tmp_path) as side:
        answer = await side.ask("session.send", **SEND)  # waits for the gateway
        chat = host.commands[0].args["chat_id"]
        assert answer["task_id"] == side.task_id(key_of(chat))
        assert await side.vault.open_requests() == []
    assert len(host.commands) == 1


async def test_a_command_that_still_runs_is_waited_for(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    await _killed_while_sending(tmp_path, host)
    async with Side(tmp_path) as side, asyncio.TaskGroup() as group:
        answer = group.create_task(side.ask("session.send", **SEND))
        await until(lambda: side.gateways.boot_of("gw1"))
        host.answer(host.commands[0])
        assert (await answer)["accepted"]
    assert len(host.commands) == 1


async def test_a_recalled_cancel_still_names_its_run(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    host.silent.add("cancel")
    async with Side(tmp_path) as side:
        await side.online(host)
        host.start_turn("t1")
        run_id = await side.run_begun("t1")
        asking = asyncio.ensure_future(  # noqa: TID251
            side.ask("run.cancel", run_id=run_id, request_id="r1")
        )
        await until(lambda: host.ops("cancel"))
    await asyncio.wait([asking])
    host.answer(host.ops("cancel")[0])
    async with Side(tmp_path) as side:
        answer = await side.ask("run.cancel", run_id=run_id, request_id="r1")
    assert answer == {"run_id": run_id, "state": "cancelling", "request_id": "r1", "dropped": []}
    assert len(host.ops("cancel")) == 1


async def _intend(side: Side, boot: str | None = "boot1") -> None:
    """An intent whose command never left."""
    gateway_id = "gw1" if boot else None
    intent = Intent("session.send", boot and "never", gateway_id, boot, 1.0)
    print_ = requests.fingerprint("session.send", b'{"text":"hi","request_id":"r1"}')
    await side.vault.begin(PHONE.device_id, "r1", print_, intent)


@pytest.mark.parametrize("boot", ["boot1", None])
async def test_what_never_left_is_forgotten(
    tmp_path: Path, make_host: Callable[..., Host], boot: str | None
) -> None:
    async with Side(tmp_path) as side:
        await _intend(side, boot)
    host = make_host()
    async with Side(tmp_path) as side, asyncio.TaskGroup() as group:
        told = group.create_task(side.refused("session.send", **SEND))
        await side.online(host)
        assert (await told).code == "gateway_offline"
        assert (await side.ask("session.send", **SEND))["accepted"]
    assert len(host.commands) == 1


async def test_another_process_of_the_gateway_cannot_know(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    async with Side(tmp_path) as side:
        await _intend(side, "boot0")
    host = make_host()
    async with Side(tmp_path) as side:
        await side.online(host)
        for _ in range(2):
            assert (await side.refused("session.send", **SEND)).code == "outcome_unknown"
    assert host.commands == []


async def test_without_its_gateway_a_request_has_an_unknown_outcome_for_good(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    async with Side(tmp_path) as side:
        await _intend(side)
    async with Side(tmp_path, patience_s=0.2) as side:
        assert (await side.refused("session.send", **SEND)).code == "outcome_unknown"
        assert (await side.refused("session.send", text="ho", request_id="r1")).code == (
            "request_id_reused"
        )
        await side.online(make_host())
        # Once told it stays told: no answer changes afterwards.
        assert (await side.refused("session.send", **SEND)).code == "outcome_unknown"


async def test_while_no_phone_asks_a_request_waits_for_its_gateway(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    async with Side(tmp_path) as side:
        await _intend(side)
    async with Side(tmp_path, patience_s=0) as side:
        await side.online(make_host())
        await until(lambda: not side.under_way)
        assert await side.vault.open_requests() == []
        assert (await side.ask("session.send", **SEND))["accepted"]

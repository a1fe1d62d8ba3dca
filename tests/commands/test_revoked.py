"""A device is revoked while its answer to an approval is on its way."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from loomid.errors import Unauthorized
from tests.support.answering import PHONE, TABLET, Host, Side
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_its_claim_is_settled_after_a_restart(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    async with Side(tmp_path) as side:
        await side.online(host)
        host.ask("s1")
        body = await side.only_claimed("s1")
        await side.vault.remove_device(PHONE.device_id, "loomictl", time.time())
    async with Side(tmp_path) as side:
        await until(lambda: not side.under_way)
        assert (await side.entry(body["approval_id"])).waits
        assert await side.vault.open_requests() == []
        await side.ask("approval.resolve", TABLET, **{**body, "request_id": "r2"})
        await side.decided("s1")
    assert len(host.commands) == 1


async def test_it_claims_nothing_any_more(side: Side, host: Host) -> None:
    host.ask("s1")
    approval_id = await side.asked("s1")
    claim = side.ledger.claim

    async def revoked_first(*claims: Any) -> None:
        await side.vault.remove_device(PHONE.device_id, "loomictl", time.time())
        await claim(*claims)

    side.ledger.claim = revoked_first  # type: ignore[method-assign]
    body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
    with pytest.raises(Unauthorized):
        await side.ask("approval.resolve", **body)
    await asyncio.sleep(0.1)
    assert host.commands == []
    assert (await side.entry(approval_id)).waits


async def test_nothing_of_it_is_kept_once_that_is_settled(side: Side, host: Host) -> None:
    host.silent.add("approve")
    host.ask("s1")
    body = {"approval_id": await side.asked("s1"), "choice": "once", "request_id": "r1"}
    await side.ask("approval.resolve", **body)
    await until(lambda: host.commands)
    await side.vault.remove_device(PHONE.device_id, "loomictl", time.time())
    await side.log._store.tidy.forget_rest(time.time() + 9)
    assert await side.vault.open_requests() != []
    host.answer(host.commands[0])
    await until(lambda: not side.under_way)
    await side.log._store.tidy.forget_rest(time.time() + 9)
    assert await side.vault.request(PHONE.device_id, "r1") is None

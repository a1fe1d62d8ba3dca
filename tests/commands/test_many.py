"""Commands of many phones on their way at once when loomid is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loomid.errors import GatewayOffline
from tests.support.answering import PHONE, Host, Side
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loomid.vault import Device

PHONES, EACH = 40, 16


@pytest.mark.timeout(240)
async def test_all_that_a_killed_loomid_had_sent_ran_once(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    host.silent.add("inject")
    asks = [
        (replace(PHONE, device_id=f"dev_{i}"), f"r{j}") for i in range(PHONES) for j in range(EACH)
    ]

    async def say(side: Side, device: Device, request_id: str) -> None:
        body = {"text": f"{device.device_id} {request_id}", "request_id": request_id}
        while True:  # until it is not offline any more
            with contextlib.suppress(GatewayOffline):
                await side.ask("session.send", device, **body)
                return
            await asyncio.sleep(0.05)

    async with Side(tmp_path) as side:
        await side.online(host)
        async with asyncio.TaskGroup() as group:
            saying = [group.create_task(say(side, *one)) for one in asks]
            await until(lambda: len(host.commands) == len(asks))
            for one in saying:
                one.cancel()
    host.silent.clear()
    for command in host.commands[:]:
        host.answer(command)
    # A result that got lost on its way would not come before the phones lose patience.
    async with Side(tmp_path, patience_s=60.0, deadline_s=90.0) as side:
        await until(lambda: side.gateways.boot_of("gw1") == "boot1")
        async with asyncio.TaskGroup() as group:
            for one in asks:
                group.create_task(say(side, *one))
    ran = Counter(command.args["text"] for command in host.ops("inject"))
    assert len(ran) == len(asks)
    assert [text for text, times in ran.items() if times > 1] == []

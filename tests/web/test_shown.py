"""Which phone was the first to have an approval, in the ledger."""

import asyncio
import time

from loomid.shown import Shown
from tests.support.hub import approval, resolved, serving
from tests.support.waiting import until


async def test_what_is_asked_while_another_one_is_noted_is_noted_too(tmp_path):
    """In that moment one ends and one begins, so that their number says nothing."""
    async with serving(tmp_path) as server, server.phone().connect(await server.token()):
        ledger = server.store.ledger
        real, noted = ledger.shown, []

        async def shown(seen, at):
            noted.extend(seen)
            if seen.keys() == {"apr_2"}:
                await server.publish(resolved("apr_1"), approval("apr_3"))
            await real(seen, at)

        ledger.shown = shown
        async with asyncio.TaskGroup() as tasks:
            notes = Shown(server.log, server.hub, ledger, time.time, look_s=0.001).run()
            noting = tasks.create_task(notes)
            for name in ("apr_1", "apr_2"):
                await server.publish(approval(name))
                await until(lambda name=name: name in noted)
            await until(lambda: noted == ["apr_1", "apr_2", "apr_3"])
            noting.cancel()
        assert (await ledger.get("apr_2")).state == "shown"

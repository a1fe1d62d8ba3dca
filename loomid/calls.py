"""Commands sent to shims whose answer is awaited. None is sent twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.errors import GatewayOffline, LoomiError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.roster import Boot


class CommandFailed(LoomiError):
    """The shim answered with an error: `code` is one of wire.RESULT_ERRORS."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


class _Broken(Exception):
    """The link or the process went while an answer was awaited."""


class Calls:
    """Pairs each result with whoever waits for it."""

    def __init__(
        self, send: Callable[[bytes | None, wire.Message], bool], deadline_s: float
    ) -> None:
        self._send = send
        self._deadline_s = deadline_s
        # Keyed by what was sent too: a recall may run beside the command it asks about.
        self._waiting: dict[tuple[type, str], tuple[Boot, asyncio.Future[wire.Result]]] = {}

    async def command(self, boot: Boot, message: wire.Command) -> dict[str, Any]:
        """The value of its result. Raises as `Gateways.command`."""
        try:
            result = await self._ask(boot, message)
        except (TimeoutError, _Broken):
            raise OutcomeUnknown from None
        if result.error is not None:
            raise CommandFailed(result.error, result.detail)
        return result.value

    async def recall(self, boot: Boot, command_id: str) -> wire.Result | None:
        """Raises GatewayOffline when no answer comes."""
        try:
            async with boot.recalls:
                if not boot.online:  # it went while others asked
                    raise GatewayOffline
                result = await self._ask(boot, wire.Recall(command_id))
        except (TimeoutError, _Broken):
            raise GatewayOffline from None
        return None if result.error == "unknown_command" else result

    async def _ask(self, boot: Boot, message: wire.Command | wire.Recall) -> wire.Result:
        key = type(message), message.id
        if key in self._waiting:
            raise ValueError("that command id is in use")
        future = asyncio.get_running_loop().create_future()
        self._waiting[key] = boot, future
        try:
            if not self._send(boot.peer, message):
                raise GatewayOffline
            async with asyncio.timeout(self._deadline_s):
                result: wire.Result = await future
                return result
        finally:
            del self._waiting[key]

    def settle(self, result: wire.Result) -> bool:
        """A result came; False: too late, or nobody had asked."""
        # Also `unknown_command` is for both: the shim never runs what it denied once.
        keys = [(asked, result.id) for asked in (wire.Recall, wire.Command)]
        found = [self._waiting[key] for key in keys if key in self._waiting]
        for _, future in found:
            if not future.done():
                future.set_result(result)
        return bool(found)

    def broken(self, boot: Boot | None) -> None:
        """Nothing more is heard of this process (None: of any)."""
        for owner, future in self._waiting.values():
            if boot in (None, owner) and not future.done():
                future.set_exception(_Broken())

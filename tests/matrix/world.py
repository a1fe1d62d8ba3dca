"""One release of Hermes with everything around it, and a phone that plays scenarios."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid.lmp import scopes
from tests.matrix.checks import check_fields, check_run
from tests.support.daemon import Daemon
from tests.support.hermes import Gateway, Release
from tests.support.phone import Connection, Got, Phone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.model import Model

RUN_S = 60.0
APPROVAL_S = 6
_serial = itertools.count(1)


def second(url: str) -> dict[str, Any]:
    """The configuration of another provider of models."""
    models: dict[str, Any] = {"m2": {}, "m3": {}}
    return {"name": "Second", "api": f"{url}/second", "api_key": "test", "models": models}


class World:
    """A gateway, a daemon and what they need; used with `with`, shared by scenarios."""

    def __init__(self, release: Release, folder: Path, model: Model) -> None:
        self.release = release
        self.model = model
        (folder / "loomid").mkdir()
        self.daemon = Daemon(folder / "loomid")
        self.gateway = Gateway(
            release,
            folder / "hermes",
            model.url,
            self.daemon.hermes_endpoint,
            other=True,
            config={
                "approvals": {"timeout": APPROVAL_S, "gateway_timeout": APPROVAL_S},
                "providers": {"second": second(model.url)},
            },
        )
        self.seen: set[str] = set()
        """The types of frames that phones got in this world."""
        self._open = ExitStack()

    def __enter__(self) -> World:
        self.gateway.folder.mkdir(exist_ok=True)
        self._open.callback(self.daemon.close)
        self._open.callback(self.gateway.stop)
        try:
            self.daemon.start()
            self.gateway.start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @asynccontextmanager
    async def player(self, *capabilities: str) -> AsyncIterator[Player]:
        """A newly paired phone that is connected and may do all; its device stays paired."""
        code = await asyncio.to_thread(lambda: self.daemon.pair(scopes=list(scopes.ALL)))
        phone = Phone(self.daemon.url, list(capabilities))
        async with phone.connect(code["qr"]["token"]) as connection:
            player = Player(self, phone, connection)
            await player.online()
            yield player
            player.check()
            check_fields(connection.got)
            self.seen |= {got.type for got in connection.got}

    async def ask_other(self, do: str, **more: Any) -> Any:
        """One request to the door of the second platform."""
        return await asyncio.to_thread(lambda: self.gateway.ask(do, **more))


@dataclass
class Player:
    """A phone on its connection, with the moves that scenarios are made of."""

    world: World
    phone: Phone
    connection: Connection
    runs: list[str] = field(default_factory=list)

    async def online(self) -> None:
        """Wait until a gateway is online as this phone is told."""

        def seen() -> bool:
            told = self.connection.hello_ok.payload["gateways"] if self.connection.hello_ok else []
            told = [*told, *(g.payload for g in self.phone.events("gateway.status"))]
            return bool(told) and told[-1]["online"]

        await self.connection.wait_for(seen, RUN_S)

    async def request(self, type_: str, **payload: Any) -> Got:
        """A request with a request id of its own; its result or error."""
        payload.setdefault("request_id", f"q{next(_serial)}")
        return await self.connection.request(type_, **payload)

    async def allow(self, *scopes: str) -> None:
        """The owner says what this phone may do; returns once it has heard of it."""
        target = f"/devices/{self.phone.device_id}"
        body = {"scopes": list(scopes)}
        count = sum(got.type == "device.updated" for got in self.connection.got)
        await asyncio.to_thread(self.world.daemon.call, "PATCH", target, body=body)
        await self.connection.wait_type("device.updated", count + 1)

    async def send(self, text: str, **more: Any) -> tuple[str, str]:
        """Send a message: its request id and task."""
        request_id = f"q{next(_serial)}"
        answer = await self.request("session.send", request_id=request_id, text=text, **more)
        assert answer.type == "session.send.result", answer.payload
        assert answer.payload["accepted"] is True
        return request_id, answer.payload["task_id"]

    async def started(self, request_id: str) -> Got:
        """The run that this message began."""

        def found() -> Got | None:
            return next(
                (
                    g
                    for g in self.phone.events("run.started")
                    if g.payload.get("origin", {}).get("request_id") == request_id
                ),
                None,
            )

        got: Got = await self.connection.wait_for(found, RUN_S)
        self.runs.append(got.payload["run_id"])
        return got

    async def ended(self, run_id: str) -> Got:
        """The end of a run."""
        return await self.event("run.completed", "run.failed", run_id=run_id)

    async def event(self, *types: str, after: int = 0, **fields: Any) -> Got:
        """The first event of these types with these values, from `mark()` on."""

        def found() -> Got | None:
            for got in self.phone.got[after:]:
                if got.type in types and all(got.payload.get(k) == v for k, v in fields.items()):
                    return got
            return None

        try:
            got: Got = await self.connection.wait_for(found, RUN_S)
        except TimeoutError:
            last = [(g.type, g.payload) for g in self.phone.got[-12:]]
            raise AssertionError(f"no {types} {fields}; last frames: {last}") from None
        return got

    def mark(self) -> int:
        """A point in what was received."""
        return len(self.phone.got)

    async def play(self, text: str, **more: Any) -> tuple[Got, Got]:
        """Send, and wait for the end of its run: run.started and the end, checked."""
        request_id, task_id = await self.send(text, **more)
        started = await self.started(request_id)
        assert started.payload["task_id"] == task_id == started.frame.task_id
        end = await self.ended(started.payload["run_id"])
        self.check()
        return started, end

    def check(self) -> None:
        """Everything that must hold of each run this phone has seen from its start."""
        for run_id in {g.payload["run_id"] for g in self.phone.events("run.started")}:
            check_run(self.phone.got, run_id)

    def text(self, run_id: str, kind: str = "text") -> dict[int, str]:
        """What was streamed of each iteration."""
        texts: dict[int, str] = {}
        for got in self.phone.events("run.delta"):
            if got.payload["run_id"] == run_id and got.payload["kind"] == kind:
                iteration = got.payload["iteration"]
                texts[iteration] = texts.get(iteration, "") + got.payload["text"]
        return texts

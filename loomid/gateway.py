"""loomid's end of the link: one ROUTER socket for the shims of all gateways.

Owns the socket, commands and their results. Who is alive and what arrived is `roster`'s.
Must not interpret facts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

import zmq

from loomid import hermesdb, wire
from loomid.calls import Calls, CommandFailed
from loomid.errors import GatewayOffline, OutcomeUnknown
from loomid.ipc import listening, text_of
from loomid.roster import PATH_MAX, Boot, GatewayState, LinkFigures, Roster
from loomid.strangers import Strangers, foreign
from loomid.text import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from loomid.lmp.facts import Arrival

    Clock = Callable[[], float]

__all__ = ["CommandFailed", "GatewayState", "Gateways"]

log = logging.getLogger("loomid.gateway")

ARRIVALS_MAX = 32_768  # eight windows of a shim; beyond, they wait in their own processes
ARRIVED_BYTES_MAX = 16 << 20
SLICE = 256  # messages in one step of the loop
STOCK = "stock-"  # begins the id of a command whose answer is a fact
REPLACED = "another process is this gateway now: no more commands come here"


class Gateways:
    """The shims that are or were connected. Use it on one event loop."""

    def __init__(
        self,
        socket_path: Path,
        *,
        version: str,
        instance: str,
        clock: Clock,
        acked: Mapping[tuple[str, str], int],
        known: Iterable[Arrival] = (),
        inbox: Path | None = None,
        max_file_bytes: int | None = None,
        beat_s: float = wire.BEAT_S,
        deadline_s: float = wire.COMMAND_DEADLINE_S,
    ) -> None:
        self.ready = asyncio.Event()
        self._path = socket_path
        self._handing = {"inbox": str(inbox), "max_file_bytes": max_file_bytes} if inbox else {}
        self._version = version
        self._instance = instance
        self._clock = clock
        self._beat_s = beat_s
        self._deadline_s = deadline_s
        self._roster = Roster(acked, known)
        self._socket: zmq.Socket[bytes] | None = None
        self._peers: dict[bytes, Boot] = {}
        self._asked: set[bytes] = set()
        self._unreachable: set[bytes] = set()
        self._looked_at: dict[tuple[str, str], bytes] = {}  # who said hello, and where, meanwhile
        self._looks: asyncio.TaskGroup
        self._strangers = Strangers()
        self._logged: set[str] = set()
        self._arrived = asyncio.Event()
        self._paused = False
        self._arrived_bytes = 0  # read since nothing was waiting
        self._dry = False  # all there was has been read, once since the last tick
        self._drain_due = False
        self._calls = Calls(self._send, deadline_s)

    # ── serving ──

    async def run(self) -> None:
        """Bind and serve until cancelled."""
        with self._listening() as self._socket:
            try:
                async with asyncio.TaskGroup() as self._looks:
                    self.ready.set()
                    self._drain()
                    while True:
                        await asyncio.sleep(self._beat_s)
                        self._tick()
            finally:
                self.ready.clear()
                self._socket = None
                self._calls.broken(None)

    def _listening(self) -> AbstractContextManager[zmq.Socket[bytes]]:
        return listening(self._path, self._drain)

    def _drain(self) -> None:
        """Read all there is: ZeroMQ's fd tells only of changes, and sending may eat one."""
        self._drain_due = False
        for _ in range(SLICE):
            if self._socket is None:
                return
            if not self._roster.arrivals:
                self._arrived_bytes = 0
            full = len(self._roster.arrivals) >= ARRIVALS_MAX
            self._paused = full or self._arrived_bytes >= ARRIVED_BYTES_MAX
            if self._paused:
                return  # take() goes on
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                self._dry = True
                return
            self._arrived_bytes += sum(map(len, frames))
            self._receive(frames)
        self._drain_soon()

    def _drain_soon(self) -> None:
        if not self._drain_due and self._socket is not None:
            self._drain_due = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _send(self, peer: bytes | None, message: wire.Message) -> bool:
        """False: it was certainly not sent."""
        if self._socket is None or peer is None:
            return False
        self._drain_soon()
        try:
            self._socket.send_multipart((peer, wire.encode(message)), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                self._unreachable.add(peer)
            return False
        return True

    def _tick(self) -> None:
        self._drain()
        self._asked.clear()
        self._strangers.beat()
        if self._dry:  # else silence is ours: the dead may have left facts that are not read yet
            for peer in self._unreachable:
                self._peers.pop(peer, None)
            self._unreachable.clear()
            for boot in self._roster.tick(self._clock()):
                self._offline(boot, "no heartbeat" if boot.missed > 1 else "its process is gone")
        self._dry = False
        for peer in self._peers:
            self._send(peer, wire.Beat())
        self._tell()

    # ── what comes in ──

    def _receive(self, frames: list[bytes]) -> None:
        peer, boot = frames[0], self._peers.get(frames[0])
        said = ""
        try:
            said = text_of(frames)
            message = wire.from_shim(said) if said else None
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            stranger = foreign(said)
            if stranger is None:
                self._odd(f"malformed message ({type(error).__name__})")
            else:
                self._send(peer, self._strangers.refuse(*stranger))
            return
        if isinstance(message, wire.Hello):
            self._hello(peer, message)
        elif boot is None or not boot.online:
            # One that was silent (stopped, say) may not know that it was given up: its hello
            # brings it back, and it sends again what is dropped here.
            self._ask(peer)
        elif message is not None:
            self._roster.heard(boot, peer)
            self._from(boot, message)
        self._tell()

    def _from(self, boot: Boot, message: wire.Message) -> None:
        match message:
            case wire.Facts(boot=name, facts=entries):
                if name != boot.boot:
                    self._odd("facts of another process")
                elif self._roster.facts(boot, entries, self._clock()):
                    self._send(boot.peer, wire.Ack(boot.boot, boot.acked))
                for kind in self._roster.oddities:
                    self._odd(kind, count=False)
            case wire.Result(id=command_id):
                stock = command_id.startswith(STOCK)
                if not stock and not self._calls.settle(message):
                    self._odd("a result that nobody waits for")
            case wire.Beat(dropped=dropped) if dropped != boot.dropped:
                self._roster.lose_facts(boot, dropped)
                log.warning("gateway %s lost facts: %s", short(boot.gateway_id), dropped)
            case wire.Bye():
                self._roster.down(boot, self._clock())
                self._offline(boot, "it said bye")
            case _:  # a beat
                pass

    def _hello(self, peer: bytes, hello: wire.Hello) -> None:
        if hello.wire != wire.WIRE_VERSION:
            self._send(peer, self._strangers.refuse(hello.gateway_id, hello.wire))
            return
        objection = self._roster.objection(hello)
        if objection is not None:
            self._odd(objection)
            return
        self._strangers.forget(hello.gateway_id)
        if not hello.home:
            self._meet(peer, hello, "")
            return
        if (hello.gateway_id, hello.boot) not in self._looked_at:
            self._looks.create_task(self._look(hello))
        self._looked_at[hello.gateway_id, hello.boot] = peer

    async def _look(self, hello: wire.Hello) -> None:
        """Meet a gateway once its home was looked at: a disk may be slow. What it says before it
        is welcome it says again."""
        obstacle = await asyncio.to_thread(hermesdb.obstacle, hello.home)
        peer = self._looked_at.pop((hello.gateway_id, hello.boot))
        self._meet(peer, hello, obstacle)
        self._tell()

    def _meet(self, peer: bytes, hello: wire.Hello, obstacle: str | None) -> None:
        was_online = self._roster.online(hello.gateway_id)
        boot, older = self._roster.hello(peer, hello, self._clock(), obstacle)
        self._peers[peer] = boot
        refused = wire.Refused("replaced", [wire.WIRE_VERSION], REPLACED)
        for replaced in older:
            self._send(replaced.peer, refused)
        if boot.replaced:
            self._send(peer, refused)
            return
        if was_online is not boot:
            log.info(
                "gateway %s online: %s, Hermes %s, pid %d, boot %s",
                short(boot.gateway_id),
                short(boot.up.name if boot.up else ""),
                short(hello.hermes_version),
                hello.pid,
                short(boot.boot),
            )
            self._complain(boot)
        self._send(peer, wire.Welcome(wire.WIRE_VERSION, self._version, self._instance, boot.acked))
        # What is alive comes as a fact, after all that came before; nobody waits for the result.
        stock = f"{STOCK}{secrets.token_hex(8)}", boot.boot, self._clock() + self._deadline_s
        self._send(peer, wire.Command(*stock, "running", {"fact": "inventory"} | self._handing))

    def _complain(self, boot: Boot) -> None:
        """Say once that Hermes' database is on this machine and cannot be read."""
        if boot.obstacle and boot.obstacle not in self._logged and len(self._logged) < SLICE:
            self._logged.add(boot.obstacle)
            said = "gateway %s: cannot read %s: no history of it on phones; see loomictl status"
            log.warning(said, short(boot.gateway_id), short(boot.obstacle, PATH_MAX))

    def _ask(self, peer: bytes) -> None:
        """A connection begins with an empty message; ask once a beat."""
        if peer not in self._asked:
            self._asked.add(peer)
            self._send(peer, wire.WhoAreYou())

    def _odd(self, kind: str, *, count: bool = True) -> None:
        if count:
            self._roster.oddities[kind] += 1
        if kind not in self._logged and len(self._logged) < SLICE and kind != "fact_again":
            self._logged.add(kind)
            log.warning("from a shim: %s; counted, not logged again", short(kind))

    # ── what arrived ──

    def take(self, limit: int = 2048) -> list[Arrival]:
        """What has arrived, in order; each number of a process once. Never waits."""
        arrivals = self._roster.arrivals
        out = [arrivals.popleft() for _ in range(min(limit, len(arrivals)))]
        if self._paused:
            self._drain_soon()
        self._tell()
        return out

    def arrive(self, arrival: Arrival) -> None:
        """A fact of loomid's own that is to be folded with those of a gateway."""
        self._roster.arrivals.append(arrival)
        self._tell()

    async def arrived(self, timeout: float) -> None:  # noqa: ASYNC109 - part of what it means
        """Return when `take` has something, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._arrived.wait()
        except TimeoutError:
            pass

    def _tell(self) -> None:
        if self._roster.arrivals:
            self._arrived.set()
        else:
            self._arrived.clear()

    def ack(self, gateway_id: str, boot: str, n: int) -> None:
        """Everything up to n of this process is on disk."""
        known = self._roster.ack(gateway_id, boot, n)
        if known is not None:
            self._send(known.peer, wire.Ack(boot, known.acked))

    # ── who is there ──

    def states(self) -> list[GatewayState]:
        """Every gateway that ever said hello."""
        return self._roster.states()

    def forget(self, gateway_id: str, name: str) -> bool:
        """Know nothing of a gateway any more, until it says hello again; False: it is online.

        What comes of that, its end for phones among it, arrives as facts.
        """
        forgotten = self._roster.forget(gateway_id, name, self._clock())
        self._tell()
        return forgotten

    def incompatible(self) -> list[str]:
        """One line for each peer whose wire version is not spoken here."""
        return self._strangers.lines()

    def figures(self) -> LinkFigures:
        """What came over the link since our start."""
        return self._roster.figures()

    def boot_of(self, gateway_id: str) -> str | None:
        """The process that would take a command now."""
        boot = self._roster.online(gateway_id)
        return boot.boot if boot else None

    # ── commands ──

    async def command(
        self, gateway_id: str, op: str, args: dict[str, Any], *, command_id: str
    ) -> dict[str, Any]:
        """Have the gateway do something once; returns the value of its result.

        Raises GatewayOffline (it did not run), OutcomeUnknown (it may have), CommandFailed.
        """
        boot = self._online(gateway_id)
        message = wire.Command(command_id, boot.boot, self._clock() + self._deadline_s, op, args)
        return await self._calls.command(boot, message)

    async def recall(self, gateway_id: str, boot: str, command_id: str) -> wire.Result | None:
        """The result of a command sent earlier; None: this process never ran it, nor will.

        Raises GatewayOffline (not connected), OutcomeUnknown (another process is there).
        """
        current = self._online(gateway_id)
        if current.boot != boot:
            raise OutcomeUnknown
        return await self._calls.recall(current, command_id)

    def _online(self, gateway_id: str) -> Boot:
        boot = self._roster.online(gateway_id)
        if boot is None:
            raise GatewayOffline
        return boot

    def _offline(self, boot: Boot, why: str) -> None:
        log.info("gateway %s offline: %s, boot %s", short(boot.gateway_id), why, short(boot.boot))
        self._calls.broken(boot)
        for former in self._roster.replaced(boot.gateway_id):
            self._send(former.peer, wire.WhoAreYou())  # it may speak for its gateway again

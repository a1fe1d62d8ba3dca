"""The paired devices and the tokens that make new ones (LMP §3)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from loomid.audit import LOOMID, Deed
from loomid.errors import StorageFailing, TokenExpired, TokenUsed, Unauthorized
from loomid.lmp import pairing
from loomid.vault import Device, Token

if TYPE_CHECKING:
    from collections.abc import Callable, Set as AbstractSet

    from loomid.lmp.frames import DeviceInfo
    from loomid.lmp.pairing import Secret
    from loomid.lmp.scopes import Scopes
    from loomid.vault import Vault

    Changed = Callable[[str, Scopes], object]

log = logging.getLogger("loomid.devices")

_REMEMBERED_FAILURES = 1024
_PRUNE_S = 3600.0
_TOKENS_KEPT_S = pairing.MAX_TOKEN_TTL_S
"""After it ran out: until then a late phone is told what became of it."""
GRACE_S = 60.0
_SAVED_AT_ONCE = 50
_INFO_CHARS = 100
_TOLD = {"name": "device.renamed", "scopes": "device.scopes"}
"""Fields whose change is a row of the audit."""
_NOBODY = bytes(32)
"""Compared with for an unknown device id, so that it takes as long as a wrong credential."""


@dataclass(slots=True)
class _Minted:
    token: Token
    redeemed: asyncio.Future[Device | None] = field(default_factory=asyncio.Future)
    """None: by a device that is gone again."""


def described(info: DeviceInfo) -> dict[str, Any]:
    """What a phone says of itself, as fields of its device; nothing of what it leaves out."""
    said = {"model": info.model, "os": info.os, "app_version": info.app_version}
    return {field: text[:_INFO_CHARS] for field, text in said.items() if text}


class Devices:
    """Who may connect. Keeps the vault's list in memory; every change is stored first."""

    def __init__(self, vault: Vault, clock: Callable[[], float], claim_within_s: float) -> None:
        self._vault = vault
        self._clock = clock
        self._claim_within_s = claim_within_s
        self._known: dict[str, Device] = {}
        self._gone_at: dict[str, float] = {}
        self._snapshots: dict[str, tuple[int, int]] = {}
        """Where the latest snapshot of a device begins and ends."""
        self._minted: dict[bytes, _Minted] = {}
        self._failures: OrderedDict[str, int] = OrderedDict()
        self._unsaved: set[str] = set()
        self._watchers: list[Changed] = []
        self._pruned_at = 0.0

    async def load(self) -> None:
        """Read devices and tokens."""
        self._known = {device.device_id: device for device in await self._vault.devices()}
        now = asyncio.get_running_loop().time()
        self._gone_at = {
            d.device_id: now - self._away_for(d) for d in self._known.values() if not d.confirmed
        }
        for token_hash, token, used, device_id in await self._vault.tokens():
            minted = self._minted[token_hash] = _Minted(token)
            if used:
                minted.redeemed.set_result(self._known.get(device_id or ""))

    def _away_for(self, device: Device) -> float:
        """The seconds that a device has been gone at our start, by the clock.

        It has GRACE_S at least: it could not come back while we were away, and a clock that
        was set must remove nobody.
        """
        gone_for = self._clock() - (device.last_seen or device.created_at)
        return max(0.0, min(gone_for, self._claim_within_s - GRACE_S))

    def watch(self, told: Changed) -> None:
        """Have it called with the id and scopes of each device that is changed or revoked.

        A revoked one has no scopes. That is told before it is on disk, and once more when it
        is; when it cannot be stored, the scopes that the device has again.
        """
        self._watchers.append(told)

    def _tell(self, device_id: str) -> None:
        device = self._known.get(device_id)
        for told in self._watchers:
            told(device_id, () if device is None else device.scopes)

    def all(self) -> list[Device]:
        """The paired devices, oldest first."""
        return list(self._known.values())

    def current(self, device: Device) -> Device:
        """The device as it is by now. Raises Unauthorized when it was revoked meanwhile."""
        known = self._known.get(device.device_id)
        if known is None:
            raise Unauthorized
        return known

    def removed_in(self, device_id: str) -> float | None:
        """The seconds that a device which is away has to come back and confirm itself."""
        if device_id not in self._gone_at:
            return None
        gone_for = asyncio.get_running_loop().time() - self._gone_at[device_id]
        return max(0.0, self._claim_within_s - gone_for)

    def snapshot_told(self, device_id: str, begin: int, end: int) -> None:
        """A device is being told a snapshot, from one position to another."""
        self._snapshots[device_id] = begin, end

    def amid_snapshot(self, device_id: str, position: int) -> bool:
        """Whether a device that saw everything up to here lacks the rest of its snapshot.

        Not known after a restart: a phone notes no place within a snapshot (docs/protocol.md).
        """
        begin, end = self._snapshots.get(device_id, (0, 0))
        return begin <= position < end

    # ── pairing ─────────────────────────────────────────────────────────────

    async def mint(self, name: str | None, ttl: float, held: Scopes) -> tuple[Secret, float]:
        """A new pairing token and when it expires."""
        token = pairing.mint(secrets.token_bytes(pairing.SECRET_BYTES))
        now = self._clock()
        expires = now + min(max(ttl, 1.0), pairing.MAX_TOKEN_TTL_S)
        gives = Token(expires, name, held)
        await self._vault.add_token(token.hash, gives, now)
        self._minted[token.hash] = _Minted(gives)
        log.info("made pairing token %s, good for %.0f s", token, expires - now)
        return token, expires

    async def outcome(self, token_hash: bytes) -> Device | None:
        """Wait until a token was redeemed, or ran out (None). Raises KeyError."""
        minted = self._minted[token_hash]
        try:
            async with asyncio.timeout(max(0.0, minted.token.expires - self._clock())):
                return await asyncio.shield(minted.redeemed)
        except TimeoutError:
            return None

    async def withdraw(self, token_hash: bytes) -> bool:
        """Make a token worthless; False when it was used already. Raises KeyError."""
        minted = self._minted[token_hash]
        if not await self._vault.remove_token(token_hash):
            return False
        self._minted.pop(token_hash, None)
        if not minted.redeemed.done():
            minted.redeemed.set_result(None)
        return True

    async def pair(self, token: str, info: DeviceInfo, base: int) -> tuple[Device, Secret]:
        """Redeem a token: exactly one caller wins (LMP §3: single use)."""
        now = self._clock()
        token_hash = pairing.digest(token)
        minted = self._minted.get(token_hash)
        if minted is None:
            raise Unauthorized
        credential = pairing.mint(secrets.token_bytes(pairing.SECRET_BYTES))
        device = Device(
            device_id=pairing.device_id(secrets.token_bytes(8)),
            name=minted.token.name or info.model[:_INFO_CHARS] or "phone",
            credential_hash=credential.hash,
            base=base,
            created_at=now,
            last_seen=now,
            **described(info),
            scopes=minted.token.scopes,
        )
        match await self._vault.redeem(token_hash, device, now):
            case "used":
                raise TokenUsed
            case "expired":
                raise TokenExpired
            case "unknown":
                raise Unauthorized
            case "ok":
                pass
        self._known[device.device_id] = device
        self._gone_at[device.device_id] = asyncio.get_running_loop().time()
        if not minted.redeemed.done():
            minted.redeemed.set_result(device)
        log.info("paired %s", pairing.short(device.device_id))
        return device, credential

    # ── coming back ─────────────────────────────────────────────────────────

    def verify(self, device_id: str, credential: str) -> Device | None:
        """The device whose credential this is; constant time, also for unknown ids."""
        device = self._known.get(device_id)
        stored = _NOBODY if device is None else device.credential_hash
        if pairing.matches(credential, stored) and device is not None:
            self._failures.pop(device_id, None)
            return device
        return None

    def penalty(self, device_id: str) -> float:
        """Note a wrong credential; how long its refusal is held back. Others are not slowed."""
        failures = self._failures.pop(device_id, 0) + 1
        self._failures[device_id] = failures
        if len(self._failures) > _REMEMBERED_FAILURES:
            self._failures.popitem(last=False)
        return pairing.penalty(failures - 1)

    async def recognise(self, device_id: str, credential: str) -> Device:
        """The device that asks over HTTP. Raises Unauthorized, after a while that grows."""
        device = self.verify(device_id, credential)
        if device is None:
            await asyncio.sleep(self.penalty(device_id))
            raise Unauthorized
        return device

    async def greeted(self, device: Device, info: DeviceInfo) -> Device:
        """A device came back with its credential.

        It is not kept out when that cannot be stored; then it must come back once more.
        """
        confirmed = device.confirmed
        with contextlib.suppress(StorageFailing):
            if not confirmed:
                await self._vault.confirm_device(device.device_id)
                confirmed = True
        self._gone_at.pop(device.device_id, None)
        return self._seen(device, confirmed=confirmed, **described(info))

    def left(self, device_id: str) -> None:
        """A connection of the device has ended."""
        device = self._known.get(device_id)
        if device is not None:
            if not device.confirmed:
                self._gone_at[device_id] = asyncio.get_running_loop().time()
            self._seen(device)

    def _seen(self, device: Device, **changes: Any) -> Device:  # noqa: ANN401 - its fields
        """Stored by `tend`: a thousand phones that come back at once must not wait for it."""
        self._unsaved.add(device.device_id)
        return self._change(device, last_seen=self._clock(), **changes)

    async def save(self, most: int) -> None:
        """Store when devices were seen and what they said of themselves."""
        for device_id in list(self._unsaved)[:most]:
            self._unsaved.discard(device_id)
            device = self._known.get(device_id)
            if device is None or device.last_seen is None:
                continue
            try:
                await self._vault.seen(
                    device_id, device.last_seen, device.model, device.os, device.app_version
                )
            except StorageFailing:
                self._unsaved.add(device_id)
                raise

    async def move_base(self, device: Device, base: int) -> Device:
        """Give the device's numbers another start, on disk before this returns."""
        await self._vault.set_base(device.device_id, base)
        return self._change(device, base=base)

    def _change(self, device: Device, **changes: Any) -> Device:  # noqa: ANN401 - its fields
        """Remember changes of what is known by now: `device` may be older than a wait.

        A device that was revoked meanwhile stays forgotten.
        """
        changed = replace(self._known.get(device.device_id, device), **changes)
        if device.device_id in self._known:
            self._known[device.device_id] = changed
        return changed

    # ── management ──────────────────────────────────────────────────────────

    async def change(self, device_id: str, by: str, **changes: Any) -> Device | None:  # noqa: ANN401 - its fields
        """Change what is told of a device, on disk first; None: there is none (any more)."""
        device = self._known.get(device_id)
        if device is None or not changes:
            return device
        now = self._clock()
        deeds = [
            Deed(now, by, action, device_id, {"from": getattr(device, name), "to": changes[name]})
            for name, action in _TOLD.items()
            if changes.get(name, getattr(device, name)) != getattr(device, name)
        ]
        if not await self._vault.change_device(device_id, changes, deeds):
            return None
        changed = self._change(device, **changes)
        self._tell(device_id)
        return changed

    async def remove(self, device_id: str, by: str) -> bool:
        """Forget a device: its credential opens nothing from now on.

        It is known again when that cannot be stored, so that it can be tried again.
        """
        known = self._known.pop(device_id, None)
        self._tell(device_id)  # at once, however long the disk takes
        try:
            gone = await self._vault.remove_device(device_id, by, self._clock())
        except StorageFailing:
            if known is not None:  # else it would be back after the next start, unasked
                self._known[device_id] = known
            raise
        finally:
            self._tell(device_id)
        self._gone_at.pop(device_id, None)
        self._snapshots.pop(device_id, None)
        return gone or known is not None

    async def tend(self, connected: AbstractSet[str]) -> None:
        """Remove devices that never came back and tokens long gone; store what was seen."""
        before = asyncio.get_running_loop().time() - self._claim_within_s
        for device_id, gone_at in list(self._gone_at.items()):
            if device_id in connected:
                self._seen(self._known[device_id])  # its time begins when it leaves, or we do
            elif gone_at <= before:
                await self.remove(device_id, LOOMID)
                log.warning(
                    "removed %s: it never came back with its credential", pairing.short(device_id)
                )
        await self.save(_SAVED_AT_ONCE)
        now = self._clock()
        if not 0 <= now - self._pruned_at < _PRUNE_S:
            self._pruned_at = now
            gone = now - _TOKENS_KEPT_S
            self._minted = {k: m for k, m in self._minted.items() if m.token.expires >= gone}
            await self._vault.prune_tokens(gone)

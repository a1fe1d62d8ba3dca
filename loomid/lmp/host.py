"""What all turns of one gateway share."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from loomid.lmp.folding import Retention
from loomid.lmp.inbox import Inbox

if TYPE_CHECKING:
    from loomid.lmp.facts import GatewayUp

BOOTS = 8


class Host:
    """One gateway as its turns see it."""

    def __init__(self, gateway_id: str, key: bytes) -> None:
        self.gateway_id = gateway_id
        self.key = key
        self.inbox = Inbox()
        self.retention = Retention()
        self.running: Counter[str] = Counter()
        """Live runs by task."""
        self.dropped: Counter[str] = Counter()
        """Facts that came to nothing of their own, by reason; `joined`: deltas that went out in
        the frame of another."""
        self._ups: OrderedDict[str, GatewayUp] = OrderedDict()

    def can(self, boot: str, feature: str) -> bool:
        """Whether that process of the gateway has the feature."""
        up = self._ups.get(boot)
        return up is not None and feature in up.features

    def edits_only(self, boot: str) -> bool:
        """No stream hooks (0.19): deltas come as edits of the gateway's messages."""
        return self.can(boot, "edits") and not self.can(boot, "stream")

    def learn(self, boot: str, up: GatewayUp) -> str | None:
        """Note what a boot said last; returns which boot to forget."""
        self._ups[boot] = up
        self._ups.move_to_end(boot)
        return next(iter(self._ups)) if len(self._ups) > BOOTS else None

    def forget(self, boot: str) -> None:
        """That process is gone."""
        self._ups.pop(boot, None)

"""What is known of a turn's beginning; a run starts when it is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from loomid.lmp.frames import Origin, RunStarted
from loomid.lmp.preview import cut, title

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.folding import Folding


def platform_of(session_key: str) -> str | None:
    """The platform in a session key `agent:<profile>:<platform>:…` (docs/hermes.md)."""
    parts = session_key.split(":")
    return parts[2] if len(parts) > 3 and parts[0] == "agent" else None


class Start:
    """Gathers what turn.started, api.started and stream.started say.

    Without turn.started nothing begins: what Hermes does aside is told by the other two as
    well (docs/hermes.md). It lacks the provider only, and is enough after a short wait.
    """

    def __init__(self) -> None:
        self.session_id = ""
        self.platform = ""
        self.model = ""
        self.provider = ""
        self.text: str | None = None
        self.origin: Origin | None = None
        self.own_key: str | None = None
        self.parent: str | None = None
        self.known_at: float | None = None
        """Since when enough is known to begin."""
        self.t = 0.0
        """When the turn began, on Hermes' clock."""

    @property
    def complete(self) -> bool:
        """Nothing more needs to be waited for."""
        return self.text is not None and bool(self.provider)

    @property
    def session(self) -> str:
        """What the task belongs to: the session key, else the root session."""
        return self.own_key or self.parent or self.session_id

    def turn_started(self, fact: wire.TurnStarted, out: Folding) -> bool:
        """The turn began; False if that was known."""
        if self.text is not None:
            return False
        self.known_at, self.t = out.at, out.t
        self.known(fact.session_id, fact.platform, fact.model, "")
        self.text, self.parent = fact.text, fact.parent_session_id or None
        key = fact.session_key
        # Cron and subagent turns carry another session's key in their context (docs/hermes.md).
        if key and platform_of(key) in (fact.platform, None):
            self.own_key = key
        return True

    def known(self, session_id: str, platform: str, model: str, provider: str) -> None:
        """One more fact that tells of the turn's surroundings; the first word holds."""
        self.session_id = self.session_id or session_id
        self.platform = self.platform or platform
        self.model = self.model or model
        self.provider = self.provider or provider

    def event(self, run_id: str, task_id: str, can: tuple[str, ...]) -> RunStarted:
        """The run's first event."""
        prompt = cut(self.text or "")
        return RunStarted(
            run_id=run_id,
            task_id=task_id,
            session_id=self.session_id,
            surface=self.platform,
            model=self.model,
            provider=self.provider,
            started_at=self.t,
            title=title(self.text or ""),
            prompt=prompt.text,
            origin=self.origin if self.origin is not None else UNSET,
            can=list(can),
            truncated=prompt.truncated or UNSET,
        )

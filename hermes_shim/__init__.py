"""Hermes platform plugin `loomi`: what happens in the gateway, told to loomid.

Hermes calls `register` in every process that loads plugins, so nothing is opened and
nothing heavy is imported before the gateway asks for the adapter.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import Any

from .facts import once, state, watch
from .wire import HOME_CHAT, PLATFORM


def zmq_ready() -> bool:
    """Whether pyzmq can be imported, with the copy in our `_vendor/` as the last resort."""
    vendor = Path(__file__).with_name("_vendor")
    for path in ("", str(vendor)) if vendor.is_dir() else ("",):
        if path and path not in sys.path:
            sys.path.append(path)
        try:
            import zmq  # noqa: F401
        except ImportError:
            continue
        return True
    once(
        logging.ERROR,
        "loomi: pyzmq is missing, so phones are off: run `loomictl hermes install`, or `%s -m pip "
        "install pyzmq`, and restart the gateway",
        sys.executable,
    )
    return False


def _adapter(config: Any) -> Any:
    from .adapter import LoomiAdapter

    return LoomiAdapter(config)


def register(ctx: Any) -> None:
    """Entry point of the plugin, in all releases."""
    from gateway.platform_registry import PlatformEntry

    from .cli import set_up

    options = {
        "env_enablement_fn": lambda: {"home_channel": {"chat_id": HOME_CHAT, "name": "Loomi"}},
        "cron_deliver_env_var": "LOOMI_HOME_CHANNEL",
        "emoji": "📱",
        "display_tier": "low",
    }
    known = {field.name for field in dataclasses.fields(PlatformEntry)}
    try:
        ctx.register_platform(
            name=PLATFORM,
            label="Loomi",
            adapter_factory=_adapter,
            check_fn=zmq_ready,
            **{name: value for name, value in options.items() if name in known},
        )
    except Exception as error:
        raise RuntimeError(
            f"loomi: phones are off, the gateway does not take the platform ({error}); with "
            "`plugins.isolation: host` in config.yaml set it to `in_process`"
        ) from error
    ctx.register_cli_command("loomi", "Phones: pair, list, revoke", set_up)
    state.ctx = ctx
    if state.link is not None:  # a forced reload in the gateway
        watch()

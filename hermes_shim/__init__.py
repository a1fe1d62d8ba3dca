"""Hermes platform plugin `loomi`: what happens in the gateway, told to loomid.

Hermes calls `register` in every process that loads plugins, so nothing is opened and
nothing heavy is imported before the gateway asks for the adapter.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import cli
from .facts import state, watch
from .wire import HOME_CHAT, PLATFORM, once


def zmq_ready() -> bool:
    """Whether pyzmq can be imported, with the copy in our `_vendor/` as the last resort."""
    vendor = Path(__file__).with_name("_vendor")
    for folder in ([], [str(vendor)] * vendor.is_dir()):
        sys.path += [path for path in folder if path not in sys.path]
        with suppress(ImportError):
            import zmq  # noqa: F401

            return True
    how = f"run `loomictl hermes install`, or `{sys.executable} -m pip install pyzmq`"
    once(f"pyzmq is missing, so phones are off: {how}, and restart the gateway")
    return False


def _adapter(config: Any) -> Any:
    from gateway.config import Platform

    from .adapter import LoomiAdapter

    return LoomiAdapter(config, Platform(PLATFORM))


def register(ctx: Any) -> None:
    """Entry point of the plugin, in all releases."""
    home = {"home_channel": {"chat_id": HOME_CHAT, "name": "Loomi"}}
    extra = {"cron_deliver_env_var": "LOOMI_HOME_CHANNEL", "env_enablement_fn": lambda: home}
    try:
        ctx.register_platform(PLATFORM, "Loomi", _adapter, zmq_ready, emoji="📱", **extra)
    except Exception as error:
        way_out = "with `plugins.isolation: host` in config.yaml set it to `in_process`"
        raise RuntimeError(f"loomi: phones are off, no platform ({error}); {way_out}") from error
    ctx.register_cli_command("loomi", "Phones: pair, list, revoke", cli.set_up, cli.run)
    state.ctx = ctx
    if state.link is not None:  # a forced reload in the gateway
        watch()

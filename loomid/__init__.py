"""loomid: the phone side of a self-hosted Hermes Agent, speaking LMP v1."""

from importlib import metadata

__version__ = metadata.version("loomid")

"""loomid: the phone side of a self-hosted Hermes Agent, speaking LMP v1."""

__version__ = "0.1.0"
"""Of the package too: pyproject.toml reads it from here, without running any of this."""

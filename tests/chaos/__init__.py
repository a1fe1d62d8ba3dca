"""Faults at random moments, and a checker that knows what must be seen nevertheless.

See `python -m tests.chaos --help` and docs/internals.md.
"""

"""Whether a process still runs: its id and when it began, from /proc."""

from __future__ import annotations

from pathlib import Path


def process_started(pid: int) -> float:
    """When a process began; 0 when there is no such process, or none that runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0.0
    return started_at(stat)


def started_at(stat: str) -> float:
    """Field 22 of /proc/<pid>/stat: clock ticks since the machine's start; 0: it is over."""
    after_name = stat.rpartition(")")[2].split()
    # A killed process that nobody has waited for yet is still listed, as a zombie.
    if len(after_name) < 20 or after_name[0] in "ZX" or not after_name[19].isdecimal():
        return 0.0
    return float(after_name[19])

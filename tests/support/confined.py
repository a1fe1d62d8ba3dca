"""Run a command under what a unit's seccomp settings leave, without systemd as pid 1.

    python -m tests.support.confined UNIT COMMAND [ARGUMENT …]

Done with libseccomp, which systemd itself uses: SystemCallFilter=, RestrictAddressFamilies=
and MemoryDenyWriteExecute= of the unit; all else is refused with EPERM.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1
EQUAL, MASKED_EQUAL = 4, 7
NO_NEW_PRIVS = 38
WRITE, EXEC = 2, 4
PROT = 2  # the argument of mmap and mprotect


class Compare(ctypes.Structure):
    """scmp_arg_cmp: one condition on one argument."""

    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


def directives(unit: str, name: str) -> list[str]:
    """The values of a directive, in order."""
    lines = Path(unit).read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def group(name: str) -> set[str]:
    """The system calls of a group such as @system-service."""
    command = ["systemd-analyze", "syscall-filter", "--no-pager", name]
    lines = subprocess.check_output(command, text=True).splitlines()[1:]
    names = {line.strip() for line in lines if line.strip() and not line.strip().startswith("#")}
    return expand(names)


def expand(names: set[str]) -> set[str]:
    """Groups in a set replaced by their calls."""
    groups = {name for name in names if name.startswith("@")}
    return (names - groups).union(*map(group, groups))


def allowed(unit: str) -> set[str]:
    """What the unit's SystemCallFilter lines leave; @default always is."""
    found = group("@default")
    for value in directives(unit, "SystemCallFilter"):
        names = expand(set(value.removeprefix("~").split()))
        found = found - names if value.startswith("~") else found | names
    return found


def behind(unit: str, home: Path, state: Path) -> list[str]:
    """What to put before a command so that it has Hermes' home as the unit's ProtectHome= leaves
    it, and its state directory as a mount of its own, as systemd makes it."""
    script = {
        "read-only": 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"',
        "yes": 'mount -t tmpfs -o ro,mode=0 none "$0"',
    }[directives(unit, "ProtectHome")[-1]]
    script += f" && mount --bind {shlex.quote(str(state))} {shlex.quote(str(state))}"
    return ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', str(home)]


def conditions(unit: str) -> dict[str, list[Compare]]:
    """Calls that are allowed only with certain arguments; one rule for each condition."""
    families = directives(unit, "RestrictAddressFamilies")[-1].split()
    found = {"socket": [Compare(0, EQUAL, getattr(socket, name)) for name in families]}
    if directives(unit, "MemoryDenyWriteExecute") == ["yes"]:
        either = [Compare(PROT, MASKED_EQUAL, WRITE | EXEC, kind) for kind in (0, WRITE, EXEC)]
        found["mmap"] = either
        found["mprotect"] = [Compare(PROT, MASKED_EQUAL, EXEC, 0)]
    return found


def confine(unit: str) -> None:
    """Load the filter into this process, for good."""
    names, special = allowed(unit), conditions(unit)
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(REFUSE)))
    for name in sorted(names):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            continue  # not one of this machine
        for condition in special.get(name, [None]):
            library.seccomp_rule_add_array(
                context,
                ctypes.c_uint32(ALLOW),
                number,
                0 if condition is None else 1,
                None if condition is None else ctypes.byref(condition),
            )
    assert ctypes.CDLL(None).prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert library.seccomp_load(context) == 0, os.strerror(ctypes.get_errno())


if __name__ == "__main__":
    confine(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])

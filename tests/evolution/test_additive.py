"""What was released stays: error codes, close codes, migrations; all may be added to."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from loomid.database import MIGRATIONS
from loomid.errors import PhoneError
from loomid.lmp.session import Code

FATAL = "internal hello_timeout token_expired token_used unauthorized unsupported_version"
MAY_HAVE_RUN = "already_resolved gateway_error internal outcome_unknown"
OTHERS = """bad_choice bad_frame bad_json gateway_offline not_permitted rate_limited
    request_id_reused reserved_text run_not_active storage_failing too_large unknown_approval
    unknown_run unknown_task unknown_type"""
CLOSE_CODES = {
    1001, 1002, 1007, 1009, 1011, 4000, 4001, 4002, 4003, 4004, 4005, 4006,
}  # fmt: skip
MIGRATED = {
    1: "65ceeafdb7dae413",
    2: "288e36c3b528acb7",
}
"""Schema version → what has led to it, as a digest: databases out there have taken that way."""
ADDS = re.compile(r"CREATE (UNIQUE )?(TABLE|INDEX) \w|ALTER TABLE \w+ ADD COLUMN \w|INSERT INTO \w")


def test_error_codes_of_1_0() -> None:
    """An app may rely on each: that it is sent, whether it ends the connection, what has run."""
    codes = {*FATAL.split(), *MAY_HAVE_RUN.split(), *OTHERS.split()}
    assert codes - set(PhoneError.codes) == set()
    fatal = {code for code in codes if PhoneError.codes[code].fatal}
    may_have_run = {code for code in codes if not PhoneError.codes[code].proves_nothing_ran}
    assert (fatal, may_have_run) == (set(FATAL.split()), set(MAY_HAVE_RUN.split()))


def test_close_codes_of_1_0() -> None:
    assert {value for name, value in vars(Code).items() if name.isupper()} >= CLOSE_CODES


@pytest.mark.parametrize("number", MIGRATED)
def test_a_migration_stays_as_it_was(number: int) -> None:
    text = "\n".join(" ".join(statement.split()) for statement in MIGRATIONS[number - 1])
    assert sha256(text.encode()).hexdigest()[:16] == MIGRATED[number]


def test_later_migrations_only_add() -> None:
    later = [statement for step in MIGRATIONS[len(MIGRATED) :] for statement in step]
    assert [statement for statement in later if not ADDS.match(statement)] == []
    for statement in later:
        if "ADD COLUMN" in statement and "NOT NULL" in statement:
            assert "DEFAULT" in statement

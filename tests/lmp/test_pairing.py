"""Secrets show themselves nowhere; minting and comparing do what LMP §3 asks."""

import copy
import pickle

import pytest

from loomid.lmp import pairing
from loomid.lmp.pairing import Secret

RANDOM = bytes(range(32))


def test_a_secret_is_32_random_bytes_urlsafe():
    value = pairing.mint(RANDOM).reveal()
    assert len(value) == 43
    assert set(value) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    with pytest.raises(ValueError, match="32"):
        pairing.mint(b"short")


def test_a_secret_shows_only_its_fingerprint():
    secret = pairing.mint(RANDOM)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>10}", "%s" % secret]  # noqa: UP031
    shown.append(repr({"token": secret}))
    assert all(secret.reveal() not in text for text in shown)
    assert repr(secret) == pairing.digest(secret.reveal()).hex()[:8]
    assert len(repr(secret)) == 8


def test_a_secret_cannot_be_pickled_or_copied():
    secret = pairing.mint(RANDOM)
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(secret)
    with pytest.raises(TypeError):
        hash(secret)


def test_secrets_compare_by_value():
    assert pairing.mint(RANDOM) == pairing.mint(RANDOM)
    assert pairing.mint(RANDOM) != pairing.mint(RANDOM[::-1])
    assert Secret("x") != "x"
    assert pairing.matches("x", pairing.digest("x"))
    assert not pairing.matches("\ud800", pairing.digest("x"))


def test_device_ids_hold_at_least_48_bits():
    assert pairing.device_id(b"123456") == "dev_313233343536"
    with pytest.raises(ValueError, match="48"):
        pairing.device_id(b"12345")


def test_penalties_grow_and_end():
    waits = [pairing.penalty(n) for n in range(12)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == 4.0

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.spec.accepted import Vault, VaultClosed

KEY, OTHER = os.urandom(32), os.urandom(32)
secrets = st.dictionaries(st.text(max_size=8), st.text(max_size=40), max_size=4)


@given(secrets)
def test_sealed_secrets_open_for_their_job(given_secrets: dict[str, str]) -> None:
    sealed = Vault([KEY]).seal("j1", given_secrets, random=os.urandom)
    assert Vault([KEY]).open("j1", sealed) == given_secrets


@given(secrets, st.data())
def test_modified_sealed_secrets_do_not_open(
    given_secrets: dict[str, str], data: st.DataObject
) -> None:
    sealed = bytearray(Vault([KEY]).seal("j1", given_secrets, random=os.urandom))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(VaultClosed):
        Vault([KEY]).open("j1", bytes(sealed))


@pytest.mark.parametrize("sealed", [b"", b"short", os.urandom(60)], ids=["empty", "short", "noise"])
def test_unsealed_text_does_not_open(sealed: bytes) -> None:
    with pytest.raises(VaultClosed):
        Vault([KEY]).open("j1", sealed)


def test_secrets_of_one_job_do_not_open_for_another() -> None:
    sealed = Vault([KEY]).seal("j1", {"a": "b"}, random=os.urandom)
    with pytest.raises(VaultClosed):
        Vault([KEY]).open("j2", sealed)


def test_a_new_key_seals_and_the_old_one_still_opens() -> None:
    sealed = Vault([OTHER]).seal("j1", {"a": "b"}, random=os.urandom)
    assert Vault([KEY, OTHER]).open("j1", sealed) == {"a": "b"}
    with pytest.raises(VaultClosed):
        Vault([KEY]).open("j1", sealed)


def test_equal_secrets_are_recognised_after_a_key_rotation() -> None:
    fingerprint = Vault([OTHER]).fingerprint("j1", {"a": "b"})
    rotated = Vault([KEY, OTHER])
    assert rotated.matches("j1", {"a": "b"}, fingerprint)
    assert not rotated.matches("j1", {"a": "c"}, fingerprint)
    assert not rotated.matches("j2", {"a": "b"}, fingerprint)
    assert not Vault([KEY]).matches("j1", {"a": "b"}, fingerprint)


def test_the_store_alone_reveals_no_secret() -> None:
    vault = Vault([KEY])
    assert b"hunter2" not in vault.seal("j1", {"a": "hunter2"}, random=os.urandom)
    assert repr(vault) == "Vault(…)"

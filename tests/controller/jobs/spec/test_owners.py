from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.spec.model import Owner, OwnerKey, owner_key
from controller.plugins.fair_share import owned_name, owner_hash
from controller.site.owner_shares import LONGEST_PREFIX

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=255)
OWNERS = st.builds(OwnerKey, st.sampled_from(["user", "project"]), NAMES)
PREFIXES = st.from_regex(rf"[a-z]([-a-z0-9]{{0,{LONGEST_PREFIX - 2}}}[a-z0-9])?", fullmatch=True)
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@given(OWNERS)
def test_owner_labels_round_trip(owner: OwnerKey) -> None:
    assert json.loads(owner.encode()) == {owner.kind: owner.name}


@given(OWNERS, PREFIXES)
def test_any_name_makes_a_dns_label(owner: OwnerKey, prefix: str) -> None:
    name = owned_name(owner, instance="demo", prefix=prefix)
    assert DNS_LABEL.fullmatch(name)
    assert name.startswith(f"{prefix}-")
    assert name.endswith(owner_hash(owner, instance="demo"))


@given(st.lists(OWNERS, unique=True, min_size=2, max_size=20))
def test_two_owners_never_have_one_name(owners: list[OwnerKey]) -> None:
    names = {owned_name(owner, instance="demo", prefix="f") for owner in owners}
    assert len(names) == len(owners)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OwnerKey("user", "ada"), OwnerKey("project", "ada")),
        (OwnerKey("user", "Ada"), OwnerKey("user", "ada")),
        (OwnerKey("user", "ada "), OwnerKey("user", "ada")),
        (OwnerKey("user", "a-b"), OwnerKey("user", "a.b")),
        (OwnerKey("user", "\N{LATIN SMALL LETTER E WITH ACUTE}"), OwnerKey("user", "e\u0301")),
    ],
)
def test_similar_owner_names_stay_distinct(one: OwnerKey, other: OwnerKey) -> None:
    assert owned_name(one, instance="x", prefix="f") != owned_name(other, instance="x", prefix="f")


def test_two_installations_never_share_a_namespace() -> None:
    owner = OwnerKey("user", "ada")
    assert owner_hash(owner, instance="a") != owner_hash(owner, instance="b")


def test_derived_names_are_stable() -> None:
    # If this name changed, every owner would get a second namespace.
    owner = OwnerKey("project", "Sun & Moon")
    assert owned_name(owner, instance="default", prefix="fumarole") == (
        "fumarole-p-sun-moon-6tjmanlg4mzhdyd3toes"
    )


def test_a_project_owns_its_jobs_for_any_user() -> None:
    assert owner_key(Owner(user="ada", project="sun")) == OwnerKey("project", "sun")
    assert owner_key(Owner(user="ada")) == OwnerKey("user", "ada")

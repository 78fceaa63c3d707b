"""Owners, and the names of what each has in the cluster: a namespace and a queue.

A job's owner is its project, or its user where it has none. Their names may be any text of up to
255 characters, a namespace's name is a DNS label of 63: so the name is made of a readable part,
which decides nothing, and 100 bits of SHA-256 over instance, kind and name, which decide. What
stands on the object as an annotation says the owner in full, and is compared before the object is
used: two owners never share one, not even if their hashes met.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final, Literal

from controller.jobs.spec.model import Owner

OWNER_ANNOTATION: Final = "fumarole.dev/owner"
OWNER_LABEL: Final = "fumarole.dev/owner"

LONGEST_PREFIX: Final = 20
_HASH_LENGTH: Final = 20
_LONGEST_NAME: Final = 63
_LETTER: Final = {"user": "u", "project": "p"}
_OTHER: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """Whose a job is, as far as shares, names and peers are concerned."""

    kind: Literal["user", "project"]
    name: str

    def encode(self) -> str:
        """Return the owner as it stands in annotations and in the store."""
        return json.dumps({self.kind: self.name}, separators=(",", ":"))


def owner_key(owner: Owner) -> OwnerKey:
    """Return the project, or the user where there is none."""
    if owner.project is not None:
        return OwnerKey("project", owner.project)
    return OwnerKey("user", owner.user)


def owner_hash(owner: OwnerKey, *, instance: str) -> str:
    """Return what tells the owner's objects from all others: a part of a DNS label."""
    # JSON: whatever the names hold, no two triples are the same text.
    text = json.dumps([instance, owner.kind, owner.name]).encode()
    return base64.b32encode(hashlib.sha256(text).digest()).decode().lower()[:_HASH_LENGTH]


def owned_name(owner: OwnerKey, *, instance: str, prefix: str) -> str:
    """Return the name of the owner's namespace and queue: a DNS label."""
    ending = owner_hash(owner, instance=instance)
    beginning = f"{prefix}-{_LETTER[owner.kind]}"
    room = _LONGEST_NAME - len(beginning) - len(ending) - 2
    readable = _OTHER.sub("-", owner.name.lower())[:room].strip("-")
    return "-".join(part for part in (beginning, readable, ending) if part)

"""Records the requests to the server: each kind of request of each user once."""

import json
from pathlib import Path
from typing import Final

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.requests import Target

FILE: Final = "asked.jsonl"


class Audit:
    """Appends a line to a file: user, request without the object's name, and status."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[tuple[str, str, str, str, str, bool, bool]] = set()

    def note(self, user: User, verb: str, target: Target, *, dry_run: bool, allowed: bool) -> None:
        """Record the request of *user*, unless an equal one was recorded before."""
        what = target.group, target.resource, target.namespace
        asked = (user.name, verb, *what, dry_run, allowed)
        if asked in self._seen:
            return
        self._seen.add(asked)
        names = ("user", "verb", "group", "resource", "namespace", "dry_run", "allowed")
        with self._path.open("a") as file:
            file.write(json.dumps(dict(zip(names, asked, strict=True))) + "\n")

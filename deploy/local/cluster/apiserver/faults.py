"""Faults that a real API server has now and then, at the rates that a test requests."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.errors import ApiError, expired
from deploy.local.cluster.apiserver.requests import Target

FAULTS: Final[Mapping[str, str]] = {
    "409": "an update or a patch is refused as if the object had changed, and a creation as if a"
    " ResourceQuota of its namespace had",
    "410": "a watch begins with an ERROR event: its revision is too old",
    "429": "a request is refused, with Retry-After",
    "500": "a request is refused; nothing was done",
    "503": "a request is refused; nothing was done",
    "cut": "before each event of a watch: the connection ends in the middle of the event",
    "lost": "a request is done, and the connection ends before the answer",
}
_SPARED: Final = ("system:masters", "system:nodes", "system:serviceaccounts:volcano-system")
_REFUSALS: Final = {
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: etcdserver: request timed out",
    503: "the server is currently unable to handle the request",
}


class Faults:
    """Decides when a fault occurs, and for which user.

    Args:
        chance: Chooses the moments.
        rates: The faults, keys of `FAULTS`, and how often each occurs, from 0 to 1.
        spare: Whether administrators and the cluster's own programs are spared. Without it only
            kubelets are.
    """

    def __init__(
        self, chance: random.Random, rates: Mapping[str, float], *, spare: bool = True
    ) -> None:
        self._chance = chance
        self._rates = dict(rates)
        self._spared = _SPARED if spare else ("system:nodes",)

    def read(self, path: Path) -> None:
        """Read other rates from a JSON file; without the file there are no faults."""
        self._rates = json.loads(path.read_text()) if path.exists() else {}

    def refuse(self, verb: str, target: Target, user: User, *, quotas: Iterable[str] = ()) -> None:
        """Refuse a request now and then, before anything is done.

        Args:
            verb: What is requested.
            target: Of which object.
            user: By which user.
            quotas: The names of the ResourceQuotas in its namespace.

        Raises:
            ApiError: As `FAULTS` defines it.
        """
        for code, message in _REFUSALS.items():
            if self.happens(str(code), user):
                # Priority and Fairness answers in plain text.
                busy = code == 429
                headers = {"Retry-After": "1"} if busy else {}
                raise ApiError(code, message, headers=headers, is_plain=busy)
        resource = f"{target.plural}.{target.group}" if target.group else target.plural
        changed = [(resource, target.name)] if verb in ("update", "patch") else []
        if verb == "create":
            # Two creations at once update the same quota.
            changed = [("resourcequotas", name) for name in quotas]
        if changed and self.happens("409", user):
            kind, name = changed[0]
            raise ApiError(
                409,
                f'Operation cannot be fulfilled on {kind} "{name}": the object has '
                f"been modified; please apply your changes to the latest version and try again",
            )

    def expire(self, user: User, revision: int) -> None:
        """End a watch at its start now and then.

        Raises:
            ApiError: 410.
        """
        if self.happens("410", user):
            raise expired(revision, revision + 1)

    def happens(self, fault: str, user: User) -> bool:
        """Whether *fault* occurs for *user* now."""
        rate = self._rates.get(fault, 0.0)
        if not rate or any(group in user.groups for group in self._spared):
            return False
        return self._chance.random() < rate

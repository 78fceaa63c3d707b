"""Trouble that a real API server makes now and then, at rates that somebody asked for."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.errors import ApiError, expired
from deploy.local.cluster.apiserver.requests import Target

FAULTS: Final[Mapping[str, str]] = {
    "409": "an update or a patch is refused as if the object had changed",
    "410": "a watch begins with an ERROR event: its revision is too old",
    "429": "a request is refused, with Retry-After",
    "500": "a request is refused; nothing was done",
    "503": "a request is refused; nothing was done",
    "cut": "before each event of a watch: the connection ends in the middle of the event",
    "lost": "a request is done, and the connection ends before the answer",
}
_SPARED: Final = ("system:masters", "system:nodes", "system:serviceaccounts:volcano-system")
_REFUSALS: Final = {
    429: "the server has received too many requests and has asked us to try again later",
    500: "Internal error occurred: etcdserver: request timed out",
    503: "the server is currently unable to handle the request",
}


class Faults:
    """Decides when something goes wrong, and for whom.

    Args:
        chance: Where the moments come from.
        rates: What is to happen, a key of `FAULTS`, and how often, from 0 to 1.
        spare: Whether administrators and the cluster's own programs see nothing of it; else
            only kubelets do not.
    """

    def __init__(
        self, chance: random.Random, rates: Mapping[str, float], *, spare: bool = True
    ) -> None:
        self._chance = chance
        self._rates = dict(rates)
        self._spared = _SPARED if spare else ("system:nodes",)

    def read(self, path: Path) -> None:
        """Take other rates from a file of JSON; without one everything goes well."""
        self._rates = json.loads(path.read_text()) if path.exists() else {}

    def refuse(self, verb: str, target: Target, user: User) -> None:
        """Refuse a request now and then, before anything is done.

        Raises:
            ApiError: As `FAULTS` says.
        """
        for code, message in _REFUSALS.items():
            if self.happens(str(code), user):
                raise ApiError(code, message, headers={"Retry-After": "1"} if code == 429 else {})
        if verb in ("update", "patch") and self.happens("409", user):
            resource = f"{target.plural}.{target.group}" if target.group else target.plural
            raise ApiError(
                409,
                f'Operation cannot be fulfilled on {resource} "{target.name}": the object has '
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
        """Whether *fault* befalls *user* now."""
        rate = self._rates.get(fault, 0.0)
        if not rate or any(group in user.groups for group in self._spared):
            return False
        return self._chance.random() < rate

"""Who is asking."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import Object

_OPEN_TO_ALL: Final = ("/healthz", "/livez", "/readyz", "/version")


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may be asking; *rules* are those of RBAC roles."""

    name: str
    groups: tuple[str, ...] = ()
    rules: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def info(self) -> Object:
        """This user as an AdmissionReview names them."""
        return {"username": self.name, "groups": [*self.groups, "system:authenticated"]}


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class Doorkeeper:
    """Knows the users by their tokens, of which it keeps digests only."""

    def __init__(self, tokens: Iterable[tuple[str, User]]) -> None:
        self._users = {_digest(token): user for token, user in tokens}
        self._ends: dict[bytes, datetime] = {}

    def issue(self, user: User, ends: datetime) -> str:
        """Return a new token that makes its bearer *user* until it *ends*."""
        token = secrets.token_urlsafe(32)
        self._users[_digest(token)] = user
        self._ends[_digest(token)] = ends
        return token

    def identify(self, authorization: str | None) -> User:
        """Return who sent this header.

        Raises:
            ApiError: 401 for a credential that is nobody's, or nobody's any more.
        """
        if authorization is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        # Looked up by digest, so that timing tells nothing about a token.
        digest = _digest(token.strip())
        user = self._users.get(digest) if scheme.lower() == "bearer" else None
        ends = self._ends.get(digest)
        if user is None or (ends is not None and ends <= datetime.now(UTC)):
            raise ApiError(401, "Unauthorized")
        return user


def check_path(user: User, verb: str, path: str) -> None:
    """Refuse paths that are not resources to whoever did not say who they are.

    Raises:
        ApiError: 403.
    """
    if user is ANONYMOUS and path not in _OPEN_TO_ALL:
        message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        raise ApiError(403, message, details={})


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

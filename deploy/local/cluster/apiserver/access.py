"""Identifies users by their tokens."""

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import Object

_OPEN_TO_ALL: Final = ("/healthz", "/livez", "/readyz", "/version")


@dataclass(frozen=True, slots=True)
class User:
    """A user; *rules* are those of RBAC roles."""

    name: str
    groups: tuple[str, ...] = ()
    rules: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def info(self) -> Object:
        """This user in the format of an AdmissionReview."""
        return {"username": self.name, "groups": [*self.groups, "system:authenticated"]}


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount that a token was issued for."""

    namespace: str
    name: str
    uid: str


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class AccessControl:
    """Knows the users by their tokens. It keeps only digests of the tokens."""

    def __init__(
        self, tokens: Iterable[tuple[str, User]], alive: Callable[[Account], bool]
    ) -> None:
        self._users = {_digest(token): user for token, user in tokens}
        self._alive = alive
        self._issued: dict[bytes, tuple[Account, datetime]] = {}

    def issue(self, user: User, account: Account, ends: datetime) -> str:
        """Return a new token for *user*, valid until it *ends* or the account is deleted.

        The token has the format of a JWT, but its signature is random and nobody verifies it.
        """
        claims = {
            "aud": ["embedded"],
            "exp": int(ends.timestamp()),
            "iat": int(datetime.now(UTC).timestamp()),
            "iss": "https://kubernetes.default.svc",
            "jti": secrets.token_hex(16),
            "kubernetes.io": {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
            "nbf": int(datetime.now(UTC).timestamp()),
            "sub": user.name,
        }
        parts = [_part({"alg": "RS256", "kid": "embedded"}), _part(claims)]
        token = ".".join([*parts, secrets.token_urlsafe(32)])
        self._users[_digest(token)] = user
        self._issued[_digest(token)] = account, ends
        return token

    def identify(self, authorization: str | None) -> User:
        """Return the user who sent this header.

        Raises:
            ApiError: 401 for a credential that is unknown, or no longer valid.
        """
        if authorization is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        # Looked up by digest, so that the time taken reveals nothing about a token.
        digest = _digest(token.strip())
        user = self._users.get(digest) if scheme.lower() == "bearer" else None
        account, ends = self._issued.get(digest, (None, None))
        over = ends is not None and ends <= datetime.now(UTC)
        # A real server checks every ten seconds whether the account still exists.
        if user is None or over or (account is not None and not self._alive(account)):
            raise ApiError(401, "Unauthorized")
        return user


def check_path(user: User, verb: str, path: str) -> None:
    """Refuse paths other than resources to anonymous users.

    Raises:
        ApiError: 403.
    """
    if user is ANONYMOUS and path not in _OPEN_TO_ALL:
        message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        raise ApiError(403, message, details={})


def _part(value: Object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

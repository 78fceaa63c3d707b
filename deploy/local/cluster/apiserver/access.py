"""Who is asking, and whether they may."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Whether a rule allows *verb* on *resource* (``plural/subresource``)."""
        return "system:masters" in self.groups or any(
            _covers(rule, "verbs", verb)
            and _covers(rule, "apiGroups", group)
            and _covers(rule, "resources", resource)
            for rule in self.rules
        )


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


class Doorkeeper:
    """Knows the users by their tokens, of which it keeps digests only."""

    def __init__(self, tokens: Iterable[tuple[str, User]]) -> None:
        self._users = {_digest(token): user for token, user in tokens}

    def identify(self, authorization: str | None) -> User:
        """Return who sent this header.

        Raises:
            ApiError: 401 for a credential that is nobody's.
        """
        if authorization is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        # Looked up by digest, so that timing tells nothing about a token.
        user = self._users.get(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized")
        return user


def check_resource(
    user: User, verb: str, group: str, resource: str, namespace: str, name: str
) -> None:
    """Refuse what no rule of *user* allows.

    Raises:
        ApiError: 403.
    """
    if user.may(verb, group, resource):
        return
    plural = resource.partition("/")[0]
    qualified = f"{plural}.{group}" if group else plural
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    subject = f'{qualified} "{name}"' if name else qualified
    raise ApiError(
        403,
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource "{resource}" in API '
        f'group "{group}" {scope}',
        details={k: v for k, v in (("name", name), ("group", group), ("kind", plural)) if v},
    )


def check_path(user: User, verb: str, path: str) -> None:
    """Refuse paths that are not resources to whoever did not say who they are.

    Raises:
        ApiError: 403.
    """
    if user is ANONYMOUS and path not in _OPEN_TO_ALL:
        message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        raise ApiError(403, message, details={})


def _covers(rule: Mapping[str, Any], field_name: str, wanted: str) -> bool:
    values = rule.get(field_name) or ()
    return wanted in values or "*" in values


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

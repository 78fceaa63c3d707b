"""Answers about who one is: tokens of ServiceAccounts, and what one may do."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import Object
from deploy.local.cluster.apiserver.rbac import may
from deploy.local.cluster.apiserver.store import Store

AUTHORIZATION: Final = "authorization.k8s.io"
_SHORTEST_SECONDS, _DEFAULT_SECONDS = 600, 3600
Issue = Callable[[User, datetime], str]


def account_user(namespace: str, name: str) -> User:
    """Return who a token of a ServiceAccount makes one."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


def answer_token_request(body: Object, namespace: str, name: str, issue: Issue) -> Object:
    """Return a TokenRequest with a token for the ServiceAccount.

    Raises:
        ApiError: 422 for a life that is too short.
    """
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds") or _DEFAULT_SECONDS
    if seconds < _SHORTEST_SECONDS:
        raise ApiError(
            422,
            f"TokenRequest.authentication.k8s.io is invalid: spec.expirationSeconds: Invalid "
            f"value: {seconds}: may not specify a duration less than 10 minutes",
        )
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    token = issue(account_user(namespace, name), ends)
    stamp = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"audiences": ["embedded"], **spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": stamp},
    }


def answer_access_review(body: Object, user: User, store: Store) -> Object:
    """Return a SelfSubjectAccessReview that says whether *user* may do what it asks about."""
    asked = (body.get("spec") or {}).get("resourceAttributes") or {}
    resource = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
    allowed = may(
        store,
        user,
        asked.get("verb", ""),
        asked.get("group", ""),
        resource,
        asked.get("namespace", ""),
        asked.get("name", ""),
    )
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": f"{AUTHORIZATION}/v1",
        "metadata": {},
        "spec": body.get("spec") or {},
        "status": {"allowed": allowed},
    }

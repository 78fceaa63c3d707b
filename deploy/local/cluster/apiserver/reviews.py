"""Identities and rights on request: tokens of ServiceAccounts, and reviews."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from deploy.local.cluster.apiserver.access import Account, User
from deploy.local.cluster.apiserver.errors import ApiError, no_such_resource
from deploy.local.cluster.apiserver.kinds import Object
from deploy.local.cluster.apiserver.rbac import check_resource, may, rules_of
from deploy.local.cluster.apiserver.requests import Target
from deploy.local.cluster.apiserver.store import Store, Stored

_AUTHORIZATION: Final = "authorization.k8s.io"
_AUTHENTICATION: Final = "authentication.k8s.io"
REVIEWS: Final = (_AUTHORIZATION, _AUTHENTICATION)
_ACCOUNTS: Final = ("", "serviceaccounts")
_SHORTEST_SECONDS, _DEFAULT_SECONDS = 600, 3600
Issue = Callable[[User, Account, datetime], str]
Identify = Callable[[str], User]


def account_user(namespace: str, name: str) -> User:
    """Return the user of a ServiceAccount's token."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


def is_alive(store: Store, account: Account) -> bool:
    """Whether the same account still exists, and not a new one with its name."""
    stored = store.get(_ACCOUNTS, account.namespace, account.name)
    return stored is not None and stored.value["metadata"]["uid"] == account.uid


def answer_token_request(body: Object, account: Stored, issue: Issue) -> Object:
    """Return a TokenRequest with a token for the ServiceAccount.

    Raises:
        ApiError: 422 for a lifetime that is too short.
    """
    spec, metadata = body.get("spec") or {}, account.value["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    seconds = spec.get("expirationSeconds") or _DEFAULT_SECONDS
    if seconds < _SHORTEST_SECONDS:
        raise ApiError(
            422,
            f"TokenRequest.authentication.k8s.io is invalid: spec.expirationSeconds: Invalid "
            f"value: {seconds}: may not specify a duration less than 10 minutes",
        )
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    user = account_user(namespace, name)
    token = issue(user, Account(namespace, name, metadata["uid"]), ends)
    stamp = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{_AUTHENTICATION}/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"audiences": ["embedded"], **spec, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": stamp},
    }


def answer_review(
    target: Target, body: Object, user: User, store: Store, identify: Identify
) -> Object:
    """Return the requested review, with its status.

    Raises:
        ApiError: 404 for another kind of review, 403 for a review about others without the right.
    """
    spec = body.get("spec") or {}
    match target.group, target.plural:
        case ("authorization.k8s.io", "selfsubjectaccessreviews"):
            kind, status = "SelfSubjectAccessReview", _access(spec, user, store)
        case ("authorization.k8s.io", "subjectaccessreviews"):
            check_resource(store, user, "create", target.group, target.plural, "", "")
            about = User(str(spec.get("user", "")), tuple(spec.get("groups") or ()))
            kind, status = "SubjectAccessReview", _access(spec, about, store)
        case ("authorization.k8s.io", "selfsubjectrulesreviews"):
            kind, status = "SelfSubjectRulesReview", _rules(spec, user, store)
        case ("authentication.k8s.io", "selfsubjectreviews"):
            kind, status = "SelfSubjectReview", {"userInfo": user.info}
        case ("authentication.k8s.io", "tokenreviews"):
            check_resource(store, user, "create", target.group, target.plural, "", "")
            kind, status = "TokenReview", _bearer(spec, identify)
        case _:
            raise no_such_resource()
    head = {"kind": kind, "apiVersion": f"{target.group}/v1", "metadata": {}}
    return {**head, "spec": spec, "status": status}


def _access(spec: Object, user: User, store: Store) -> Object:
    asked = spec.get("resourceAttributes") or {}
    resource = "/".join(filter(None, (asked.get("resource", ""), asked.get("subresource", ""))))
    what = (asked.get("group", ""), resource, asked.get("namespace", ""), asked.get("name", ""))
    return {"allowed": may(store, user, asked.get("verb", ""), *what)}


def _rules(spec: Object, user: User, store: Store) -> Object:
    everything: list[Object] = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    own = [dict(rule) for rule in rules_of(store, user, spec.get("namespace", ""))]
    rules = everything if "system:masters" in user.groups else own
    return {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}


def _bearer(spec: Object, identify: Identify) -> Object:
    try:
        user = identify(f"Bearer {spec.get('token', '')}")
    except ApiError:
        return {"authenticated": False, "user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": user.info, "audiences": ["embedded"]}

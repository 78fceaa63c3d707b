"""The rights of users: their own rules, and those of role bindings in the store."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deploy.local.cluster.apiserver.access import ANONYMOUS, User
from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import RBAC, Kind, Object
from deploy.local.cluster.apiserver.store import Store

Rule = Mapping[str, Any]
_BINDINGS: Final = ("rolebindings", "clusterrolebindings")
_ROLES: Final = ("roles", "clusterroles")


def rules_of(store: Store, user: User, namespace: str) -> Iterator[Rule]:
    """Yield every rule that *user* has in *namespace*, or without one in the whole cluster."""
    yield from user.rules
    bindings = store.items((RBAC, "clusterrolebindings"))
    if namespace:
        bindings += store.items((RBAC, "rolebindings"), namespace)
    for stored in bindings:
        binding = stored.value
        if any(_is_meant(subject, user) for subject in binding.get("subjects") or []):
            yield from role_rules(store, binding)


def role_rules(store: Store, binding: Object) -> list[Rule]:
    """Return the rules of the role that *binding* refers to; none if the role does not exist."""
    reference = binding.get("roleRef") or {}
    if reference.get("kind") == "ClusterRole":
        role = store.get((RBAC, "clusterroles"), "", reference.get("name", ""))
    else:
        namespace = binding["metadata"].get("namespace", "")
        role = store.get((RBAC, "roles"), namespace, reference.get("name", ""))
    return list(role.value.get("rules") or []) if role else []


def may(
    store: Store, user: User, verb: str, group: str, resource: str, namespace: str, name: str
) -> bool:
    """Whether *user* may do *verb* to *resource* (``plural/subresource``) with that name."""
    return "system:masters" in user.groups or any(
        _covers(rule, verb, group, resource, name) for rule in rules_of(store, user, namespace)
    )


def check_resource(
    store: Store, user: User, verb: str, group: str, resource: str, namespace: str, name: str
) -> None:
    """Refuse a request that no rule of *user* allows.

    Raises:
        ApiError: 403.
    """
    if may(store, user, verb, group, resource, namespace, name):
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


def check_grant(store: Store, kind: Kind, value: Object, user: User) -> None:
    """Refuse a role, or a binding to one, that grants more than *user* has.

    A user who may ``escalate`` the role, or ``bind`` it, need not have its rights.

    Raises:
        ApiError: 403.
    """
    if kind.group != RBAC or "system:masters" in user.groups:
        return
    namespace, name = value["metadata"].get("namespace", ""), value["metadata"].get("name", "")
    if kind.plural in _BINDINGS:
        reference = value.get("roleRef") or {}
        plural = f"{reference.get('kind', '').lower()}s"
        allowed = may(store, user, "bind", RBAC, plural, namespace, reference.get("name", ""))
        given = role_rules(store, value)
    elif kind.plural in _ROLES:
        allowed = may(store, user, "escalate", RBAC, kind.plural, namespace, name)
        given = list(value.get("rules") or [])
    else:
        return
    own = list(rules_of(store, user, namespace))
    if allowed or all(_is_within(rule, own) for rule in given):
        return
    raise ApiError(
        403,
        f'{kind.resource} "{name}" is forbidden: user "{user.name}" is attempting to grant RBAC '
        f"permissions not currently held",
    )


def _is_meant(subject: Object, user: User) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            everybody = () if user is ANONYMOUS else ("system:authenticated",)
            return subject["name"] in (*user.groups, *everybody)
        case "ServiceAccount":
            account = f"{subject.get('namespace')}:{subject['name']}"
            return user.name == f"system:serviceaccount:{account}"
    return False


def _covers(rule: Rule, verb: str, group: str, resource: str, name: str) -> bool:
    names = rule.get("resourceNames") or ()
    plural, _, subresource = resource.partition("/")
    spellings = [resource, "*", *([f"{plural}/*", f"*/{subresource}"] if subresource else [])]
    return (
        _has(rule, "verbs", verb, "*")
        and _has(rule, "apiGroups", group, "*")
        and _has(rule, "resources", *spellings)
        and (not names or name in names)
    )


def _has(rule: Rule, field: str, *spellings: str) -> bool:
    values = rule.get(field) or ()
    return any(spelling in values for spelling in spellings)


def _is_within(rule: Rule, own: list[Rule]) -> bool:
    """Whether the *own* rules allow everything that *rule* allows, each combination by one rule."""
    return all(
        any(_covers(mine, verb, group, resource, name) for mine in own)
        for verb in rule.get("verbs") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for name in rule.get("resourceNames") or ("",)
    )

"""Reads a URL path as Kubernetes does: kind, object and verb."""

from dataclasses import dataclass
from typing import Final

from deploy.local.cluster.apiserver.errors import method_not_allowed

_VERBS: Final = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path; *name* is empty for a collection."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """``plural`` or ``plural/subresource``, as rules write it."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def is_true(text: str | None) -> bool:
    """Whether a query's value is one of the spellings of true that Go accepts."""
    return text in ("1", "t", "T", "true", "TRUE", "True")


def parse_path(path: str) -> Target | None:
    """Return the target of *path*, or None if it is not a resource's path."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest] if rest:
            return _target("", version, rest)
        case ["apis", group, version, *rest] if rest:
            return _target(group, version, rest)
        case _:
            return None


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """Return the verb of this request in rules.

    Raises:
        ApiError: 405 for a request that is not served.
    """
    if target.subresource in ("exec", "binding", "eviction", "token"):
        verb = {"GET": "get", "POST": "create"}.get(method)
    else:
        verb = _VERBS.get((method, bool(target.name)))
    if verb is None:
        raise method_not_allowed()
    return "watch" if verb == "list" and watch else verb


def _target(group: str, version: str, parts: list[str]) -> Target | None:
    namespace = ""
    # A namespace itself is /namespaces/<name>, its content /namespaces/<name>/<plural>/…
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    if not 1 <= len(parts) <= 3 or not all(parts):
        return None
    plural, name, subresource = (*parts, "", "")[:3]
    return Target(group, version, plural, namespace, name, subresource)

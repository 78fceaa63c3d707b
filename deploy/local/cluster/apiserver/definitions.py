"""CustomResourceDefinitions: makes the kinds of each object, which the server then serves."""

from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.apiserver.errors import Problem
from deploy.local.cluster.apiserver.kinds import Columns, Kind, Object

DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")

_VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
"""The order in which a real server lists the verbs of custom kinds."""


def make_custom_kinds(definition: Object) -> Iterator[Kind]:
    """Yield a kind for each served version of *definition*."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        yield Kind(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            namespaced=spec["scope"] == "Namespaced",
            short=tuple(names.get("shortNames", ())),
            status="status" in subresources,
            generation=True,
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            columns=_columns(version),
            verbs=_VERBS,
            custom=True,
        )


def complete_definition(definition: Object, now: str) -> None:
    """Accept the names of *definition*, in place: no other definition could claim them here."""
    names = definition["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}
        for kind, reason in (
            ("NamesAccepted", "NoConflicts"),
            ("Established", "InitialNamesAccepted"),
        )
    ]
    versions = [v["name"] for v in definition["spec"]["versions"] if v.get("storage")]
    definition["status"] = {
        "acceptedNames": names,
        "conditions": conditions,
        "storedVersions": versions,
    }


def definition_problems(definition: Object) -> Iterator[Problem]:
    """Yield the problems that keep *definition* from being served."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    for field, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.versions", spec.get("versions")),
    ):
        if not value:
            yield Problem.required(field)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield Problem.unsupported("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"])
    expected = f"{names.get('plural')}.{spec.get('group')}"
    name = definition["metadata"]["name"]
    if name != expected:
        yield Problem.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _columns(version: dict[str, Any]) -> Columns:
    given = version.get("additionalPrinterColumns") or []
    own = tuple((column["name"], column["jsonPath"].lstrip(".")) for column in given)
    age = (
        () if any(title == "Age" for title, _ in own) else (("Age", "metadata.creationTimestamp"),)
    )
    return (("Name", "metadata.name"), *own, *age)

"""The server's description of itself: groups, resources, version, and OpenAPI."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from deploy.local.cluster.apiserver.kinds import Kind, Object

VERSION: Final[Object] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2+embedded",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}


def describe(parts: list[str], kinds: Iterable[Kind], address: str) -> Object | None:
    """Return the document at a path that is not a resource's, or None."""
    kinds = list(kinds)
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            return core_versions(address)
        case ["apis"]:
            return group_list(kinds)
        case ["openapi", "v2"]:
            return openapi_v2(kinds)
        case ["openapi", "v3"]:
            return openapi_index(kinds)
        case ["openapi", "v3", *rest]:
            return openapi_v3("/".join(rest), kinds)
        case ["apis", name]:
            return group(name, kinds)
        case ["api" | "apis", *rest]:
            return resource_list("/".join(rest), kinds)
        case _:
            return None


def core_versions(address: str) -> Object:
    """Return the response of /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(kinds: Iterable[Kind]) -> Object:
    """Return the response of /apis."""
    groups = sorted({kind.group for kind in kinds if kind.group})
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [group(name, kinds) for name in groups],
    }


def group(name: str, kinds: Iterable[Kind]) -> Object | None:
    """Return the response of /apis/<group>, or None if nothing is served there."""
    names = sorted({kind.version for kind in kinds if kind.group == name})
    if not names:
        return None
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in names]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def resource_list(api_version: str, kinds: Iterable[Kind]) -> Object | None:
    """Return the resources of one group and version, subresources among them, or None."""
    served = [kind for kind in kinds if kind.api_version == api_version]
    if not served:
        return None
    resources = [entry for kind in served for entry in _resources(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": resources,
    }


def _resources(kind: Kind) -> list[Object]:
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    subresources = [*(["status"] if kind.status else []), *kind.subresources]
    return [entry, *(_subresource(kind, name) for name in subresources)]


def _subresource(kind: Kind, name: str) -> Object:
    verbs = {"exec": ["create", "get"], "log": ["get"]}
    created = {"binding": "Binding", "eviction": "Eviction", "token": "TokenRequest"}
    # Clients that drain nodes look for eviction there.
    elsewhere = {"group": "policy", "version": "v1"} if name == "eviction" else {}
    return {
        **elsewhere,
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": created.get(name, kind.kind),
        "verbs": ["create"] if name in created else verbs.get(name, ["get", "patch", "update"]),
    }


def openapi_index(kinds: Iterable[Kind]) -> Object:
    """Return the response of /openapi/v3: the path of each group's document."""
    paths = {}
    for kind in kinds:
        path = _group_path(kind)
        digest = hashlib.sha256(repr((path, kind.schema)).encode()).hexdigest()[:16].upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def openapi_v3(path: str, kinds: Iterable[Kind]) -> Object | None:
    """Return the OpenAPI 3 document of a group and version, or None."""
    served = [kind for kind in kinds if _group_path(kind) == path]
    if not served:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": _all_paths(served),
        "components": {"schemas": {_model(kind): _schema(kind) for kind in served}},
    }


def openapi_v2(kinds: Iterable[Kind]) -> Object:
    """Return the OpenAPI 2 document of everything."""
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": _all_paths(kinds),
        "definitions": {_model(kind): _schema(kind) for kind in kinds},
    }


def _group_path(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _all_paths(kinds: Iterable[Kind]) -> Object:
    paths: Object = {}
    for kind in kinds:
        collection, item = _paths(kind)
        paths[collection] = {"post": _operation(kind, "post"), "get": _operation(kind, "list")}
        paths[item] = {verb: _operation(kind, verb) for verb in ("get", "put", "patch", "delete")}
    return paths


def _paths(kind: Kind) -> tuple[str, str]:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"/{_group_path(kind)}{scope}/{kind.plural}"
    return collection, f"{collection}/{{name}}"


def _operation(kind: Kind, verb: str) -> Object:
    names = ["dryRun", "fieldValidation"] if verb in ("post", "put", "patch") else []
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    return {
        "operationId": f"{verb}{kind.group}{kind.version}{kind.kind}",
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": _identity(kind),
    }


def _identity(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _model(kind: Kind) -> str:
    """Return a kind's name in reverse, as real servers do: ``sh.volcano.batch.v1alpha1.Job``."""
    parts = kind.group.split(".")[::-1] if kind.group else ["io", "k8s", "api", "core"]
    return ".".join((*parts, kind.version, kind.kind))


def _schema(kind: Kind) -> Object:
    schema: dict[str, Any] = dict(kind.schema or {"type": "object"})
    properties = dict(schema.get("properties") or {})
    if kind.schema is not None:
        properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        properties["metadata"] = {"type": "object"}
        schema["properties"] = properties
    schema["x-kubernetes-group-version-kind"] = [_identity(kind)]
    return schema

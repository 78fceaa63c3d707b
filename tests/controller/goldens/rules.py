"""Rules that every manifest must satisfy, checked on the manifest alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

Json = dict[str, Any]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_LABEL_KINDS: Final = ("Service", "Namespace")


def broken_rules(parts: Json) -> list[str]:
    """Return every violated rule, with its place."""
    return [
        *_names(parts),
        *_amounts(parts),
        *_references(parts),
        *_selectors(parts),
        *_secrets(parts),
        *_gang(parts["VolcanoJob"]["spec"]),
        *_ownership(parts),
    ]


def _pods(parts: Json) -> Iterator[tuple[Json, Json]]:
    for task in parts["VolcanoJob"]["spec"]["tasks"]:
        yield task, task["template"]


def _containers(template: Json) -> Iterator[Json]:
    yield from template["spec"].get("initContainers", [])
    yield from template["spec"]["containers"]


def _names(parts: Json) -> Iterator[str]:
    job = parts["VolcanoJob"]["metadata"]["name"]
    if not _LABEL.fullmatch(job) or len(job) > 59:
        yield f"{job} with -svc is no volume's name"
    for task, template in _pods(parts):
        host = f"{job}-{task['name']}-{task['replicas'] - 1}"
        if not _LABEL.fullmatch(host):
            yield f"{host} is no host name"
        for one in (*_containers(template), *template["spec"].get("volumes", [])):
            if not _LABEL.fullmatch(one["name"]):
                yield f"{one['name']} is no name"
    made = [(one["kind"], one["name"]) for one in parts["companions"]]
    if len(set(made)) != len(made):
        yield "two companions are one object"
    for kind, name in made:
        pattern = _LABEL if kind in _LABEL_KINDS else _SUBDOMAIN
        if not pattern.fullmatch(name):
            yield f"{name} is no {kind}'s name"
        # Volcano names the objects of any job <job>, <job>-svc or <job>-ssh; such names begin with
        # j-.
        if name.startswith("j-") and "." not in name:
            yield f"the {kind} {name} may be another job's"


def _amounts(parts: Json) -> Iterator[str]:
    for _, template in _pods(parts):
        for container in _containers(template):
            amounts = container.get("resources") or {}
            if not {"cpu", "memory"} <= amounts.get("limits", {}).keys():
                yield f"{container['name']} is not limited"
            requests = dict(amounts.get("requests") or {})
            # A request for ephemeral storage counts for a volume; as a limit it would bound all pod
            # writes.
            requests.pop("ephemeral-storage", None)
            if requests != amounts.get("limits"):
                yield f"{container['name']} requests other than its limits"


def _references(parts: Json) -> Iterator[str]:
    made = {(one["kind"], one["name"]) for one in parts["companions"] if one["when"] == "before"}
    for _, template in _pods(parts):
        volumes = {one["name"]: one for one in template["spec"].get("volumes", [])}
        mounted: set[str] = set()
        for container in _containers(template):
            paths = [one["mountPath"] for one in container.get("volumeMounts", [])]
            mounted |= {one["name"] for one in container.get("volumeMounts", [])}
            if len(set(paths)) != len(paths):
                yield f"{container['name']} has two mounts in one place"
        yield from (f"the volume {name} is missing" for name in mounted - volumes.keys())
        yield from (f"the volume {name} is mounted nowhere" for name in volumes.keys() - mounted)
        yield from _unmade(template, made)


def _unmade(template: Json, made: set[tuple[str, str]]) -> Iterator[str]:
    for found in _walk(template):
        for key, kind in (("configMap", "ConfigMap"), ("secretKeyRef", "Secret")):
            named = found.get(key)
            if isinstance(named, dict) and (kind, named["name"]) not in made:
                yield f"nobody makes the {kind} {named['name']}"


def _walk(value: Any) -> Iterator[Json]:
    within: list[Any] = []
    if isinstance(value, dict):
        yield value
        within = list(value.values())
    elif isinstance(value, list):
        within = value
    for one in within:
        yield from _walk(one)


def _selectors(parts: Json) -> Iterator[str]:
    labels = [
        {
            **template["metadata"]["labels"],
            "volcano.sh/task-spec": task["name"],
            "volcano.sh/task-index": str(index),
        }
        for task, template in _pods(parts)
        for index in range(task["replicas"])
    ]
    for one in parts["companions"]:
        spec = one.get("spec") or {}
        wanted = spec.get("selector") if one["kind"] == "Service" else None
        if one["kind"] == "NetworkPolicy":
            wanted = spec["podSelector"].get("matchLabels") or {}
            if not wanted:
                yield f"{one['name']} selects every pod of its namespace"
        chosen = [pod for pod in labels if wanted and wanted.items() <= pod.items()]
        if wanted and not chosen:
            yield f"{one['name']} selects none of the job's pods"
        if one["kind"] == "Service":
            yield from _behind(one, chosen, parts["VolcanoJob"]["metadata"]["labels"])


def _behind(service: Json, chosen: list[Json], own: Json) -> Iterator[str]:
    """Yield an error if a Service selects more than one pod, or a pod of another job."""
    selector = service["spec"].get("selector") or {}
    if len(chosen) > 1:
        yield f"{service['name']} leads to several pods"
    if not own.items() <= selector.items():
        yield f"{service['name']} may lead to another job's pods"


def _secrets(parts: Json) -> Iterator[str]:
    shown = {name: part for name, part in parts.items() if name not in ("job", "settings")}
    shown["companions"] = [one for one in parts["companions"] if one["kind"] != "Secret"]
    if "canary" in json.dumps(shown):
        yield "a secret's value is where everybody reads it"


def _gang(spec: Json) -> Iterator[str]:
    first = sum(
        task.get("minAvailable", task["replicas"])
        for task in spec["tasks"]
        if "dependsOn" not in task
    )
    if not 1 <= spec["minAvailable"] <= first:
        yield f"a gang of {spec['minAvailable']} never forms: {first} start first"
    if spec["maxRetry"] < 1:
        yield "no retry is taken for three"


def _ownership(parts: Json) -> Iterator[str]:
    # The pipeline sets namespace, labels and owner, and would overwrite a companion's own.
    for one in parts["companions"]:
        if "metadata" in one or "ownerReferences" in one:
            yield f"{one['name']} says whose it is itself"

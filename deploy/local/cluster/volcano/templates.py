"""Problems that Volcano's webhook finds in a task's pod template, in Kubernetes' words."""

import re
from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.quantities import quantity

Object = dict[str, Any]
KEY_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_RESTARTS: Final = ("Always", "OnFailure", "Never")


def pod_problems(spec: Object, position: int) -> Iterator[str]:
    """Yield the problems with the pods of the task at *position*; each ends with a full stop."""
    path = f"spec.task[{position}].template.spec"
    if not spec.get("containers"):
        yield f"{path}.containers: Required value."
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or []):
            yield from _container_problems(container, f"{path}.{field}[{number}]")
    restarts = spec.get("restartPolicy")
    if restarts is not None and restarts not in _RESTARTS:
        allowed = ", ".join(f'"{policy}"' for policy in _RESTARTS)
        # Without the task's position, as in Volcano.
        where = "template.spec.restartPolicy"
        yield f'{where}: Unsupported value: "{restarts}": supported values: {allowed}.'


def _container_problems(container: Object, path: str) -> Iterator[str]:
    name = container.get("name")
    if not name:
        yield f"{path}.name: Required value."
    elif not _LABEL.fullmatch(name):
        yield f'{path}.name: Invalid value: "{name}": {_LABEL_RULE}.'
    if not container.get("image"):
        yield f"{path}.image: Required value."
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for resource, amount in (resources.get("requests") or {}).items():
        if resource in limits and quantity(str(amount)) > quantity(str(limits[resource])):
            why = f"must be less than or equal to {resource} limit of {limits[resource]}"
            yield f'{path}.resources.requests: Invalid value: "{amount}": {why}.'

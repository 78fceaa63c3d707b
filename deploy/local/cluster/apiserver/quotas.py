"""ResourceQuotas: what the objects of a namespace use, and which object is too many. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.quantities import quantity, shown_amount

_ENDED: Final = ("Succeeded", "Failed")
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


def quota_problem(
    quotas: Iterable[Object], kind: Kind, value: Object, others: Iterable[Object]
) -> str | None:
    """Return why a new *value* exceeds one of *quotas*, or None.

    Args:
        quotas: The quotas of its namespace.
        kind: Its kind.
        value: The new object.
        others: The existing objects of its kind in the namespace.
    """
    asked = usage(kind, value)
    there = [usage(kind, other) for other in others]
    for quota in quotas:
        name, hard = quota["metadata"]["name"], (quota.get("spec") or {}).get("hard") or {}
        if kind.key == ("", "pods") and (missing := list(_unspecified(value, hard))):
            return f"failed quota: {name}: must specify {'; '.join(missing)}"
        used = {key: sum(amounts.get(key, 0.0) for amounts in there) for key in hard}
        limits = {key: quantity(str(limit)) for key, limit in hard.items()}
        # If one resource is exceeded, the message lists all resources that the object uses.
        counted = sorted(key for key in hard if asked.get(key))
        over = [key for key in counted if used[key] + asked[key] > limits[key]]
        if over:
            told = (("requested", asked), ("used", used), ("limited", limits))
            shown = (f"{word}: {_listed(over, amounts)}" for word, amounts in told)
            return f"exceeded quota: {name}, {', '.join(shown)}"
    return None


def _listed(resources: list[str], amounts: Mapping[str, float]) -> str:
    return ",".join(f"{key}={shown_resource(key, amounts[key])}" for key in resources)


def shown_resource(resource: str, amount: float) -> str:
    """Return *amount* in Kubernetes' format: bytes in powers of two."""
    binary = resource.endswith(("memory", "storage"))
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)) if binary else ():
        if amount and not amount % size:
            return f"{amount / size:.0f}{unit}"
    return shown_amount(amount)


def usage(kind: Kind, value: Object) -> dict[str, float]:
    """Return what *value* uses, by the names of a quota."""
    if kind.key == ("", "pods") and (value.get("status") or {}).get("phase") in _ENDED:
        return {}
    amounts = {f"count/{kind.resource}": 1.0}
    if not kind.group:
        amounts[kind.plural] = 1.0
    if kind.key == ("", "pods"):
        for group in ("requests", "limits"):
            for name, amount in _of_containers(value["spec"], group).items():
                amounts[f"{group}.{name}"] = amount
                if group == "requests" and name in _COMPUTE:
                    amounts[name] = amount
    elif kind.key == ("", "persistentvolumeclaims"):
        storage = value["spec"]["resources"]["requests"]["storage"]
        amounts["requests.storage"] = quantity(str(storage))
    return amounts


def _of_containers(spec: Object, group: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for container in spec.get("containers") or []:
        for name, amount in _amounts(container, group).items():
            total[name] = total.get(name, 0.0) + quantity(str(amount))
    for container in spec.get("initContainers") or []:  # they run before the others
        for name, amount in _amounts(container, group).items():
            total[name] = max(total.get(name, 0.0), quantity(str(amount)))
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0.0) + quantity(str(amount))
    return total


def _amounts(container: Object, group: str) -> Object:
    return (container.get("resources") or {}).get(group) or {}


def _unspecified(pod: Object, hard: Object) -> Iterator[str]:
    """Yield the resources that *hard* limits and a container does not name."""
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
    for resource in sorted(hard):
        group, _, name = resource.rpartition(".")
        if name in _COMPUTE and group in ("", "requests", "limits"):
            silent = [c["name"] for c in containers if name not in _amounts(c, group or "requests")]
            if silent:
                yield f"{resource} for: {','.join(silent)}"

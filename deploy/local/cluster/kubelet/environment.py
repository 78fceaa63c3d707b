"""A container's environment and command, as a kubelet makes them from the spec. No I/O."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from deploy.local.cluster.quantities import quantity

Object = dict[str, Any]
Lookup = Callable[[str, str], Mapping[str, str] | None]
"""Returns the texts of a kind (``configMap`` or ``secret``) and name, or None if it is missing."""

_REFERENCE: Final = re.compile(r"\$(\$|\((?P<name>[^()$\s]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(?P<key>[^']*)'\]")


class Unresolved(LookupError):
    """The spec refers to a missing object; a kubelet waits and tries again."""


def expand(text: str, known: Mapping[str, str]) -> str:
    """Return *text* with ``$(NAME)`` replaced and ``$$`` reduced; an unknown name stays."""

    def replaced(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "$"
        return known.get(match["name"], match[0])

    return _REFERENCE.sub(replaced, text)


def make_environment(container: Object, pod: Object, lookup: Lookup) -> dict[str, str]:
    """Return the variables of *container*, in order; each may refer to earlier ones.

    Raises:
        Unresolved: If a ConfigMap, Secret or key is missing and not optional.
    """
    result: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix", "")
        for kind in ("configMap", "secret"):
            if reference := source.get(f"{kind}Ref"):
                texts = _all_texts(kind, reference, lookup)
                result |= {prefix + name: text for name, text in texts.items()}
    for variable in container.get("env") or []:
        if source := variable.get("valueFrom"):
            found = value_from(source, pod, container, lookup)
            if found is not None:
                result[variable["name"]] = found
        else:
            result[variable["name"]] = expand(variable.get("value") or "", result)
    return result


def make_command(
    container: Object, entrypoint: tuple[str, ...], command: tuple[str, ...], env: Mapping[str, str]
) -> list[str]:
    """Return the argument vector: ``command`` and ``args`` take precedence over the image's."""
    own, args = container.get("command") or [], container.get("args") or []
    words = [*own, *args] if own else [*entrypoint, *(args or command)]
    return [expand(word, env) for word in words]


def value_from(source: Object, pod: Object, container: Object | None, lookup: Lookup) -> str | None:
    """Return the value of a ``valueFrom``; None if it is optional and missing."""
    if reference := source.get("fieldRef"):
        return field_value(pod, reference["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        return resource_value(reference, pod, container)
    for kind in ("configMap", "secret"):
        if reference := source.get(f"{kind}KeyRef"):
            texts = _all_texts(kind, reference, lookup)
            if reference["key"] in texts:
                return texts[reference["key"]]
            if reference.get("optional"):
                return None
            raise Unresolved(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    raise Unresolved("a valueFrom without a source that is known")


def field_value(pod: Object, path: str) -> str:
    """Return a field of the Pod, as in the downward API."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if keyed := _KEYED.fullmatch(path):
        return str((metadata.get(keyed[1]) or {}).get(keyed["key"], ""))
    simple: dict[str, Any] = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
    }
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.partition(".")[2]) or {}
        return "\n".join(f'{key}="{_quoted(text)}"' for key, text in sorted(entries.items()))
    if path not in simple:
        raise Unresolved(f"unsupported fieldPath: {path}")
    return str(simple[path])


def resource_value(reference: Object, pod: Object, container: Object | None) -> str:
    """Return a container's request or limit, in units of the divisor, rounded up."""
    name = reference.get("containerName")
    chosen = next((c for c in pod["spec"]["containers"] if c["name"] == name), container) or {}
    group, _, resource = reference["resource"].partition(".")
    amount = ((chosen.get("resources") or {}).get(group) or {}).get(resource, "0")
    divisor = quantity(str(reference.get("divisor") or "1")) or 1
    return str(int(-(-quantity(str(amount)) // divisor)))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _all_texts(kind: str, reference: Object, lookup: Lookup) -> Mapping[str, str]:
    texts = lookup(kind, reference["name"])
    if texts is None and not reference.get("optional"):
        raise Unresolved(f'{kind.lower()} "{reference["name"]}" not found')
    return texts or {}

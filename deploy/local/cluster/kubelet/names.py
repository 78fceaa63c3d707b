"""Names of Services and Pods, and a name server's responses for them. No I/O.

As in a cluster's DNS, ``<service>.<namespace>.svc.cluster.local`` is the Service's address; for a
headless Service it is its Pods' addresses. ``<hostname>.<service>.<namespace>.svc.cluster.local``
is the Pod with that ``hostname`` and ``subdomain``.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, Final

from deploy.local.cluster.kubelet.policies import matches, named_ports

Object = dict[str, Any]
Services = Mapping[tuple[str, str], Object]
Resolve = Callable[[str], Sequence[str] | None]
_ZONE: Final = ".svc.cluster.local"
_HEADER: Final = struct.Struct("!HHHHHH")
_RESPONSE, _AUTHORITATIVE, _RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
_NO_SUCH_NAME, _FORMAT_ERROR = 3, 1
_A: Final = 1
_SECONDS: Final = 5
_MOST_BYTES: Final = 4096


def make_resolver_file(namespace: str, server: str) -> str:
    """Return the ``/etc/resolv.conf`` of the Pods in *namespace*."""
    search = f"{namespace}.svc.cluster.local svc.cluster.local cluster.local"
    return f"search {search}\nnameserver {server}\noptions ndots:5\n"


def endpoints(service: Object, pods: Iterable[Object]) -> list[Object]:
    """Return the Pods behind *service*."""
    spec, namespace = service["spec"], service["metadata"]["namespace"]
    if not spec.get("selector"):
        return []
    selector = {"matchLabels": spec["selector"]}
    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and matches(selector, pod["metadata"].get("labels") or {})
        and (_is_ready(pod) or spec.get("publishNotReadyAddresses"))
        and pod["status"].get("podIP")
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def target_port(port: Object, pod: Object) -> int | None:
    """Return the port of *pod* for a Service's *port*."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    return next(iter(named_ports(pod, target, port.get("protocol") or "TCP")), None)


def addresses_of(name: str, services: Services, pods: Iterable[Object]) -> list[str] | None:
    """Return the addresses of *name*, which may be none; return None if the name does not exist."""
    name = name.lower().removesuffix(".")
    if not name.endswith(_ZONE):
        return None
    *host, service_name, namespace = ["", *name.removesuffix(_ZONE).split(".")][-3:]
    service = services.get((namespace, service_name))
    if service is None or len(name.removesuffix(_ZONE).split(".")) > 3:
        return None
    wanted = "".join(host)
    if service["spec"].get("clusterIP") != "None":
        return None if wanted else [service["spec"]["clusterIP"]]
    behind = endpoints(service, pods)
    if wanted:
        behind = [p for p in behind if _goes_by(p, wanted, service_name)]
    return [pod["status"]["podIP"] for pod in behind] or (None if wanted else [])


def answer(query: bytes, resolve: Resolve) -> bytes | None:
    """Return the name server's response to *query*; None if it is not a query."""
    if len(query) < _HEADER.size:
        return None
    identifier, flags, questions, *_ = _HEADER.unpack_from(query)
    if flags & _RESPONSE:
        return None
    own = _RESPONSE | _AUTHORITATIVE | flags & _RECURSION_DESIRED
    read = _read_question(query) if questions == 1 else None
    if read is None:
        return _HEADER.pack(identifier, own | _FORMAT_ERROR, 0, 0, 0, 0)
    name, kind, question = read
    found = resolve(name)
    if found is None:
        return _HEADER.pack(identifier, own | _NO_SUCH_NAME, 1, 0, 0, 0) + question
    addresses = found if kind == _A else ()
    records = b"".join(
        struct.pack("!HHHIH", 0xC000 | _HEADER.size, _A, 1, _SECONDS, 4)
        + IPv4Address(address).packed
        for address in addresses[: _MOST_BYTES // 16]
    )
    return _HEADER.pack(identifier, own, 1, len(records) // 16, 0, 0) + question + records


def _read_question(query: bytes) -> tuple[str, int, bytes] | None:
    """Return name, type and the bytes of the question."""
    labels, position = [], _HEADER.size
    while position < len(query) and (length := query[position]):
        if length > 63:
            return None
        labels.append(query[position + 1 : position + 1 + length])
        position += 1 + length
    end = position + 5
    if end > len(query):
        return None
    (kind,) = struct.unpack_from("!H", query, position + 1)
    name = b".".join(labels).decode("ascii", "replace")
    return name, kind, query[_HEADER.size : end]


def _goes_by(pod: Object, hostname: str, subdomain: str) -> bool:
    spec = pod["spec"]
    return (spec.get("hostname"), spec.get("subdomain")) == (hostname, subdomain)


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return not pod["metadata"].get("deletionTimestamp") and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )

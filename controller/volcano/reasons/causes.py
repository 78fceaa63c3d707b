"""The causes that messages of the cluster name: of pods, queues, nodes and images. No I/O.

Kubernetes and Volcano report in sentences what programs must distinguish. Each table has patterns
of these sentences, for several versions, and the first that matches decides. A sentence that
matches none is still shown as it is, with the general cause of its reason.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

_MOST_RESOURCES: Final = 8


def _table(*rows: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), cause) for pattern, cause in rows)


_REFUSALS: Final = _table(
    # The error of a webhook without a response may repeat the denial of another webhook.
    (r"failed (?:calling|to call) webhook", "refused"),
    # Volcano's webhooks, of a PodGroup. A closed queue may open again.
    (r"to queue with state", "queue_closed"),
    (r"unable to find (?:job )?queue", "queue_missing"),
    # The quota counts a resource that the pods do not name: room in it changes nothing.
    (r"failed quota: .*must specify ", "quota_unspecified"),
    (r"(?:exceeded|failed|status unknown for) quota: |insufficient quota to ", "quota"),
    (r"no PriorityClass with name", "missing_priority_class"),
    (r"service ?account.* not found", "missing_service_account"),
    (r"RuntimeClass .*not found|pod rejected: RuntimeClass", "missing_runtime_class"),
    (r"violates PodSecurity|against any security context constraint", "pod_security"),
    # The last: a default limit that is below the request.
    (r"(?:maximum|minimum) \S+ usage per|limit to request ratio"
     r"|must be less than or equal to \S+ limit", "limit_range"),
    (r"denied (?:the )?request", "admission"),
    (r"because it is being terminated", "namespace_ends"),
    (r'\bPod "[^"]*" is invalid: ', "pod_invalid"),
)  # fmt: skip
"""Causes for pods and PodGroups that the API server refuses (its admission plugins, and
webhooks).
"""

_SCHEDULING: Final = _table(
    (r"persistentvolumeclaim \"?[^\"]*\"? ?not found|can't find pvc", "missing_claim"),
    (r"unbound immediate PersistentVolumeClaims|waiting for first consumer", "unbound_claim"),
    (r"Insufficient [\w./-]+|Too many pods|NotEnoughResources|pod number exceeded"
     r"|resource fit failed|exceed max volume count", "insufficient"),
    # Claims whose class waits for the first pod (``WaitForFirstConsumer``), per node.
    (r"didn't find available persistent volumes|did not have enough free storage",
     "unbound_claim"),
    (r"didn'?t match|untolerated taint|had taint|node\(s\) were unschedulable|node selector"
     r"|volume node affinity conflict|no available volume zone", "no_matching_node"),
    (r"0/0 nodes|no nodes available", "no_node"),
)  # fmt: skip
"""Causes for pods that fit on no node (plugins of kube-scheduler and of Volcano)."""

_QUEUES: Final = _table(
    # The scheduler's plugin resourcequota: the ResourceQuota of the namespace.
    (r"^resource quota insufficient", "quota"),
    (r"resource in cluster is overused", "cluster_full"),
    (r"queue resource quota insufficient|overused|insufficient", "queue_full"),
)
"""Causes for PodGroups that are not admitted to their queue (Volcano, action ``enqueue``)."""

_MISSING: Final = _table(
    (r"couldn't find key|references non-existent secret key|non-existent config key",
     "missing_key"),
    (r"secrets? \"[^\"]*\" not found", "missing_secret"),
    (r"configmaps? \"[^\"]*\" not found", "missing_config_map"),
    (r"persistentvolumeclaims? \"[^\"]*\" not found", "missing_claim"),
    (r"executable file .*not found|no such file or directory|permission denied|exec format error",
     "start_error"),
)  # fmt: skip
"""Causes for containers that cannot be created, and volumes that cannot be mounted (kubelets)."""

_INSUFFICIENT: Final = re.compile(
    r"[Ii]nsufficient ((?:[a-z0-9.-]+/)?[A-Za-z0-9][\w.-]*?)(?=[.,;:]?(?:\s|$))"
)

_GO_QUANTITY: Final = re.compile(
    r"([A-Za-z0-9][\w./-]{0,252}):\{\{(-?\d{1,19}) (-?\d{1,2})\} \{[^{}]{0,40}\} (\S{0,40}) ?"
    r"(?:DecimalSI|BinarySI|DecimalExponent)\}"
)
"""A resource and its ``Quantity`` as Go prints the struct."""
_LARGEST_SCALE: Final = 18

_IMAGE_WRAPPERS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r'^Back-off pulling image "[^"]*"(?::\s*|$)',
        r"^(?:ErrImagePull|ImagePullBackOff):\s*",
        r"^rpc error: code = \w+ desc = ",
        r"^Error response from daemon: ",
        r'^failed to pull and unpack image "[^"]*": ',
        r'^failed to pull image "[^"]*": ',
        r'^failed to resolve (?:reference|image) "[^"]*": ',
        r"^unable to pull image or OCI artifact: pull image err: ",
        r"; artifact err: .*$",
        r"^(?:initializing source|pinging container registry|reading manifest) \S+(?: in \S+)?: ",
    )
)
"""Prefixes of a registry's message, which repeat the image."""

_START_WRAPPERS: Final = re.compile(
    r"^.*(?:unable to start container process|container_linux\.go:\d+|starting container process"
    r" caused|container create failed|failed to start container \"[^\"]*\"): ",
    re.DOTALL,
)
_UNKNOWN: Final = re.compile(r":\s*unknown$")


def cause_of_refusal(text: str) -> str:
    """Return why the API server refuses a pod."""
    return _first(_REFUSALS, text) or "refused"


def cause_of_scheduling(text: str) -> str:
    """Return why no node fits a pod, or a gang."""
    return _first(_SCHEDULING, text) or "unschedulable"


def cause_of_queue(text: str) -> str:
    """Return why a PodGroup is not admitted to its queue."""
    return _first(_QUEUES, text) or "queued"


def cause_of_missing(text: str, otherwise: str) -> str:
    """Return what a container, or a volume of it, lacks."""
    return _first(_MISSING, text) or otherwise


def resources_in(text: str) -> list[str]:
    """Return the scarce resources, in the order in which they are named."""
    found = [*_INSUFFICIENT.findall(text), *(one[1] for one in _GO_QUANTITY.finditer(text))]
    return list(dict.fromkeys(found))[:_MOST_RESOURCES]


def readable_quantities(text: str) -> str:
    """Return *text* with amounts as Kubernetes writes them, instead of as Go prints its structs.

    Volcano prints a ``ResourceList`` so (``%v``), for example ``cpu:{{2 0} {<nil>} 2 DecimalSI}``.
    """
    return _GO_QUANTITY.sub(_readable, text)


def _readable(match: re.Match[str]) -> str:
    name, value, scale, text = match.groups()
    if not text and abs(int(scale)) <= _LARGEST_SCALE:
        text = format(Decimal(value).scaleb(int(scale)).normalize(), "f")
    return f"{name}: {text or value}"


def scheduling_details(text: str) -> dict[str, Any]:
    """Return the machine-readable details of a scheduler's message."""
    found = resources_in(text)
    details: dict[str, Any] = {"cause": cause_of_scheduling(text)}
    return details | ({"resources": found} if found else {})


def image_error(text: str) -> str:
    """Return the registry's message; empty if the kubelet only reports its backoff."""
    before = None
    while text != before:
        before = text
        for wrapper in _IMAGE_WRAPPERS:
            text = wrapper.sub("", text, count=1)
    return text.strip()


def start_error(text: str) -> str:
    """Return why a program could not be started, without the prefixes of the runtime."""
    return _UNKNOWN.sub("", _START_WRAPPERS.sub("", text, count=1)).strip() or text


def _first(table: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    return next((cause for pattern, cause in table if pattern.search(text)), "")

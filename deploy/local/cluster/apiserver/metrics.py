"""The resource metrics API (metrics.k8s.io), as metrics-server serves it behind an API server.

Kubelets are scraped every few seconds (``/metrics/resource``). A pod has metrics once it was in the
last two scrapes. Until there were two scrapes, the API exists and answers 503.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from deploy.local.cluster.apiserver.errors import ApiError, method_not_allowed
from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.apiserver.kubelets import Kubelets
from deploy.local.cluster.apiserver.requests import Target
from deploy.local.cluster.apiserver.selectors import make_selector
from deploy.local.cluster.apiserver.store import Store

_LOG: Final = logging.getLogger(__name__)
GROUP: Final = "metrics.k8s.io"
POD_METRICS: Final = Kind(GROUP, "v1beta1", "PodMetrics", "pods", verbs=("get", "list"))
_PODS: Final = ("", "pods")
_NODES: Final = ("", "nodes")
_LINE: Final = re.compile(
    r'(container_cpu_usage_seconds_total|container_memory_working_set_bytes){container="([^"]+)",'
    r'namespace="([^"]+)",pod="([^"]+)"} (\S+) (\d+)'
)


class _Usage(NamedTuple):
    """The use of a container up to a time (unix seconds)."""

    at: float
    cpu_seconds: float
    memory: float


_Key = tuple[str, str, str]
"""Namespace, pod and container."""


class MetricsServer:
    """Scrapes the kubelets, and answers from the last two scrapes."""

    def __init__(self, store: Store, kubelets: Kubelets, seconds: float) -> None:
        self._store = store
        self._kubelets = kubelets
        self._seconds = seconds
        self._scrapes = 0
        self._last: Mapping[_Key, _Usage] = {}
        self._before: Mapping[_Key, _Usage] = {}

    async def run(self) -> None:
        """Scrape until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            self._before, self._last = self._last, await self._scrape()
            self._scrapes += bool(self._last or self._store.items(_NODES))

    def answer(self, verb: str, target: Target, query: Mapping[str, str]) -> web.Response:
        """Answer a request to the group."""
        if (target.version, target.plural, target.subresource) != ("v1beta1", "pods", ""):
            return web.Response(text="404 page not found\n", status=404)
        if self._scrapes < 2:  # the aggregation layer's words for a backend that is not ready
            return web.Response(text="service unavailable\n", status=503)
        if verb == "get":
            found = self._pod_metrics(target.namespace, target.name)
            if found is None:
                what = f"{target.namespace}/{target.name}"
                raise ApiError(404, f'pods.metrics.k8s.io "{what}" not found')
            return _json({"kind": "PodMetrics", "apiVersion": POD_METRICS.api_version, **found})
        if verb != "list":
            raise method_not_allowed()
        matches = make_selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        pods = [one.value for one in self._store.items(_PODS, target.namespace)]
        shown = [
            self._pod_metrics(pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in pods
            if matches(pod)
        ]
        return _json(
            {
                "kind": "PodMetricsList",
                "apiVersion": POD_METRICS.api_version,
                "metadata": {},
                "items": [one for one in shown if one is not None],
            }
        )

    def _pod_metrics(self, namespace: str, name: str) -> Object | None:
        pod = self._store.get(_PODS, namespace, name)
        if pod is None or (pod.value.get("status") or {}).get("phase") != "Running":
            return None
        containers, usage = [], None
        for container in pod.value["spec"]["containers"]:
            key = (namespace, name, container["name"])
            usage, before = self._last.get(key), self._before.get(key)
            if usage is None or before is None or usage.cpu_seconds < before.cpu_seconds:
                return None  # not measured, or restarted: then the pod has no metrics
            window = max(1e-3, usage.at - before.at)
            nanocores = int((usage.cpu_seconds - before.cpu_seconds) / window * 1e9)
            shown = {
                "cpu": f"{nanocores}n" if nanocores else "0",
                "memory": f"{int(usage.memory) // 1024}Ki",
            }
            containers.append({"name": container["name"], "usage": shown})
        if usage is None:
            return None
        metadata = pod.value["metadata"]
        return {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": _time(datetime.now(UTC).timestamp()),
                "labels": metadata.get("labels") or {},
            },
            "timestamp": _time(usage.at),
            "window": f"{window:.3f}s",
            "containers": containers,
        }

    async def _scrape(self) -> dict[_Key, _Usage]:
        found = dict[_Key, dict[str, float]]()
        for node in self._store.items(_NODES):
            try:
                text = await self._kubelets.resource_metrics(node.value)
            except (aiohttp.ClientError, TimeoutError) as error:
                _LOG.warning("no metrics of %s: %s", node.value["metadata"]["name"], error)
                continue
            for what, container, namespace, pod, value, at in _LINE.findall(text):
                one = found.setdefault((namespace, pod, container), {"at": int(at) / 1000})
                one[what] = float(value)
        return {
            key: _Usage(
                one["at"],
                one.get("container_cpu_usage_seconds_total", 0.0),
                one.get("container_memory_working_set_bytes", 0.0),
            )
            for key, one in found.items()
        }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: Object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")

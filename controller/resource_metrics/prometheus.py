"""Network and GPUs, from a Prometheus server's query API: one instant query per metric.

Clusters that measure these have a Prometheus server, which scrapes the kubelets' cAdvisor
(``container_network_*``) and NVIDIA's DCGM exporter (``DCGM_FI_DEV_*``). Reading them there needs
no permission in the cluster. (Prometheus, "HTTP API", "Instant queries".)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from controller.resource_metrics.sources import (
    MOST_PODS,
    Measured,
    Metric,
    Missing,
    PodKey,
    SourceFailed,
    Values,
)
from shared.connector import Connector
from shared.tls import make_client_tls

MOST_BYTES: Final = 8 << 20
"""The most bytes of one response: those of some 50,000 pods."""
_MIB: Final = 1 << 20
_MOST: Final = 2.0**63
"""No measured value is as large; the sum of larger ones could overflow."""

_NAMES: Final = "[jt]-.+"
"""The names of pods of jobs and tools. Other pods may match; their values are never read."""
_PODS: Final = f'pod=~"{_NAMES}"'


def _network(direction: str) -> str:
    # A pod's containers share its network: the series has the sandbox's name, or none.
    series = f"container_network_{direction}_bytes_total{{{_PODS}}}"
    return f"sum by (namespace, pod) (rate({series}[2m]))"


def _gpu(field: str, function: str) -> str:
    # If the scraper keeps its own labels, the pod that uses the GPU is in `exported_pod`, and
    # `pod` is the exporter.
    kept = f'{function} by (exported_namespace, exported_pod) ({field}{{exported_pod=~"{_NAMES}"}})'
    plain = f'{function} by (namespace, pod) ({field}{{exported_pod="",{_PODS}}})'
    return f"{kept} or {plain}"


QUERIES: Final[Mapping[Metric, tuple[str, float]]] = {
    "network_receive_bytes_per_second": (_network("receive"), 1.0),
    "network_transmit_bytes_per_second": (_network("transmit"), 1.0),
    "gpu_utilization": (_gpu("DCGM_FI_DEV_GPU_UTIL", "avg"), 0.01),
    "gpu_memory_bytes": (_gpu("DCGM_FI_DEV_FB_USED", "sum"), _MIB),
}
"""The query of each metric, and its factor: DCGM reports percent and MiB."""


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Sample]
    resultType: str = "vector"  # noqa: N815 - Prometheus' name


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


_decode: Final = msgspec.json.Decoder(_Answer).decode


def make_session() -> aiohttp.ClientSession:
    """Return the session of a :class:`PrometheusSource`: it keeps no cookies."""
    return aiohttp.ClientSession(
        connector=Connector(ssl=make_client_tls()),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class PrometheusSource:
    """Queries a Prometheus server, or a compatible one (Thanos, Mimir, VictoriaMetrics).

    Args:
        http: A session of :func:`make_session`; the caller closes it.
        url: The server's URL, with the path that precedes its API's.
        token_file: A file with a bearer token, read for every sample; None without one.
    """

    name: Final = "prometheus"
    metrics: Final[tuple[Metric, ...]] = tuple(QUERIES)

    def __init__(
        self, http: aiohttp.ClientSession, *, url: str, token_file: Path | None = None
    ) -> None:
        self._http = http
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._token_file = token_file

    async def read(self, into: Measured) -> Mapping[Metric, Missing]:
        """Add the newest values of each pod; a failed query affects only its own metric."""
        headers = self._headers()
        failed = dict[Metric, SourceFailed]()
        for metric, (query, factor) in QUERIES.items():
            try:
                for sample in await self._ask(query, headers):
                    _add(sample, metric, factor, into)
            except SourceFailed as error:
                failed[metric] = error
                if len(failed) == 1 and metric == self.metrics[0] and error.reason != "unavailable":
                    raise  # the other queries would be refused too
        if len(failed) == len(QUERIES):
            raise next(iter(failed.values()))
        return {metric: error.reason for metric, error in failed.items()}

    async def _ask(self, query: str, headers: Mapping[str, str]) -> list[_Sample]:
        try:
            async with self._http.get(
                self._url, params={"query": query}, headers=headers, allow_redirects=False
            ) as response:
                if response.status in (401, 403):
                    raise SourceFailed("forbidden", f"the server responded with {response.status}")
                if response.status != 200:
                    raise SourceFailed(
                        "unavailable", f"the server responded with {response.status}"
                    )
                return _samples(await _read(response.content))
        except (aiohttp.ClientError, OSError) as error:
            raise SourceFailed("unavailable", type(error).__name__) from error

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            why = f"cannot read the token file: {type(error).__name__}"
            raise SourceFailed("unavailable", why) from error
        return {"Authorization": f"Bearer {token}"}


async def _read(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for data in content.iter_any():
        body += data
        if len(body) > MOST_BYTES:
            raise SourceFailed("unavailable", f"a response exceeds {MOST_BYTES} bytes")
    return bytes(body)


def _samples(text: bytes) -> list[_Sample]:
    try:
        found = _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SourceFailed("unavailable", "the response is not the result of a query") from error
    if found.status != "success" or found.data is None:
        raise SourceFailed("unavailable", "a query failed")
    return found.data.result


def _add(sample: _Sample, metric: Metric, factor: float, into: Measured) -> None:
    labels = sample.metric
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    pod = labels.get("exported_pod") or labels.get("pod", "")
    value = _number(sample.value[1])
    key = PodKey(namespace, pod)
    if pod and value is not None and (key in into or len(into) < MOST_PODS):
        into.setdefault(key, Values())[metric] = value * factor


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= _MOST else None

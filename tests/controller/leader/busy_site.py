"""Provides a site's day: jobs with every kind of end, and an independent record of the cluster.

- ``Orchestrator`` submits jobs, follows updates, and acts as each job's kind says.
- ``Witness`` records what the cluster reports of pods and VolcanoJobs. Its client shares nothing
  with the controller's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp

from deploy.local.cluster.client import PODS, Cache, Client, Object, Resource
from deploy.local.cluster.kubeconfig import read_kubeconfig
from tests.controller.running import SIGNER, Controller
from tests.shared.samples import make_claims

FINAL: Final = ("SUCCESS", "FAILURE", "EXPIRED")
FOREVER: Final = "trap 'exit 0' TERM; sleep 3600 & wait"
MOVED: Final = {"state": "MOVED"}
"""What is told, beside updates, once a second pod of a job runs."""
VCJOBS: Final = Resource("batch.volcano.sh/v1alpha1", "jobs")


@dataclass(frozen=True)
class Kind:
    """Jobs that end in the same way.

    Attributes:
        script: The command of each replica.
        ends: State and reason at the end.
        exits: The exit codes that its pods may have, if they ran.
        steps: The orchestrator's actions, in order; an update triggers each.
        pods: The number of pods that run, if it is certain.
        attempts: The number of attempts, if it is certain.
        fields: Further fields of the job.
    """

    script: str
    ends: tuple[str, str]
    exits: tuple[int, ...] = ()
    steps: tuple[tuple[tuple[str, str], str], ...] = ()
    pods: int | None = None
    attempts: int | None = 1
    fields: Mapping[str, Any] = field(default_factory=dict)


_RUNS: Final = ("state", "RUNNING")
_ASKED: Final = ("SUCCESS", "asked")
_STOPPED: Final = (0, 137, 143)
"""A shell that is asked to end before it has its trap is killed at the end of its grace."""
KINDS: Final[Mapping[str, Kind]] = {
    "finishes": Kind("sleep {seconds}", ("SUCCESS", "completed"), (0,), pods=1),
    "pair": Kind(
        "sleep {seconds}", ("SUCCESS", "completed"), (0,), pods=2, fields={"replicas": 2}
    ),
    "fails": Kind("sleep {seconds}; exit 7", ("FAILURE", "exit_code"), (7,), pods=1),
    "retries": Kind(
        "exit 5", ("FAILURE", "exit_code"), (5,), pods=2, attempts=None,
        fields={"policies": [{"event": "PodFailed", "action": "RestartJob"}], "max_retry": 1},
    ),
    "memory": Kind(
        "(head -c 100000000 /dev/zero; sleep 3600) | tail -c 100000000",
        ("FAILURE", "out_of_memory"), (137,), pods=1,
        fields={"resources": {"cpu": 0.01, "memory": "48Mi"}},
    ),
    "image": Kind(
        "true", _ASKED, pods=0, steps=((("reason", "image"), "end"),),
        fields={"image": "registry.example/nope:1"},
    ),
    "nowhere": Kind(
        "true", _ASKED, pods=0, steps=((("reason", "unschedulable"), "end"),),
        fields={"resources": {"cpu": 0.01, "memory": "16Mi", "gpu": 1}},
    ),
    "cancelled": Kind(FOREVER, _ASKED, _STOPPED, steps=((_RUNS, "end"),), pods=1),
    "regretted": Kind(FOREVER, _ASKED, _STOPPED, steps=((("state", "IN_QUEUE"), "end"),),
                      attempts=None),
    "expires": Kind(
        FOREVER, ("EXPIRED", "expired"), _STOPPED, pods=1, fields={"time_allocation_seconds": 2}
    ),
    "suspended": Kind(
        FOREVER, _ASKED, _STOPPED, pods=2, attempts=2,
        steps=((_RUNS, "suspend"), (("state", "SUSPENDED"), "resume"), (_RUNS, "end")),
    ),
    "drained": Kind(
        FOREVER, _ASKED, _STOPPED, steps=((_RUNS, "drain"), (("state", "MOVED"), "end")), pods=2
    ),
}  # fmt: skip
MIX: Final = (
    *["finishes"] * 6, "pair", *["fails"] * 3, *["retries"] * 2, "memory", "image", "nowhere",
    "regretted", "cancelled", "expires", "suspended", "drained",
)  # fmt: skip
"""Twenty jobs; so is each twenty of a day."""


def kind_of(job_id: str) -> Kind:
    """Return the kind of the job."""
    return KINDS[job_id.partition("-")[0]]


def make_job(number: int, seconds: float) -> dict[str, Any]:
    """Return a job of the day."""
    name = MIX[number % len(MIX)]
    kind = KINDS[name]
    script = kind.script.format(seconds=f"{seconds:.1f}")
    return {
        "id": f"{name}-{number}", "owner": {"user": "ada"}, "image": "busybox",
        "resources": {"cpu": 0.01, "memory": "16Mi"},
        "invocation": {"command": ["sh", "-c", script]},
        **kind.fields,
    }  # fmt: skip


class Orchestrator:
    """Submits jobs, follows updates from any responding controller, and acts on them."""

    def __init__(
        self, controllers: list[Controller], drain: Callable[[str], Awaitable[None]]
    ) -> None:
        self._controllers = controllers
        self._drain = drain
        self._done: Counter[str] = Counter()
        self._news: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self.updates: list[dict[str, Any]] = []

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the first response of any controller; repeating the call is safe."""
        deadline = time.monotonic() + 120
        while True:
            for one in self._controllers:
                with suppress(aiohttp.ClientError, OSError, TimeoutError, KeyError):
                    status, content = await request(one, method, path, body)
                    assert status < 300 or status >= 500, (method, path, status, content)
                    if status < 300:
                        return content
            assert time.monotonic() < deadline, f"nobody answers {path}"
            await asyncio.sleep(0.2)

    async def pages(self, path: str) -> list[dict[str, Any]]:
        """Return all items of a list, page by page."""
        items: list[dict[str, Any]] = []
        after = 0
        while True:
            page = await self.call("GET", f"{path}?after={after}&limit=1000")
            if not page["items"]:
                return items
            items += page["items"]
            after = page["next"]

    async def follow(self) -> None:
        """Read updates for ever; after a broken stream, continue after the last update."""
        while True:
            for one in self._controllers:
                with suppress(aiohttp.ClientError, OSError, TimeoutError, KeyError):
                    async for update in stream(one, last(self.updates)):
                        self.updates.append(update)
                        self._news.put_nowait(update)
            await asyncio.sleep(0.1)

    def moved(self, job_id: str) -> None:
        """Record that another pod of the job runs."""
        self._news.put_nowait({"job": job_id, **MOVED})

    async def act(self) -> None:
        """Act as the kinds of jobs say, for ever."""
        while True:
            news = await self._news.get()
            job_id = news["job"]
            steps = kind_of(job_id).steps[self._done[job_id] :]
            if steps and news.get(steps[0][0][0]) == steps[0][0][1]:
                self._done[job_id] += 1
                await self._do(job_id, steps[0][1])

    async def _do(self, job_id: str, what: str) -> None:
        match what:
            case "end":
                await self.call("DELETE", f"/v1/jobs/{job_id}")
            case "drain":
                await self._drain(f"j-{job_id}-job-0")
            case _:
                await self.call("POST", f"/v1/jobs/{job_id}/{what}")

    def ended(self) -> Counter[str]:
        """Return how often each job's end was reported."""
        return Counter(one["job"] for one in self.updates if one["state"] in FINAL)


def last(updates: list[dict[str, Any]]) -> int:
    return updates[-1]["id"] if updates else 0


async def request(
    one: Controller, method: str, path: str, body: Any = None
) -> tuple[int, dict[str, Any]]:
    """Return the status and content of a response."""
    timeout = aiohttp.ClientTimeout(total=30, sock_connect=2)
    url = f"http://{one.addresses['api']}{path}"
    headers = _authorization() | {"Accept": "application/json"}
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        http.request(method, url, json=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def stream(one: Controller, after: int) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the updates after *after* as they arrive."""
    headers = _authorization() | {"Last-Event-ID": str(after)}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=30)
    url = f"http://{one.addresses['api']}/v1/updates?after=0"
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        http.get(url, headers=headers) as response,
    ):
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def _authorization() -> dict[str, str]:
    token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Pod:
    """A pod as the cluster recorded it; ``ended_at`` is None if the end was not observed."""

    uid: str
    name: str
    job: str
    rank: int
    owner: str
    node: str
    started_at: float | None
    ended_at: float | None
    exit_code: int | None

    @property
    def seconds(self) -> float:
        """Return how long its program ran."""
        return (self.ended_at or 0.0) - (self.started_at or 0.0)


class StateRecorder:
    """Records the last state of pods and VolcanoJobs.

    Args:
        kubeconfig: The administrator's, to which no faults are added.
        instance: The instance that owns the objects.
        moved: Called with a job's id when a second pod of it runs.
    """

    def __init__(self, kubeconfig: Path, instance: str, moved: Callable[[str], None]) -> None:
        self._client = Client(read_kubeconfig(kubeconfig))
        query = {"labelSelector": f"fumarole.dev/instance={instance}"}
        self._caches = [
            Cache(self._client, PODS, query, changed=self._saw_pod),
            Cache(self._client, VCJOBS, query, changed=self._saw_job),
        ]
        self._moved = moved
        self._pods: dict[str, Object] = {}
        self.volcano_jobs: dict[str, set[str]] = {}
        self._running: dict[str, set[str]] = {}

    async def watch(self) -> None:
        """Follow the watches for ever."""
        async with self._client, asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(cache.follow())

    async def drain(self, pod: str) -> None:
        """Evict a pod as ``kubectl drain`` does; a missing pod is no error."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        await self._client.post(PODS.path("jobs", pod, "eviction"), body)

    def _saw_pod(self, _change: str, given: Object) -> None:
        self._pods[given["metadata"]["uid"]] = given
        if given["status"].get("phase") == "Running":
            job = _job_of(given)
            running = self._running.setdefault(job, set())
            running.add(given["metadata"]["uid"])
            if len(running) == 2:
                self._moved(job)

    def _saw_job(self, _change: str, given: Object) -> None:
        self.volcano_jobs.setdefault(_job_of(given), set()).add(given["metadata"]["uid"])

    def pods(self) -> Iterator[Pod]:
        """Yield all pods that ever existed."""
        for given in self._pods.values():
            metadata, status = given["metadata"], given["status"]
            (owner,) = metadata["ownerReferences"]
            containers = status.get("containerStatuses") or [{}]
            state = containers[0].get("state") or {}
            ended = state.get("terminated") or {}
            began = (state.get("running") or {}).get("startedAt") or ended.get("startedAt")
            yield Pod(
                metadata["uid"], metadata["name"], _job_of(given),
                int(metadata["name"].rpartition("-")[2]), owner["uid"],
                given["spec"].get("nodeName") or "", _seconds(began),
                _seconds(ended.get("finishedAt")), ended.get("exitCode"),
            )  # fmt: skip


def _job_of(given: Object) -> str:
    job: str = given["metadata"]["labels"]["fumarole.dev/job"]
    return job


def _seconds(text: str | None) -> float | None:
    at = datetime.fromisoformat(text).timestamp() if text else 0.0
    return at if at > 0 else None

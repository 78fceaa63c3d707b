"""The log of an existing pod: of exactly this pod, from any position on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import aiohttp

from controller.kube.client import Kube, path_of
from controller.kube.errors import Invalid, KubeError, NotFound, Unauthorized, Unavailable
from controller.kube.kinds import PODS
from controller.logs.records import (
    Counter,
    Cutter,
    LogMark,
    LogUnreadable,
    Resumer,
    says_unreadable,
    without_kubelets_words,
)
from controller.volcano.names import JOB_CONTAINER
from controller.volcano.observed import ObservedPod
from controller.volcano.parsing import read_pod
from shared.text import plain_text

PIECE: Final = 64 << 10
QUIET_SECONDS: Final = 3600.0
"""A program may be silent for long; after this time the log is requested again."""
CALL_SECONDS: Final = 60.0
_LONGEST: Final = 1000
AGAIN_SECONDS: Final = 1.0
"""Pause before an interrupted log is requested again."""


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod. Another pod may have the same name later, or already."""

    namespace: str
    name: str
    uid: str
    job_id: str


class PodLogs:
    """Reads logs of pods.

    A log is requested by the pod's name, and Volcano recreates pods with the names of deleted
    ones. So once a log is open, the pod's uid is checked.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def find(self, pod: PodName) -> ObservedPod:
        """Return the pod's current state.

        Raises:
            NotFound: If it is gone, even if another pod has its name.
            KubeError: If the API server does not return it.
        """
        # A list, since the controller has no permission to get pods.
        fields = f"metadata.name={pod.name}"
        for given in await self._kube.list(PODS, pod.namespace, fields=fields):
            found = read_pod(given)
            if found.uid == pod.uid:
                return found
        raise NotFound("the pod is gone", status=404)

    @asynccontextmanager
    async def open(
        self,
        pod: PodName,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open the log of the pod's program; with *follow*, also what it writes later.

        Args:
            pod: The pod.
            follow: Whether to wait for more until the program ends.
            tail: The maximum number of last lines.
            since: Only lines since then, in whole seconds.
            timestamps: Whether each line begins with its time.

        Raises:
            NotFound: If the pod is gone, even if another pod has its name.
            Invalid: If the program has not been started.
            KubeError: If the API server does not return the log.
        """
        query = {"container": JOB_CONTAINER}
        query |= {"follow": "true"} if follow else {}
        query |= {"timestamps": "true"} if timestamps else {}
        query |= {} if tail is None else {"tailLines": str(tail)}
        query |= {} if since is None else {"sinceTime": _seconds(since)}
        path = path_of(PODS, pod.namespace, pod.name, "log")
        quiet = QUIET_SECONDS if follow else CALL_SECONDS
        with _refusals():
            async with self._kube.stream(path, query, quiet_seconds=quiet) as content:
                await self.find(pod)
                yield content

    async def records(
        self,
        pod: PodName,
        mark: LogMark | None,
        *,
        follow: bool,
        tail: int | None = None,
        again: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the records after *mark*, in blocks, until the pod's program has ended.

        A stream that ends earlier is requested again; nothing is yielded twice. With *again*, a
        stream that is interrupted is requested again too.

        Raises:
            NotFound: If the pod or its log is gone before it was read to its end.
            KubeError: If the API server does not return the log.
        """
        counter = Counter(mark)
        while True:
            cutter, resumer = Cutter(), Resumer(counter.mark)
            since = counter.mark.at // 10**9 if counter.mark is not None else None
            opened = self.open(pod, follow=follow, tail=tail, since=since, timestamps=True)
            try:
                async with opened as content:
                    async for piece in content.iter_chunked(PIECE):
                        if block := resumer.pass_on(cutter.feed(piece)):
                            counter.see(block)
                            yield block
            except (Unauthorized, Unavailable):
                if not (follow and again):
                    raise
            else:
                if not follow or await self._is_over(pod):
                    if block := resumer.pass_on(_finished(cutter)):
                        yield block
                    return
            tail = None if counter.mark is not None else tail
            await asyncio.sleep(AGAIN_SECONDS)

    async def _is_over(self, pod: PodName) -> bool:
        try:
            return (await self.find(pod)).is_over
        except NotFound:
            return True
        except KubeError:
            return False


@contextmanager
def _refusals() -> Iterator[None]:
    """Tell a log that a kubelet cannot read from one that has not begun: both are a 400.

    Older kubelets respond with 200, and write the same words (Kubernetes pull request 140154).
    """
    try:
        yield
    except Invalid as error:
        unreadable = says_unreadable(error.message.encode())
        if unreadable is None:
            raise
        kind = NotFound if unreadable else Unavailable
        raise kind(plain_text(error.message, _LONGEST), status=error.status) from error


def _finished(cutter: Cutter) -> bytes:
    try:
        return without_kubelets_words(cutter.finish())
    except LogUnreadable as error:
        raise NotFound(plain_text(error, _LONGEST), status=404) from error


def _seconds(moment: float) -> str:
    # metav1.Time has no fractions of a second.
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

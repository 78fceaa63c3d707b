"""The log of a pod that is there: of exactly this pod, and from any place on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import aiohttp

from controller.kube.client import Kube, path_of
from controller.kube.errors import KubeError, NotFound, Unavailable
from controller.kube.kinds import PODS
from controller.logs.records import (
    Counter,
    Cutter,
    LogMark,
    LogUnreadable,
    Resumer,
    without_kubelets_words,
)
from controller.plain import plain_text
from controller.volcano.names import JOB_CONTAINER
from controller.volcano.observed import ObservedPod, read_pod

PIECE: Final = 64 << 10
QUIET_SECONDS: Final = 3600.0
"""A program may write nothing for long; after this the log is asked for again."""
CALL_SECONDS: Final = 60.0
_LONGEST: Final = 1000
AGAIN_SECONDS: Final = 1.0
"""Before a log that broke off is asked for again."""


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod; another one may have its name later, or by now."""

    namespace: str
    name: str
    uid: str
    job_id: str


class PodLogs:
    """Reads logs of pods.

    A log is asked for by the pod's name, and Volcano makes pods anew by the names of those that
    are gone. So it is looked, once a log is open, whether the pod is still the one that was meant.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def find(self, pod: PodName) -> ObservedPod:
        """Return the pod as it is.

        Raises:
            NotFound: If it is gone, whatever else has its name.
            KubeError: If the cluster cannot be asked.
        """
        # Listed, as nobody gives us the right to get pods: it is one all the same.
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
        """Give what the pod's program has written, and with *follow* what it writes.

        Args:
            pod: The pod.
            follow: Whether to wait for more until the program ends.
            tail: Only so many of the last lines there are.
            since: Only lines since then, in whole seconds.
            timestamps: Whether each line begins with its time.

        Raises:
            NotFound: If it is gone, whatever else has its name.
            Invalid: If its program has not been started.
            KubeError: If the cluster does not give it.
        """
        query = {"container": JOB_CONTAINER}
        query |= {"follow": "true"} if follow else {}
        query |= {"timestamps": "true"} if timestamps else {}
        query |= {} if tail is None else {"tailLines": str(tail)}
        query |= {} if since is None else {"sinceTime": _seconds(since)}
        path = path_of(PODS, pod.namespace, pod.name, "log")
        quiet = QUIET_SECONDS if follow else CALL_SECONDS
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
        """Yield what comes behind *mark*, in whole records, until the pod's program has ended.

        A stream that ends before that is asked for again: what was yielded does not come twice.
        With *again*, one that breaks off is too.

        Raises:
            NotFound: If the pod, or its log, is gone before that was read to its end.
            KubeError: If the cluster does not give it.
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
            except Unavailable:
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


def _finished(cutter: Cutter) -> bytes:
    try:
        return without_kubelets_words(cutter.finish())
    except LogUnreadable as error:
        raise NotFound(plain_text(error, _LONGEST), status=404) from error


def _seconds(moment: float) -> str:
    # What is less than a second does not come through (Kubernetes' metav1.Time).
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

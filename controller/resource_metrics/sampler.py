"""Asks every source once an interval, all at the same time, and keeps what they say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from controller.resource_metrics.history import MetricHistory
from controller.resource_metrics.sources import (
    METRICS,
    Measured,
    Metric,
    Missing,
    Source,
    SourceFailed,
)

MOST_SECONDS: Final = 15.0
"""How long a source may take, or an interval where that is shorter."""

REFUSED_SECONDS: Final = 300.0
"""How long a source is left alone that is not there, or refuses us: neither ends by itself."""

_REFUSALS: Final[frozenset[Missing]] = frozenset({"not_installed", "forbidden"})

_NOT_THERE: Final[Missing] = "not_configured"

log = logging.getLogger(__name__)


class MetricSampler:
    """Samples what pods use, for as long as :meth:`run` does.

    Args:
        sources: What is asked.
        interval: Seconds from sample to sample; 0 where nobody runs it.
        clock: Unix seconds, for samples.
        monotonic: Monotonic seconds, for pauses.
        count: Is told of each source how it went: ``ok``, or why there is nothing.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        interval: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        count: Callable[[str, str], None] = lambda _source, _result: None,
    ) -> None:
        self._sources = sources
        self.interval = interval
        self._clock = clock
        self._monotonic = monotonic
        self._count = count
        self._resting_until = dict[str, float]()
        self._told = dict[str, Missing | None]()
        configured = {metric for source in sources for metric in source.metrics}
        self.history = MetricHistory()
        self.sampled_at: float | None = None
        self.missing: Mapping[Metric, Missing] = {
            metric: "off" if not interval else "starting" if metric in configured else _NOT_THERE
            for metric in METRICS
        }
        """Which metrics the last sample is without, and why."""

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            began = self._monotonic()
            await self.sample()
            await asyncio.sleep(max(0.1, self.interval - (self._monotonic() - began)))

    async def sample(self) -> None:
        """Ask all sources and keep what they say; what each has is its own, and lost with it."""
        found = await asyncio.gather(*(self._read(source) for source in self._sources))
        missing = {metric: why for metric, why in self.missing.items() if why == _NOT_THERE}
        measured = Measured()
        for some, without in found:
            for key, values in some.items():
                measured.setdefault(key, {}).update(values)
            missing.update(without)
        at = self._clock()
        kept_for = self.interval * self.history.points
        await self.history.add(at, measured, forget_before=at - kept_for)
        self.sampled_at, self.missing = at, missing

    async def _read(self, source: Source) -> tuple[Measured, Mapping[Metric, Missing]]:
        measured = Measured()
        try:
            if self._monotonic() < self._resting_until.get(source.name, 0.0):
                raise SourceFailed(self._told.get(source.name) or "unavailable", "")
            async with asyncio.timeout(min(MOST_SECONDS, self.interval)):
                without = await source.read(measured)
        except TimeoutError:
            return self._failed(source, SourceFailed("unavailable", "it did not answer in time"))
        except SourceFailed as error:
            return self._failed(source, error)
        except Exception:  # the border of a part that nothing else may depend on
            log.exception("metrics cannot be read", extra={"source": source.name})
            return self._failed(source, SourceFailed("unavailable", "see the trace"))
        if self._told.get(source.name) is not None:
            log.info("metrics can be read again", extra={"source": source.name})
        self._told[source.name] = None
        self._count(source.name, "ok")
        return measured, without

    def _failed(
        self, source: Source, error: SourceFailed
    ) -> tuple[Measured, dict[Metric, Missing]]:
        now = self._monotonic()
        if now >= self._resting_until.get(source.name, 0.0):
            self._count(source.name, error.reason)
            if error.reason in _REFUSALS:
                self._resting_until[source.name] = now + REFUSED_SECONDS
            if self._told.get(source.name) != error.reason:  # told once, not by each sample
                extra = {"source": source.name, "reason": error.reason, "why": str(error)}
                log.warning("metrics cannot be read", extra=extra)
        self._told[source.name] = error.reason
        return Measured(), dict.fromkeys(source.metrics, error.reason)

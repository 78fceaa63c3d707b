"""Runs all three apps at once: submit, wait, open, work, stop. Reports one line for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import aiohttp

from deploy.local.apps.catalogue import APPS, App
from deploy.local.smoke import desktop, notebook, terminal
from deploy.local.smoke.failure import SmokeFailed
from deploy.local.smoke.gateway import Opened, client, open_link
from deploy.local.smoke.orchestrator import LOOK_SECONDS, User
from deploy.local.smoke.work import Stopwatch

USER: Final = "ada"
APP_SECONDS: Final = 50.0
STOP_SECONDS: Final = 8.0

Work = Callable[[Opened, Stopwatch], Awaitable[str]]
Explain = Callable[[str, App], Awaitable[list[str]]]
"""Explains why the app of a job cannot be used."""

WORK: Final[Mapping[str, Work]] = MappingProxyType(
    {"web": notebook.use, "terminal": terminal.use, "vnc": desktop.use}
)


async def run_smoke(
    orchestrator_url: str,
    report: Callable[[str], None],
    *,
    apps: Mapping[str, App] = APPS,
    seconds: float = APP_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    explain: Explain | None = None,
) -> bool:
    """Return whether every app did its work in *seconds*; *report* gets one line for each app.

    If an app fails, *explain* is called while its job still exists, and its lines follow.
    """
    async with client() as http:
        user = User(http, orchestrator_url)
        try:
            await user.sign_in(USER)
        except (SmokeFailed, aiohttp.ClientError) as error:
            report(f"  ✗ signing in: {_text(error)}")
            return False
        trials = [Trial(user, app, clock) for app in apps.values()]
        good = await asyncio.gather(*(_try(one, report, seconds, explain) for one in trials))
    return all(good)


class Trial:
    """One app that is started, opened and used; ``job`` is its job once there is one."""

    def __init__(self, user: User, app: App, clock: Callable[[], float]) -> None:
        self.user = user
        self.app = app
        self.job: str | None = None
        self._clock = clock

    async def run(self) -> str:
        """Return the line to report for an app that did its work."""
        submitted = self._clock()
        self.job = job = await self.user.start(self.app.name)
        await self.user.until_running(job)
        async with client() as early:
            await (await _open(early, self.user, job)).until_ready()
        ready = self._clock() - submitted
        # Opening is measured with another client, so that it does not include the start.
        async with client() as browser:
            watch = Stopwatch(self._clock)
            said = await WORK[self.app.kind](await _open(browser, self.user, job), watch)
        if watch.seconds is None:
            raise SmokeFailed("the work was done without a first byte")
        first = watch.seconds
        return f"submit to ready {ready:6.2f} s   open to first byte {first:6.3f} s   {said}"


async def _try(
    trial: Trial, report: Callable[[str], None], seconds: float, explain: Explain | None
) -> bool:
    """Report on the app, and return whether it did its work."""
    app = trial.app
    try:
        try:
            async with asyncio.timeout(seconds):
                line = await trial.run()
        except TimeoutError:
            line, good = f"not done after {seconds:.0f} seconds", False
        except (SmokeFailed, aiohttp.ClientError, OSError) as error:
            line, good = _text(error), False
        else:
            good = True
        lines = [f"  {'✓' if good else '✗'} {app.kind:<9} {app.title:<11} {line}"]
        if not good and explain is not None and trial.job is not None:
            lines += [f"      {one}" for one in await explain(trial.job, app)]
        report("\n".join(lines))
        return good
    finally:
        if trial.job is not None:
            await _stop(trial.user, trial.job)


async def _open(http: aiohttp.ClientSession, user: User, job: str) -> Opened:
    while True:
        opened = await open_link(http, await user.link(job))
        if opened is not None:
            return opened
        await asyncio.sleep(LOOK_SECONDS)


async def _stop(user: User, job: str) -> None:
    """Leave nothing in the cluster, which may be a shared one."""
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await user.stop(job)
            await user.until_over(job)
    except (SmokeFailed, aiohttp.ClientError, TimeoutError):
        return  # the earlier finding is what is reported


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__

"""``make demo``: runs everything on this machine, prints one address, and cleans up on Ctrl-C.

With ``--smoke`` the demo starts, opens and uses each app as a client would, and ends. With
``KUBECONFIG`` set, it uses that cluster instead of the embedded one, in a namespace of its own. It
dials that cluster's pods in ``POD_NETWORKS`` (default: the private networks). With
``--orchestrator`` it uses your orchestrator instead of the reference one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.kube.errors import KubeError
from deploy.local.apps.catalogue import APPS
from deploy.local.cluster.launch import ClusterFailed
from deploy.local.diagnosis import Diagnosis
from deploy.local.processes import ProgramFailed
from deploy.local.progress import Progress
from deploy.local.redis import NoRedis
from deploy.local.smoke import run_smoke
from deploy.local.smoke.run import APP_SECONDS, Explain
from deploy.local.system import LocalSystem
from shared.settings import origin

T = TypeVar("T")

PAGE_PORT: Final = 8480
PUBLIC_PORT: Final = 8488
API_PORT: Final = 8481
WATCH_SECONDS: Final = 0.5
UNREACHED_SECONDS: Final = 5.0
PULL_SECONDS: Final = 600.0
"""The deadline of an app whose image may have to be pulled first."""


def main() -> int:
    """Run the demo; return its exit code."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="use each app once, then end")
    parser.add_argument("--seed", type=int, help="the seed of the embedded cluster")
    parser.add_argument(
        "--orchestrator",
        type=origin,
        help="the origin of your own, running orchestrator",
    )
    arguments = parser.parse_args()
    if arguments.smoke and arguments.orchestrator:
        parser.error("--smoke needs the reference orchestrator: leave --orchestrator out")
    try:
        return asyncio.run(
            run(smoke=arguments.smoke, seed=arguments.seed, orchestrator=arguments.orchestrator)
        )
    except (ProgramFailed, ClusterFailed, KubeError, NoRedis) as error:
        print(f"demo: {error}")
        return 1


async def run(*, smoke: bool, seed: int | None, orchestrator: str | None = None) -> int:
    """Start everything; end it on Ctrl-C, on SIGTERM, or when a program has ended."""
    progress = Progress()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    kubeconfig = os.environ.get("KUBECONFIG")
    system = LocalSystem(
        page_port=0 if smoke else PAGE_PORT,
        public_port=0 if smoke else PUBLIC_PORT,
        api_port=0 if smoke else API_PORT,
        own_orchestrator=orchestrator,
        kubeconfig=Path(kubeconfig) if kubeconfig else None,
        pod_networks=os.environ.get("POD_NETWORKS"),
        seed=seed,
        report=progress.report,
    )
    progress.say("Starting Fumarole on this machine")
    try:
        async with progress.moving():
            await _unless(stopping, system.start_all())
            if smoke and not stopping.is_set():
                return await _smoke(system, progress, stopping)
        if not stopping.is_set():
            _welcome(system, progress)
            return await _watch(system, progress, stopping)
        return 130
    finally:
        progress.say("Stopping everything")
        async with progress.moving():
            await system.stop_all()


async def _smoke(system: LocalSystem, progress: Progress, stopping: asyncio.Event) -> int:
    apps, seconds = APPS, APP_SECONDS
    if system.cluster is None:
        apps = {name: app for name, app in APPS.items() if not app.process_only}
        seconds = PULL_SECONDS
    work = run_smoke(
        system.address, progress.say, apps=apps, seconds=seconds, explain=explanation_of(system)
    )
    good = await _unless(stopping, work)
    if not good:
        for name in ("controller", "hub", "gateway"):
            log = system.layout.log_of(name).read_text(errors="replace").splitlines()[-20:]
            progress.say("\n".join([f"--- the last lines of the {name}'s log", *log]))
    return 0 if good else 1


def explanation_of(system: LocalSystem) -> Explain | None:
    """Return the diagnosis of apps in a given cluster; None for the embedded one."""
    diagnosis = diagnosis_of(system)
    return None if diagnosis is None else diagnosis.explain


def diagnosis_of(system: LocalSystem) -> Diagnosis | None:
    """Return the inspection of pods in a given cluster; None for the embedded one.

    The pods of the embedded cluster are on this machine: there the programs' logs say everything.
    """
    use, layout = system.layout.cluster, system.layout
    if system.cluster is not None:
        return None
    return Diagnosis(
        kubeconfig=use.kubeconfig,
        namespace=use.namespace,
        pod_networks=use.pod_networks,
        hub_log=lambda: layout.log_of("hub").read_text(errors="replace"),
    )


async def tell_unreached(
    diagnosis: Diagnosis, say: Callable[[str], None], *, every_seconds: float = UNREACHED_SECONDS
) -> None:
    """Report each pod that runs and cannot be reached from here, once; until cancelled."""
    told: set[str] = set()
    while True:
        # The API server may be unavailable for a while. That is reported elsewhere.
        with suppress(KubeError):
            for uid, why in (await diagnosis.unreached()).items():
                if uid not in told:
                    told.add(uid)
                    say(f"  ✗ {why}")
        await asyncio.sleep(every_seconds)


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of *work*, or None as soon as the demo has to stop."""
    task, stop = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for each in (task, stop):
            each.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)


def _welcome(system: LocalSystem, progress: Progress) -> None:
    layout = system.layout
    progress.say(
        f"\n  Open  {system.address}\n\n"
        f"  Controller:   {layout.api_url}\n"
        f"  Gateway:      {layout.gateway_url}\n"
        f"  The cluster:  kubectl --kubeconfig {system.kubeconfig_of('admin')} get vcjob,pods -A\n"
        f"  Logs:         {layout.folder / 'log'}\n"
        "  Ctrl-C ends everything and removes every trace.\n"
    )


async def _watch(system: LocalSystem, progress: Progress, stopping: asyncio.Event) -> int:
    diagnosis = diagnosis_of(system)
    telling = None
    if diagnosis is not None:
        telling = asyncio.create_task(tell_unreached(diagnosis, progress.say))
    try:
        return await _until_one_ends(system, progress, stopping)
    finally:
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _until_one_ends(system: LocalSystem, progress: Progress, stopping: asyncio.Event) -> int:
    while not stopping.is_set():
        for program in system.dead():
            progress.say(f"{program.name} has ended:\n{program.last_words()}")
            return 1
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await stopping.wait()
        except TimeoutError:
            continue
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

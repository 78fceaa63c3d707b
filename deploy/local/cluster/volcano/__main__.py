"""Install Volcano's kinds and webhooks, then control and schedule until SIGTERM."""

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from aiohttp import web

from deploy.local.cluster.certificates import ensure_pki, server_context
from deploy.local.cluster.client import Client, Object
from deploy.local.cluster.kubeconfig import read_kubeconfig
from deploy.local.cluster.lags import Lags, RateLimit
from deploy.local.cluster.program import (
    Stop,
    announce_ready,
    client_parser,
    run_program,
    wait_for_file,
)
from deploy.local.cluster.volcano.controller import JobController
from deploy.local.cluster.volcano.definitions import (
    DEFINITIONS,
    QUEUES,
    SCHEDULING,
    make_definitions,
)
from deploy.local.cluster.volcano.scheduler import Scheduler
from deploy.local.cluster.volcano.webhook import install_webhooks, make_app

_READY_SECONDS = 60.0
_BURST_SECONDS = 2.0
"""The rate of the job controller's client: 50 requests a second, 100 at once."""


async def _run(arguments: argparse.Namespace, stop: Stop) -> None:
    chance = random.Random(f"volcano {arguments.seed}")  # noqa: S311 - chooses behaviour, no secret
    await wait_for_file(arguments.kubeconfig, stop)
    lags = Lags(arguments.lags)
    lags.follow()
    access = read_kubeconfig(arguments.kubeconfig)
    # Only the job controller's client is slow: the scheduler's may make 2000 requests a second.
    limit = RateLimit(lags, "volcano-client", burst_seconds=_BURST_SECONDS)
    async with Client(access) as client, Client(access, limit=limit) as slow:
        for definition in make_definitions():
            await client.ensure(DEFINITIONS, "", definition)
        controller = JobController(slow, chance, lags)
        scheduler = Scheduler(client, controller.queues)
        runner = web.AppRunner(make_app(lambda: _by_name(controller)), access_log=None)
        await runner.setup()
        try:
            await _serve(client, controller, scheduler, runner, stop)
        finally:
            await runner.cleanup()


async def _serve(
    client: Client,
    controller: JobController,
    scheduler: Scheduler,
    runner: web.AppRunner,
    stop: Stop,
) -> None:
    with tempfile.TemporaryDirectory(prefix="volcano-pki-") as folder:
        pki = ensure_pki(Path(folder))
        tls, authority = server_context(pki), pki.authority
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    await install_webhooks(client, runner.addresses[0][1], authority)
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(controller.run()), tasks.create_task(scheduler.run())]
        await controller.synced()
        await _ensure_queues(client, controller)
        announce_ready()
        await stop.wait()
        for task in work:
            task.cancel()


async def _ensure_queues(client: Client, controller: JobController) -> None:
    """Make the queues that Volcano creates, and return when jobs may name ``default``."""
    for name, spec in (("root", {}), ("default", {"weight": 1, "reclaimable": True})):
        value: Object = {
            "apiVersion": SCHEDULING,
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }
        await client.ensure(QUEUES, "", value)
    async with asyncio.timeout(_READY_SECONDS):
        while not _is_open(controller, "default"):  # noqa: ASYNC110 - a cache, filled by a watch
            await asyncio.sleep(0.01)


def _is_open(controller: JobController, name: str) -> bool:
    queue = controller.queues.get("", name) or {}
    return (queue.get("status") or {}).get("state") == "Open"


def _by_name(controller: JobController) -> dict[str, Object]:
    return {name: queue for (_, name), queue in controller.queues.objects.items()}


def main() -> None:
    """Run until SIGTERM."""
    parser = client_parser("The embedded cluster's Volcano: jobs, gangs and webhooks.")
    parser.add_argument("--lags", type=Path, help="file of what is late, read again at SIGHUP")
    run_program(_run, parser.parse_args())


if __name__ == "__main__":
    main()

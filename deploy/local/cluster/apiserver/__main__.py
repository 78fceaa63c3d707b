"""Start the API server, and write a kubeconfig for each identity."""

import argparse
import asyncio
import json
import random
import secrets
import shutil
import signal
from pathlib import Path
from typing import Any

from aiohttp import web

from deploy.local.cluster.apiserver.access import AccessControl, User
from deploy.local.cluster.apiserver.app import RequestHandler
from deploy.local.cluster.apiserver.audit import FILE, Audit
from deploy.local.cluster.apiserver.blocks import ServiceBlock
from deploy.local.cluster.apiserver.controllers import Controllers, serve_definitions
from deploy.local.cluster.apiserver.faults import Faults
from deploy.local.cluster.apiserver.kinds import KindTable, make_builtin_kinds
from deploy.local.cluster.apiserver.kubelets import Kubelets
from deploy.local.cluster.apiserver.metrics import MetricsServer
from deploy.local.cluster.apiserver.options import Options
from deploy.local.cluster.apiserver.registry import Registry
from deploy.local.cluster.apiserver.resources import Resources
from deploy.local.cluster.apiserver.reviews import is_alive
from deploy.local.cluster.apiserver.store import Store
from deploy.local.cluster.apiserver.webhooks import Webhooks
from deploy.local.cluster.certificates import Pki, client_context, ensure_pki, server_context
from deploy.local.cluster.kubeconfig import write_kubeconfig
from deploy.local.cluster.lags import FILE as LAGS_FILE
from deploy.local.cluster.lags import Lags
from deploy.local.cluster.program import Stop, announce_ready, make_parser, run_program

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_DISTURBED = {"409": 1 / 30, "429": 1 / 30}
_ROOT = User("system:apiserver", ("system:masters",))


async def _run(arguments: argparse.Namespace, stop: Stop) -> None:
    state: Path = arguments.state
    chance = random.Random(f"apiserver {arguments.seed}")  # noqa: S311 - chooses behaviour, no secret
    store, kinds = Store(), KindTable(make_builtin_kinds())
    store.listen(lambda key, event: serve_definitions(kinds, key, event))
    pki = ensure_pki(state / "pki")
    webhooks = Webhooks(store)
    services = ServiceBlock()
    registry = Registry(store, kinds, webhooks, services.network)
    kubelets = Kubelets(store, kinds.by_key(("", "pods")), client_context(pki))
    tokens = {name: secrets.token_urlsafe(32) for name in _identities(state)}
    users = [(tokens[name], user) for name, user in _identities(state).items()]
    faults = Faults(chance, _DISTURBED if arguments.disturb else {}, spare=not arguments.disturb)
    lags = Lags(state / LAGS_FILE)

    def read_again() -> None:
        faults.read(state / "faults.json")
        lags.read()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, read_again)
    access = AccessControl(users, lambda account: is_alive(store, account))
    resources = Resources(registry, kubelets, chance, faults, access.issue)
    seconds = arguments.metrics_seconds
    metrics = MetricsServer(store, kubelets, seconds) if seconds else None
    handler = RequestHandler(kinds, resources, access, faults, Audit(state / FILE), metrics)
    runner = web.AppRunner(handler.make_app(), access_log=None, shutdown_timeout=0.5)
    try:
        # A controller that fails ends the server: that is better than one that collects no garbage.
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(
                    Controllers(registry, chance, lags, pki.authority.decode()).run()
                ),
                tasks.create_task(_compact_now_and_then(store, chance)),
            ]
            if metrics is not None:
                beside.append(tasks.create_task(metrics.run()))
            await _ensure_namespaces(registry)
            port = await _listen(runner, arguments.port, pki)
            for name, token in tokens.items():
                path = state / "kubeconfig" / f"{name}.yaml"
                write_kubeconfig(path, f"https://127.0.0.1:{port}", pki.authority, name, token)
            announce_ready()
            await stop.wait()
            for task in beside:
                task.cancel()
    finally:
        await runner.cleanup()
        await webhooks.close()
        await kubelets.close()
        services.close()
        if stop.orphaned:  # nobody else is left to remove it
            await asyncio.to_thread(shutil.rmtree, state, ignore_errors=True)


async def _listen(runner: web.AppRunner, port: int, pki: Pki) -> int:
    """Serve on *port*, or on any port for 0; return the port."""
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=server_context(pki)).start()
    return int(runner.addresses[0][1])


async def _ensure_namespaces(registry: Registry) -> None:
    """Make the namespaces of a new cluster, and return when each has its account."""
    kind = registry.kinds.by_key(("", "namespaces"))
    for name in _NAMESPACES:
        body = {"metadata": {"name": name}}
        await registry.create(kind, "", body, user=_ROOT, options=Options())
    while len(registry.store.items(("", "serviceaccounts"))) < len(_NAMESPACES):  # noqa: ASYNC110 - once
        await asyncio.sleep(0.01)


def _identities(state: Path) -> dict[str, User]:
    path = state / "identities.json"
    admin: dict[str, Any] = {"admin": {"user": "kubernetes-admin", "groups": ["system:masters"]}}
    known = json.loads(path.read_text()) if path.exists() else admin
    return {
        name: User(entry["user"], tuple(entry["groups"]), tuple(entry.get("rules", ())))
        for name, entry in known.items()
    }


async def _compact_now_and_then(store: Store, chance: random.Random) -> None:
    """Forget history as etcd does, at moments that the seed chooses: older watches then get 410."""
    while True:
        await asyncio.sleep(chance.uniform(5, 60))
        store.compact()


def main() -> None:
    """Run until SIGTERM."""
    parser = make_parser("The embedded cluster's API server.")
    parser.add_argument("--state", type=Path, required=True, help="where kubeconfigs are written")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: any)")
    parser.add_argument(
        "--disturb", action="store_true", help="answer 409 and 429 now and then, as the seed says"
    )
    parser.add_argument(
        "--metrics-seconds",
        type=float,
        default=0.0,
        help="serve metrics.k8s.io, scraped as often (default: it is not there)",
    )
    run_program(_run, parser.parse_args())


if __name__ == "__main__":
    main()

"""Everything on one machine, each program a process of its own that can be killed and started.

async with LocalSystem() as system:
    print(system.address)
    await system.kill("gateway")
    await system.start("gateway")
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster_use import delete_namespace, embedded, given, make_namespace
from deploy.local.layout import PROGRAMS, Layout, Name, make_layout
from deploy.local.ports import Ports
from deploy.local.processes import Program, ProgramFailed

METRICS_SECONDS: Final = 2.0
"""How often the embedded cluster measures what Pods use. The orchestrator's page shows it."""

_ROOT: Final = Path(__file__).resolve().parents[2]

Report = Callable[[str, Literal["starting", "ready", "ended"]], None]


class LocalSystem:
    """The whole system, from `start_all` until `stop_all`; also an async context manager.

    Args:
        page_port: The port of the orchestrator's page, or the next free port; 0 for any.
        public_port: The same for the gateway.
        api_port: The same for the controller's API.
        own_orchestrator: The origin of an orchestrator that runs already, with its keys at
            ``/.well-known/jwks.json``. Without it the reference orchestrator is started.
        kubeconfig: An administrator's kubeconfig of a cluster. Without it the embedded cluster is
            started.
        pod_networks: The networks of that cluster's pods. Default: the private networks.
        seed: The seed of the embedded cluster.
        report: Called with each program that starts, is ready, or has ended.
    """

    def __init__(
        self,
        *,
        page_port: int = 0,
        public_port: int = 0,
        api_port: int = 0,
        own_orchestrator: str | None = None,
        kubeconfig: Path | None = None,
        pod_networks: str | None = None,
        seed: int | None = None,
        report: Report = lambda _name, _state: None,
    ) -> None:
        # A short path: that of a Unix socket has at most 107 bytes (unix(7)).
        self.folder = Path(tempfile.mkdtemp(prefix="fumarole-"))
        self._report = report
        ports = Ports()
        ports.take("page", page_port)
        ports.take("public", public_port)
        ports.take("api", api_port)
        self.cluster: EmbeddedCluster | None = None
        if kubeconfig is None:
            self.cluster = EmbeddedCluster(
                folder=self.folder / "cluster", seed=seed, metrics_seconds=METRICS_SECONDS
            )
            use = embedded(self.cluster.kubeconfig("controller"))
        else:
            use = given(kubeconfig, pod_networks)
        self.layout = make_layout(self.folder, ports, use, own_orchestrator=own_orchestrator)
        self._has_namespace = False
        self._programs = {name: self._make_program(name) for name in PROGRAMS}

    @property
    def address(self) -> str:
        """The address that a user opens."""
        return self.layout.page_url

    @property
    def job_namespace(self) -> str | None:
        """The namespace of all jobs; None if each owner has one."""
        return None if self.cluster is not None else self.layout.cluster.namespace

    def kubeconfig_of(self, identity: str) -> Path:
        """Return *identity*'s kubeconfig in the embedded cluster, else the given kubeconfig."""
        if self.cluster is not None:
            return self.cluster.kubeconfig(identity)
        return self.layout.cluster.kubeconfig

    async def __aenter__(self) -> Self:
        try:
            await self.start_all()
        except BaseException:  # Cancellation too: nothing else would stop the running programs.
            await self.stop_all()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop_all()

    async def start_all(self) -> None:
        """Start everything. Programs that do not depend on each other start at the same time.

        Raises:
            ProgramFailed, ClusterFailed: If a program does not become ready.
            KubeError: If the given cluster refuses the administrator's kubeconfig.
        """
        first = [self.start("redis"), self._start_cluster()]
        if self.layout.own_orchestrator is None:
            first.append(self.start("orchestrator"))
        await _together(*first)
        await _together(self.start("controller"), self.start("hub"), self.start("gateway"))

    async def stop_all(self) -> None:
        """End everything in order and remove every trace. A second call does nothing.

        Raises:
            KubeError: If the namespace cannot be deleted. Everything else is gone then.
        """
        for name in reversed(PROGRAMS):
            await self._programs[name].stop()
            self._report(name, "ended")
        if self.cluster is not None:
            await self.cluster.stop()
            self._report("cluster", "ended")
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        if self._has_namespace:
            await delete_namespace(self.layout.cluster)
            self._has_namespace = False

    async def start(self, name: Name) -> None:
        """Start one program (again) and return when it is ready."""
        self._report(name, "starting")
        await self._programs[name].start()
        self._report(name, "ready")

    async def stop(self, name: Name) -> None:
        """End one program with SIGTERM, and after its deadline with SIGKILL."""
        await self._programs[name].stop()

    async def kill(self, name: Name) -> None:
        """End one program with SIGKILL."""
        await self._programs[name].kill()

    def pid(self, name: Name) -> int:
        """Return the process id of a program that was started.

        Raises:
            ProgramFailed: If it was not started.
        """
        process = self._programs[name].process
        if process is None:
            raise ProgramFailed(f"{name} was not started")
        return process.pid

    def dead(self) -> list[Program]:
        """Return the programs that were started and have ended."""
        return [one for one in self._programs.values() if one.process and not one.alive]

    async def _start_cluster(self) -> None:
        self._report("cluster", "starting")
        if self.cluster is not None:
            await self.cluster.start()
        else:
            self._has_namespace = True  # also if the response is lost
            await make_namespace(self.layout.cluster)
        self._report("cluster", "ready")

    def _make_program(self, name: Name) -> Program:
        return Program(
            name=name,
            command=self.layout.command_of(name),
            environment=self.layout.settings_of(name),
            log=self.layout.log_of(name),
            is_ready=_readiness_of(self.layout, name),
            folder=_ROOT,
        )


def _readiness_of(layout: Layout, name: Name) -> Callable[[], Awaitable[bool]]:
    match name:
        case "redis":
            return lambda: _accepts(layout.redis.socket)
        case "orchestrator":
            return lambda: _answers(f"{layout.page_url}/healthz")
        case _:
            return lambda: _answers(f"{layout.ops_url(name)}/readyz")


async def _together(*calls: Coroutine[Any, Any, None]) -> None:
    # Not gather: if one fails, the others must have ended before the failure is reported.
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def _accepts(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True

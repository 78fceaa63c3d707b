"""Runs a container's probes, and acts on their results."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from deploy.local.cluster.kubelet.container import ContainerRun
from deploy.local.cluster.kubelet.probes import Where, follow_probe
from deploy.local.cluster.kubelet.sandboxes import Sandbox


@dataclass(frozen=True, slots=True)
class Checks:
    """The probes of one container. `run` lasts as long as its process."""

    container: ContainerRun
    sandbox: Sandbox
    address: str
    grace_seconds: float
    changed: Callable[[], None]
    record_event: Callable[[str, str, str], None]
    """Records an Event: its type, reason and message."""

    async def run(self) -> None:
        """Run the startup probe alone first, then the others, until cancelled."""
        spec, record, where = self.container.spec, self.container.record, self._where()
        if startup := spec.get("startupProbe"):
            started = asyncio.Event()

            def on_started(success: bool, why: str) -> None:
                if success:
                    started.set()
                else:
                    self._unhealthy("Startup", why)

            asking = asyncio.create_task(follow_probe(startup, where, on_started))
            try:
                await started.wait()
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            record.started = True
            record.ready = "readinessProbe" not in spec
            self.changed()
        async with asyncio.TaskGroup() as tasks:
            if probe := spec.get("readinessProbe"):
                tasks.create_task(follow_probe(probe, where, self._on_readiness))
            if probe := spec.get("livenessProbe"):
                tasks.create_task(follow_probe(probe, where, self._on_liveness))

    def _on_readiness(self, success: bool, why: str) -> None:
        if success != self.container.record.ready:
            self.container.record.ready = success
            self.changed()
        if not success:
            self.record_event("Warning", "Unhealthy", f"Readiness probe failed: {why}")

    def _on_liveness(self, success: bool, why: str) -> None:
        if not success:
            self._unhealthy("Liveness", why)

    def _unhealthy(self, probe: str, why: str) -> None:
        self.record_event("Warning", "Unhealthy", f"{probe} probe failed: {why}")
        killing = asyncio.create_task(self.container.kill(self.grace_seconds))
        killing.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _where(self) -> Where:
        ports = {
            port["name"]: port["containerPort"]
            for port in self.container.spec.get("ports") or []
            if "name" in port
        }
        return Where(self.sandbox, self.address, ports, self._execute)

    async def _execute(self, argv: list[str]) -> int:
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            specification = self.container.exec_specification(argv)
            process = await self.sandbox.run(specification, [nothing] * 3)
            return await process.wait()
        finally:
            os.close(nothing)

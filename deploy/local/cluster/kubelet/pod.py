"""One Pod on this node, from its binding until it is gone."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy.local.cluster.client import PODS, Client, Object, Refused
from deploy.local.cluster.kubelet.addresses import Addresses
from deploy.local.cluster.kubelet.checks import Checks
from deploy.local.cluster.kubelet.container import ContainerRun, PodContext, pod_hostname
from deploy.local.cluster.kubelet.environment import Unresolved
from deploy.local.cluster.kubelet.mounts import Step
from deploy.local.cluster.kubelet.network import Cable, PodNetwork
from deploy.local.cluster.kubelet.relay import Relay
from deploy.local.cluster.kubelet.sandboxes import Sandbox, SandboxFailed
from deploy.local.cluster.kubelet.sources import Sources, references
from deploy.local.cluster.kubelet.status import make_status
from deploy.local.cluster.kubelet.storage import Storage
from deploy.local.cluster.kubelet.volumes import claims_of, make_volumes, renew_volumes

_LOG: Final = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 0.5
_ENDED: Final = ("Succeeded", "Failed")
RecordEvent = Callable[[Object, str, str, str], None]


@dataclass(frozen=True, slots=True)
class Node:
    """The objects that all Pods of a node share."""

    client: Client
    name: str
    folder: Path
    addresses: Addresses
    storage: Storage
    sources: Sources
    isolated: bool
    root: Sequence[Step]
    record_event: RecordEvent
    """Records an Event about a Pod: type, reason, message."""

    network: PodNetwork | None = None
    """Joins the Pods. None: each is alone, or all share this machine's network."""


class PodRun:
    """A Pod. `run` is its life; `update` and `forget` pass on changes from the server."""

    def __init__(self, pod: Object, node: Node) -> None:
        self.pod = pod
        self._node = node
        self._folder = node.folder / pod["metadata"]["uid"]
        self._volumes_folder = self._folder / "volumes"
        self._references = references(pod["spec"])
        logs = self._folder / "logs"
        spec = pod["spec"]
        self.inits = [ContainerRun(c, logs, self._touch) for c in spec.get("initContainers") or []]
        self.mains = [ContainerRun(c, logs, self._touch) for c in spec["containers"]]
        self._recall()
        self.sandbox: Sandbox | None = None
        self._address = ""
        self._cable: Cable | None = None
        self._relay: Relay | None = None
        self._started_at = _now()
        self._changed = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._going = asyncio.Event()
        self._sources_changed = asyncio.Event()
        self._gone = False

    def _recall(self) -> None:
        """Take over from a kubelet that died. Its containers died with it."""
        status, policy = self.pod.get("status") or {}, self.pod["spec"]["restartPolicy"]
        for containers, key, rule in (
            (self.inits, "initContainerStatuses", "Never" if policy == "Never" else "OnFailure"),
            (self.mains, "containerStatuses", policy),
        ):
            shown = {entry["name"]: entry for entry in status.get(key) or []}
            for container in containers:
                if container.name in shown:
                    container.recall(shown[container.name], rule)

    def update(self, pod: Object) -> None:
        """Take the newer object of the Pod."""
        before, self.pod = self.pod["metadata"], pod
        if any(before.get(f) != pod["metadata"].get(f) for f in ("labels", "annotations")):
            self._sources_changed.set()
        if self._node.network is not None:
            self._node.network.pods_changed()
        if pod["metadata"].get("deletionTimestamp"):
            self._going.set()

    def source_changed(self, kind: str, namespace: str, name: str) -> None:
        """Record that a ConfigMap or Secret has changed."""
        if namespace == self.pod["metadata"]["namespace"] and (kind, name) in self._references:
            self._sources_changed.set()

    def forget(self) -> None:
        """Record that the Pod is gone from the server. Nothing of it may remain."""
        self._gone = True
        self._going.set()

    def find(self, container: str) -> ContainerRun | None:
        """Return a container by its name."""
        everything = [*self.mains, *self.inits]
        return next((c for c in everything if c.name == container), None)

    async def run(self) -> None:
        """Run the Pod until it is gone. Its processes and its folder always go, too."""
        publishing = asyncio.create_task(self._publish_forever())
        try:
            if self.pod.get("status", {}).get("phase") not in _ENDED:
                # Again if its sandbox died: a Pod outlives its processes.
                while not await self._live_until_going():
                    pass
            await self._going.wait()
            await self._confirm_deletion()
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            await self._close_sandbox()
            for container in (*self.inits, *self.mains):
                for log in (container.log, container.previous_log):
                    if log is not None:
                        log.close()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _live_until_going(self) -> bool:
        """Run until all containers have ended or the Pod must go; return False after a failure."""
        life = asyncio.create_task(self._live())
        going = asyncio.create_task(self._going.wait())
        try:
            await asyncio.wait({life, going}, return_when=asyncio.FIRST_COMPLETED)
            if not life.done():
                await self._stop_containers(life)
            await asyncio.gather(life, return_exceptions=True)
        finally:
            for task in (life, going):
                task.cancel()
            await asyncio.gather(life, going, return_exceptions=True)
        error = None if life.cancelled() else life.exception()
        if error is not None:
            _LOG.error("%s failed", self.pod["metadata"]["name"], exc_info=error)
        await self._close_sandbox()
        self._touch()
        with contextlib.suppress(Refused, OSError, TimeoutError):  # else it is tried again
            await self._publish()
        if error is None or self._going.is_set():
            return True
        await asyncio.sleep(_RETRY_SECONDS)
        return False

    async def _stop_containers(self, life: asyncio.Task[None]) -> None:
        """Give the processes their grace period. Remaining ones end with the sandbox."""
        grace = 0 if self._gone else self.pod["metadata"].get("deletionGracePeriodSeconds", 0)
        for container in self.mains:
            if container.record.running:
                self._record_event("Normal", "Killing", f"Stopping container {container.name}")
        stops = (c.stop(grace) for c in (*self.inits, *self.mains))
        await asyncio.gather(*stops)
        await asyncio.wait({life}, timeout=1.0)
        life.cancel()

    async def _live(self) -> None:
        """Prepare, run the init containers one after the other, then the others together."""
        context = await self._prepare()
        policy = self.pod["spec"]["restartPolicy"]
        for container in self.inits:
            # In a Pod that always restarts, an init container still runs only until it succeeds.
            await container.keep_running(
                context, "Never" if policy == "Never" else "OnFailure", None
            )
            if container.record.exit_code != 0:
                return
        self._relay = Relay(context.sandbox, self._address)
        beside = [
            asyncio.create_task(self._relay.run()),
            asyncio.create_task(self._renew_volumes_forever()),
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                for container in self.mains:
                    tasks.create_task(self._keep(container, context, policy))
        finally:
            self._relay = None
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _keep(self, container: ContainerRun, context: PodContext, policy: str) -> None:
        checks = Checks(
            container,
            context.sandbox,
            self._address,
            self.pod["spec"].get("terminationGracePeriodSeconds", 30),
            self._touch,
            self._record_event,
        )

        def probing() -> asyncio.Task[None]:
            return asyncio.create_task(checks.run())

        await container.keep_running(context, policy, probing)

    async def _prepare(self) -> PodContext:
        """Return what the containers share; retry while something is missing."""
        while True:
            try:
                return await self._prepared()
            except (Unresolved, SandboxFailed, Refused, OSError) as error:
                self._record_event("Warning", "FailedMount", str(error))
                await self._close_sandbox()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _prepared(self) -> PodContext:
        namespace = self.pod["metadata"]["namespace"]
        contents = await self._node.sources.fetch(self.pod)
        places = {
            name: await self._node.storage.place_of(namespace, name) for name in claims_of(self.pod)
        }
        volumes = make_volumes(self.pod, self._volumes_folder, contents, places)
        self.sandbox = await Sandbox.start(isolated=self._node.isolated)
        if not self._address:
            self._address = self._node.addresses.take()
        if self._node.network is not None:
            self._cable = await self._node.network.attach(
                self.sandbox, self._address, self._with_address
            )
        await self.sandbox.set_hostname(pod_hostname(self.pod))
        for volume in volumes.values():
            if volume.memory:
                await self.sandbox.mount_memory(volume.path, volume.size)

        def lookup(kind: str, name: str) -> dict[str, str] | None:
            content = contents.get((kind, name))
            return None if content is None else {k: v.decode() for k, v in content.items()}

        return PodContext(
            pod=self._with_address,
            sandbox=self.sandbox,
            folder=self._folder,
            volumes=volumes,
            lookup=lookup,
            root=self._node.root,
            changed=self._touch,
            record_event=self._record_event,
        )

    async def _renew_volumes_forever(self) -> None:
        """Write changed ConfigMaps, Secrets, labels and annotations into the volumes."""
        while True:
            await self._sources_changed.wait()
            self._sources_changed.clear()
            try:
                contents = await self._node.sources.fetch(self.pod)
                renew_volumes(self.pod, self._volumes_folder, contents)
            except (Unresolved, Refused, OSError, TimeoutError) as error:
                _LOG.info("volumes of %s stay: %s", self.pod["metadata"]["name"], error)

    def _with_address(self) -> Object:
        status = {**self.pod.get("status", {}), "podIP": self._address, "hostIP": "127.0.0.1"}
        return {**self.pod, "status": status}

    # --- reports to the server ---

    def _touch(self) -> None:
        self._changed.set()
        if self._node.network is not None:
            self._node.network.pods_changed()

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        self._node.record_event(self.pod, kind, reason, message)

    async def _publish_forever(self) -> None:
        self._touch()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._publish()
            except (Refused, OSError, TimeoutError) as error:
                _LOG.warning("status of %s: %s", self.pod["metadata"]["name"], error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._touch()

    async def _publish(self) -> None:
        async with self._publishing:  # an older status must not overtake a newer one
            if self._relay is not None:
                # A probe asks inside the Pod. What has passed it must be reached from outside too.
                await self._relay.look()
            await self._write_status()

    async def _write_status(self) -> None:
        """Write the status, unless the server has it already or the Pod is gone."""
        metadata = self.pod["metadata"]
        if self._gone or self.pod.get("status", {}).get("phase") in _ENDED:
            return
        status = make_status(
            self.pod,
            [c.record for c in self.inits],
            [c.record for c in self.mains],
            address=self._address,
            host="127.0.0.1",
            started_at=self._started_at,
            now=_now(),
        )
        change = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            self.pod = await self._node.client.patch(
                PODS, metadata["namespace"], metadata["name"], change, "status"
            )
        except Refused as error:
            if error.code != 404:
                raise  # a 409 too: if another Pod has the name, the watch will say so
            self.forget()

    async def _confirm_deletion(self) -> None:
        """Report to the server that nothing is left of the Pod; retry until it succeeds."""
        metadata = self.pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        name = (metadata["namespace"], metadata["name"])
        while not self._gone:
            try:
                await self._node.client.delete(PODS, *name, options)
                return
            except (Refused, OSError, TimeoutError) as error:
                if isinstance(error, Refused) and error.code == 409:
                    return  # the name is another Pod's
                _LOG.warning("deletion of %s: %s", metadata["name"], error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _close_sandbox(self) -> None:
        if self._cable is not None and self._node.network is not None:
            self._node.network.detach(self._cable)
            self._cable = None
        if self.sandbox is not None:
            sandbox, self.sandbox = self.sandbox, None
            await sandbox.close()
        if self._address:
            self._node.addresses.give_back(self._address)
            self._address = ""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

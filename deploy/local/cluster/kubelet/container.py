"""One container of a Pod: it runs, ends, and runs again as the restart policy requires."""

import asyncio
import contextlib
import os
import shutil
import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from deploy.local.cluster.kubelet.environment import (
    Lookup,
    Unresolved,
    make_command,
    make_environment,
)
from deploy.local.cluster.kubelet.images import Image, find_image
from deploy.local.cluster.kubelet.logs import Log
from deploy.local.cluster.kubelet.memory import exceeded, limit_of
from deploy.local.cluster.kubelet.mounts import TERMINATION_LOG, Step, make_mounts
from deploy.local.cluster.kubelet.names import make_resolver_file
from deploy.local.cluster.kubelet.network import NAME_SERVER
from deploy.local.cluster.kubelet.sandboxes import Process, Sandbox, SandboxFailed, StartFailed
from deploy.local.cluster.kubelet.status import Container, new_container, recall, terminated
from deploy.local.cluster.kubelet.volumes import Volume

Object = dict[str, Any]
_FIRST_BACKOFF_SECONDS: Final = 10.0
_LAST_BACKOFF_SECONDS: Final = 300.0
_FORGIVEN_AFTER_SECONDS: Final = 600.0
_CONFIGURE_AGAIN_SECONDS: Final = 1.0
_MESSAGE_BYTES: Final = 4096
_FALLBACK_BYTES, _FALLBACK_LINES = 2048, 80
_NEVER: Final = "1970-01-01T00:00:00Z"
"""The start time that containerd gives to a program that could not be started."""
_RUNTIME: Final = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: "
)


class ConfigurationError(RuntimeError):
    """The container cannot be made as its spec requires."""


@dataclass(frozen=True, slots=True)
class PodContext:
    """The objects that all containers of a Pod share."""

    pod: Callable[[], Object]
    sandbox: Sandbox
    folder: Path
    volumes: Mapping[str, Volume]
    lookup: Lookup
    root: Sequence[Step]
    changed: Callable[[], None]
    record_event: Callable[[str, str, str], None]
    """Records an Event: its type, reason and message."""


class ContainerRun:
    """A container of a spec; `record` is its part of the Pod's status."""

    def __init__(self, spec: Object, log_folder: Path, changed: Callable[[], None]) -> None:
        self.spec = spec
        self.record: Container = new_container(spec, "ContainerCreating")
        self.log: Log | None = None
        self.previous_log: Log | None = None
        self.process: Process | None = None
        self.specification: Object | None = None
        self._log_folder = log_folder
        self._changed = changed
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._runs = True

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.spec["name"])

    def recall(self, shown: Object, policy: str) -> None:
        """Continue from the status that another kubelet published."""
        self._runs = recall(self.record, shown, policy)

    def wait_for(self, reason: str, message: str = "") -> None:
        """Show that the container waits, with the reason."""
        waiting = {"reason": reason, **({"message": message} if message else {})}
        self.record.state = {"waiting": waiting}
        self.record.ready = self.record.started = False
        self._changed()

    async def keep_running(
        self, context: PodContext, policy: str, running: Callable[[], asyncio.Task[None]] | None
    ) -> None:
        """Run the container until *policy* requires no further start, or it is stopped.

        Args:
            context: The objects that all containers of the Pod share.
            policy: The Pod's restart policy.
            running: Starts tasks that last as long as the process, such as probes.
        """
        backoff = _FIRST_BACKOFF_SECONDS
        while self._runs and not self._stopping.is_set():
            image = await self._pull(context)
            specification = await self._configure(context, image) if image else None
            if specification is None:
                return
            started = asyncio.get_running_loop().time()
            code = await self._run_once(context, specification, running)
            wanted = policy == "Always" or (policy == "OnFailure" and code != 0)
            if not wanted or self._stopping.is_set():
                return
            if asyncio.get_running_loop().time() - started > _FORGIVEN_AFTER_SECONDS:
                backoff = _FIRST_BACKOFF_SECONDS
            await self._back_off(context, backoff)
            backoff = min(2 * backoff, _LAST_BACKOFF_SECONDS)

    async def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after *grace_seconds*; the process is not started again."""
        self._stopping.set()
        await self.kill(grace_seconds)

    async def kill(self, grace_seconds: float) -> None:
        """End the process. The restart policy decides whether it is started again."""
        process = self.process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._ended.wait()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)

    def exec_specification(self, argv: list[str], *, tty: bool = False) -> Object:
        """Return the specification with which the sandbox runs *argv* beside the process.

        Raises:
            SandboxFailed: If the container does not run.
        """
        if self.process is None or self.specification is None:
            raise SandboxFailed(f"container {self.name} is not running")
        environment = dict(self.specification["env"])
        if tty:
            environment.setdefault("TERM", "xterm")
        return {
            "kind": "exec",
            "argv": argv,
            "env": environment,
            "cwd": self.specification["cwd"],
            "beside": self.process.pid,
            "tty": tty,
        }

    async def _pull(self, context: PodContext) -> Image | None:
        """Return the image; retry with pauses, as for a pull that fails. None: stopped."""
        backoff = _FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            image = find_image(self.spec["image"])
            if image is not None:
                return image
            name = self.spec["image"]
            message = f'failed to pull and unpack image "{name}": not found'
            self.wait_for("ErrImagePull", message)
            context.record_event("Warning", "Failed", f'Failed to pull image "{name}": not found')
            await self._pause(1.0)
            self.wait_for("ImagePullBackOff", f'Back-off pulling image "{name}"')
            await self._pause(backoff)
            backoff = min(2 * backoff, _LAST_BACKOFF_SECONDS)
        return None

    async def _configure(self, context: PodContext, image: Image) -> Object | None:
        """Return the specification to start; retry while the spec cannot be met. None: stopped."""
        while not self._stopping.is_set():
            try:
                return make_specification(self.spec, image, context)
            except (ConfigurationError, Unresolved, ValueError, OSError) as error:
                self.wait_for("CreateContainerConfigError", str(error))
                context.record_event("Warning", "Failed", f"Error: {error}")
                await self._pause(_CONFIGURE_AGAIN_SECONDS)
        return None

    async def _run_once(
        self,
        context: PodContext,
        specification: Object,
        running: Callable[[], asyncio.Task[None]] | None,
    ) -> int:
        """Run the process to its end and return its exit code."""
        identifier = f"embedded://{uuid.uuid4().hex}"
        started_at = _now()
        beside: asyncio.Task[None] | None = None
        self.specification = specification
        try:
            process, collecting = await self._start(context, specification)
        except StartFailed as error:
            context.record_event("Warning", "Failed", f"Error: {error}")
            ended = terminated(128, _NEVER, _now(), identifier)
            message = f"{_RUNTIME}{error}: unknown"
            ended["terminated"] |= {"reason": "StartError", "message": message}
            self._show_end(ended)
            return 128
        self.process = process
        self._ended.clear()
        self.record.identifier = identifier
        self.record.state = {"running": {"startedAt": started_at}}
        self.record.started = "startupProbe" not in self.spec
        self.record.ready = self.record.started and "readinessProbe" not in self.spec
        self._changed()
        context.record_event("Normal", "Started", f"Started container {self.name}")
        killing = asyncio.create_task(self._kill_if_too_large(context.sandbox, process))
        try:
            beside = running() if running else None
            code = await process.wait()
        finally:
            self.process = None
            self._ended.set()
            others = [killing] if beside is None else [killing, beside]
            too_large = killing.done() and killing.exception() is None
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await collecting
        ended = terminated(code, started_at, _now(), identifier)
        if too_large and code == -signal.SIGKILL:
            ended["terminated"]["reason"] = "OOMKilled"
            del ended["terminated"]["signal"]  # as containerd, which gives only the code
        if message := self._last_words(context, code):
            ended["terminated"]["message"] = message
        self._show_end(ended)
        return code

    async def _kill_if_too_large(self, sandbox: Sandbox, process: Process) -> None:
        """End the process once the container takes more memory than its limit, as a kernel does."""
        limit = limit_of(self.spec)
        if limit is None:
            await asyncio.Event().wait()
        else:
            await exceeded(lambda: sandbox.memory_of(process), limit)
        process.send_signal(signal.SIGKILL)

    def _last_words(self, context: PodContext, code: int) -> str:
        """Return the container's termination message."""
        message = ""
        with (
            contextlib.suppress(OSError),
            (own_folder(context, self.spec) / TERMINATION_LOG).open("rb") as file,
        ):
            message = file.read(_MESSAGE_BYTES).decode(errors="replace")
        policy = self.spec.get("terminationMessagePolicy")
        if not message and code != 0 and policy == "FallbackToLogsOnError" and self.log:
            return self.log.tail(_FALLBACK_LINES, _FALLBACK_BYTES)
        return message

    async def _start(
        self, context: PodContext, specification: Object
    ) -> tuple[Process, asyncio.Task[None]]:
        log = self._new_log()
        output, collecting = log.write_fd()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            return await context.sandbox.run(specification, [nothing, output, output]), collecting
        finally:
            os.close(nothing)
            os.close(output)

    def _new_log(self) -> Log:
        if self.previous_log is not None:
            self.previous_log.close()
        if self.log is not None:
            self.log.end()
        self.previous_log = self.log
        self.log = Log(self._log_folder / self.name / f"{self.record.restarts}.log")
        return self.log

    def _show_end(self, state: Object) -> None:
        self.record.state = state
        self.record.ready = self.record.started = False
        if self.log is not None:
            self.log.end()
        self._changed()

    async def _back_off(self, context: PodContext, seconds: float) -> None:
        self.record.last_state = self.record.state
        self.record.restarts += 1
        if self.record.restarts == 1:
            return  # the first restart is at once
        self.wait_for("CrashLoopBackOff", f"back-off {seconds:.0f}s restarting failed container")
        context.record_event(
            "Warning", "BackOff", f"Back-off restarting failed container {self.name}"
        )
        await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def make_specification(container: Object, image: Image, context: PodContext) -> Object:
    """Return the sandbox's specification to start *container*, with a new folder of its own.

    Raises:
        ConfigurationError: If the spec asks for a user that it forbids.
        Unresolved: If it refers to an object that does not exist.
    """
    pod = context.pod()
    declared = make_environment(container, pod, context.lookup)
    hostname = pod_hostname(pod)
    environment = {**image.environment, "HOSTNAME": hostname, **declared}
    user = _user(container, pod, image)
    own = _fresh_folder(own_folder(context, container), pod, user)
    mounts = make_mounts(container, image, context.volumes, own=own, environment=declared)
    for step in mounts:
        # A kubelet creates the folder of a subPath if it is missing.
        if step.get("sub") and not os.path.exists(step["source"]):
            os.makedirs(step["source"])
    working_dir = container.get("workingDir") or image.working_dir
    return {
        "kind": "container",
        "argv": make_command(container, image.entrypoint, image.command, declared),
        "env": environment,
        "cwd": working_dir if context.sandbox.isolated else str(own / "work"),
        "user": user,
        "root": str(own / "root"),
        "mounts": [*context.root, *mounts],
        "tty": False,
    }


def own_folder(context: PodContext, container: Object) -> Path:
    """Return the folder of the container's own files, outside of its volumes."""
    return context.folder / "containers" / str(container["name"])


def pod_hostname(pod: Object) -> str:
    """Return the host name that a Pod's processes see."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def _user(container: Object, pod: Object, image: Image) -> int:
    contexts = [container.get("securityContext") or {}, pod["spec"].get("securityContext") or {}]
    user = next((c["runAsUser"] for c in contexts if "runAsUser" in c), image.user)
    non_root = next((c["runAsNonRoot"] for c in contexts if "runAsNonRoot" in c), False)
    if non_root and user == 0:
        raise ConfigurationError("container has runAsNonRoot and image will run as root")
    return int(user)


def _fresh_folder(own: Path, pod: Object, user: int) -> Path:
    """Make the container's writable folder and its files of /etc anew; return the folder."""
    shutil.rmtree(own, ignore_errors=True)
    for name in ("root", "work"):
        (own / name).mkdir(parents=True)
    hostname = pod_hostname(pod)
    (own / "hostname").write_text(f"{hostname}\n")
    (own / "hosts").write_text(make_hosts(pod))
    (own / TERMINATION_LOG).touch()
    namespace = pod["metadata"]["namespace"]
    (own / "resolv.conf").write_text(make_resolver_file(namespace, NAME_SERVER))
    (own / "passwd").write_text(f"root:x:0:0:root:/root:/bin/sh\n{_account(user)}")
    (own / "group").write_text(f"root:x:0:\nuser:x:{user}:\n" if user else "root:x:0:\n")
    return own


def _account(user: int) -> str:
    return f"user:x:{user}:{user}:user:/work:/bin/bash\n" if user else ""


def make_hosts(pod: Object) -> str:
    """Return the content of a Pod's hosts file."""
    hostname, spec = pod_hostname(pod), pod["spec"]
    names = hostname
    if spec.get("hostname") and spec.get("subdomain"):
        domain = f"{spec['subdomain']}.{pod['metadata']['namespace']}.svc.cluster.local"
        names = f"{hostname}.{domain}\t{hostname}"
    lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "::1\tlocalhost"]
    address = pod.get("status", {}).get("podIP")
    if address:
        lines.append(f"{address}\t{names}")
    aliases = spec.get("hostAliases") or []
    lines += [f"{alias['ip']}\t{' '.join(alias.get('hostnames') or [])}" for alias in aliases]
    return "\n".join(lines) + "\n"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

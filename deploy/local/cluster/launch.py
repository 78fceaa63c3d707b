"""Starts and ends the three programs as children of this process."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Literal, Self

from deploy.local.cluster.apiserver.faults import FAULTS
from deploy.local.cluster.identities import IDENTITIES
from deploy.local.cluster.lags import FILE as LAGS_FILE
from deploy.local.cluster.lags import write_lags
from deploy.local.cluster.pipes import read_chunks

Program = Literal["apiserver", "volcano", "kubelet"]

POD_NETWORK: Final = "127.64.0.0/10"
"""The network of all pods' addresses. A gateway has to allow it."""

PROGRAMS: Final[tuple[Program, ...]] = ("apiserver", "volcano", "kubelet")
SEED_VARIABLE: Final = "FUMAROLE_CLUSTER_SEED"
READY_LINE: Final = b"ready\n"
_ROOT: Final = Path(__file__).resolve().parents[3]


class ClusterFailed(RuntimeError):
    """A program of the embedded cluster ended, or was not ready in time."""


class EmbeddedCluster:
    """The three programs, from `start` until `stop`; also an async context manager.

    Nothing outlives it. Each child notices when this process is gone, however it ended, and the
    folder is removed with everything in it.

    Args:
        folder: The folder for kubeconfigs, logs and pods. Made if missing; without it, a new
            temporary folder. `stop` removes it, so use it for nothing else.
        seed: Chooses among legal behaviours. Default: ``FUMAROLE_CLUSTER_SEED``, else a random one,
            which is in `seed` for the message of a failing test.
        disturb: Whether the API server may also answer 409 and 429 now and then.
        lags: How late the parts are: keys of `lags.LAGS`. Default: no lags.
        plain: Whether Pods are plain processes even if the kernel allows namespaces.
        metrics_seconds: How often the use of Pods is measured for metrics.k8s.io. With 0 that API
            does not exist, as in a cluster without metrics-server.
        ready_seconds: How long all three together may take to be ready.
    """

    spawn: ClassVar[Callable[..., subprocess.Popen[bytes]]] = subprocess.Popen
    """Starts a program; tests pass one that has imported the programs already."""

    def __init__(
        self,
        *,
        folder: Path | None = None,
        seed: int | None = None,
        disturb: bool = False,
        lags: Mapping[str, float] | None = None,
        plain: bool = False,
        metrics_seconds: float = 0.0,
        ready_seconds: float = 120.0,
    ) -> None:
        self.seed = _chosen_seed(seed)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fumarole-cluster-"))
        self._disturb = disturb
        self._lags = lags or {}
        self._plain = plain
        self._metrics_seconds = metrics_seconds
        self._ready_seconds = ready_seconds
        self._children: dict[Program, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def kubeconfig(self, identity: str = "admin") -> Path:
        """Return the path of *identity*'s kubeconfig: a key of `IDENTITIES`."""
        if identity not in IDENTITIES:
            raise KeyError(f"no identity {identity!r}; there are {', '.join(IDENTITIES)}")
        return self.folder / "kubeconfig" / f"{identity}.yaml"

    def claim_folder(self, namespace: str, name: str) -> Path:
        """Return the folder of a claim of the default class, as its Pods' mounts show it."""
        return self.folder / "pods" / "claims" / namespace / name

    def log(self, program: Program) -> Path:
        """Return the path of *program*'s log."""
        return self.folder / "log" / f"{program}.log"

    async def start(self) -> None:
        """Start all three and return when a job can be submitted and its pods can run.

        Raises:
            ClusterFailed: If one ended or was not ready in time; the others have been ended.
        """
        for name in ("kubeconfig", "log", "pods"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / "identities.json").write_text(json.dumps(IDENTITIES))
        write_lags(self.folder / LAGS_FILE, self._lags)
        try:
            async with asyncio.timeout(self._ready_seconds):
                # At the same time, since most of a start is imports. The programs that need the API
                # wait until their kubeconfig appears.
                await asyncio.gather(*(self.start_program(name) for name in PROGRAMS))
        except TimeoutError as error:
            await self.stop()
            raise ClusterFailed(f"not ready after {self._ready_seconds} s") from error
        except BaseException:  # cancellation too: nothing else would stop the programs
            await self.stop()
            raise

    async def start_program(self, program: Program) -> None:
        """Start *program* (again), and return when it is ready."""
        child = self._spawn(program)
        self._children[program] = child
        if await _first_line(child) != READY_LINE:
            raise ClusterFailed(f"{program} ended before it was ready: {_tail(self.log(program))}")

    async def kill_program(self, program: Program) -> None:
        """End *program* with SIGKILL, to test the effects of its death."""
        child = self._children.pop(program)
        child.kill()
        await asyncio.to_thread(_end, child, grace_seconds=5.0)

    def set_faults(self, rates: Mapping[str, float]) -> None:
        """Make the API server fail at *rates* from now on: keys of `FAULTS`, from 0 to 1.

        Requests of the cluster's own programs and of the administrator do not fail.
        """
        if unknown := rates.keys() - FAULTS.keys():
            raise KeyError(f"no faults {sorted(unknown)}; there are {', '.join(FAULTS)}")
        path = self.folder / "faults.json"
        path.with_suffix(".new").write_text(json.dumps(dict(rates)))
        path.with_suffix(".new").replace(path)
        self._children["apiserver"].send_signal(signal.SIGHUP)

    def set_lags(self, values: Mapping[str, float]) -> None:
        """Make the cluster's parts as late as *values* from now on: keys of `lags.LAGS`."""
        write_lags(self.folder / LAGS_FILE, values)
        for program in ("apiserver", "volcano"):
            self._children[program].send_signal(signal.SIGHUP)

    def pid(self, program: Program) -> int:
        """Return the process id of *program*, which runs."""
        return self._children[program].pid

    def alive(self, program: Program) -> bool:
        """Whether *program* was started and has not ended."""
        child = self._children.get(program)
        return child is not None and child.poll() is None

    async def stop(self) -> None:
        """End all programs and remove the folder. A second call does nothing."""
        # The kubelet first: it must still end its pods in order.
        for program in reversed(PROGRAMS):
            child = self._children.pop(program, None)
            if child is not None:
                child.send_signal(signal.SIGTERM)
                await asyncio.to_thread(_end, child, grace_seconds=10.0)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        # A Popen and not an asyncio subprocess: `stop` must work from any event loop.
        with self.log(program).open("ab") as log:
            return self.spawn(
                [
                    sys.executable,
                    "-m",
                    f"deploy.local.cluster.{program}",
                    *self._arguments(program),
                ],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {SEED_VARIABLE: str(self.seed), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C reaches the launcher, which ends its children
            )

    def _arguments(self, program: Program) -> list[str]:
        common = ["--with-parent", "--seed", str(self.seed)]
        if program == "apiserver":
            disturb = ["--disturb"] if self._disturb else []
            metrics = ["--metrics-seconds", str(self._metrics_seconds)]
            return [*common, "--state", str(self.folder), *disturb, *metrics]
        if program == "kubelet":
            common += ["--state", str(self.folder / "pods"), "--pki", str(self.folder / "pki")]
            common += ["--plain"] if self._plain else []
        if program == "volcano":
            common += ["--lags", str(self.folder / LAGS_FILE)]
        return [*common, "--kubeconfig", str(self.kubeconfig(program))]


def _chosen_seed(seed: int | None) -> int:
    if seed is not None:
        return seed
    return int(os.environ.get(SEED_VARIABLE) or secrets.randbelow(2**31))


async def _first_line(child: subprocess.Popen[bytes]) -> bytes:
    """Return the child's first line; empty if it ended without one."""
    if child.stdout is None:
        return b""
    line = b""
    async with contextlib.aclosing(read_chunks(os.dup(child.stdout.fileno()), 4096)) as chunks:
        async for chunk in chunks:
            line += chunk
            if b"\n" in line:
                break
    return line


def _end(child: subprocess.Popen[bytes], *, grace_seconds: float) -> None:
    try:
        child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(5.0)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _tail(log: Path, characters: int = 2000) -> str:
    return log.read_text(errors="replace")[-characters:].strip() or "no message"

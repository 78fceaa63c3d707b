"""What all tests share: what they need beyond Python packages, and a real Redis."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from redis.asyncio import Redis
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling, Scheduling
from xdist.workermanage import WorkerController

from deploy.local.cluster import EmbeddedCluster
from deploy.local.redis import redis_program
from shared.bus import connect
from tests import warm
from tests.controller.postgres import Postgres, running_postgres
from tests.programs import RedisServer
from tests.redis_tls import tls_redis_program

HERE = Path(__file__).parent

# Tests start many clusters; those of tests/deploy/local/cluster/test_launch.py start for real.
EmbeddedCluster.spawn = staticmethod(warm.popen)

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("here", deadline=None)
if not os.environ.get("CI"):
    hypothesis.settings.load_profile("here")

# What a test may need, how to find it, and what would bring it.
SYSTEM = "make system"
# Whose tests share what is dear to start, or the demo's ports, and run in one process; those under
# pressure by wire.
GROUPS = {
    "docs/test_tutorials": "demo",
    "e2e/test_smoke": "demo",
    "e2e": "e2e",
    "conformance": "conformance",
    "pressure": "pressure",
}
TOOLS: dict[str, tuple[Callable[[], bool], str]] = {
    "chromium": (lambda: chromium() is not None, SYSTEM),
    "xvnc": (lambda: shutil.which("Xvnc") is not None, SYSTEM),
    "kubectl": (lambda: shutil.which("kubectl") is not None, "a kubectl on the PATH"),
    "postgres": (lambda: bool(shutil.which("pg_ctlcluster") or shutil.which("initdb")), SYSTEM),
    "namespaces": (lambda: _can_unshare(), "a kernel that lets users make namespaces"),
    "cc": (lambda: shutil.which("cc") is not None, SYSTEM),
    "node": (lambda: shutil.which("node") is not None, "node on the PATH"),
    "redis-tls": (lambda: tls_redis_program() is not None, SYSTEM),
    "spin": (lambda: bool(shutil.which("spin") and shutil.which("cc")), SYSTEM),
}


def chromium() -> str | None:
    """Return a Chromium or Chrome that runs; Ubuntu's stub, which needs snap, is none.

    First the one without windows: a page in it takes 0.25 CPU-s instead of 1, most of which makes
    the window around it.
    """
    names = ("chromium-headless-shell", "google-chrome", "chrome", "chromium", "chromium-browser")
    for name in names:
        path = shutil.which(name)
        if path is not None and "snap" not in str(Path(path).resolve()) and not _is_snap_stub(path):
            return path
    return None


def _is_snap_stub(path: str) -> bool:
    with Path(path).open("rb") as file:
        return b"snap" in file.read(2048) and Path(path).stat().st_size < 4096


def _can_unshare() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    return subprocess.run([unshare, "-Urmnpf", "true"], capture_output=True).returncode == 0


class ByModule(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """Runs a module's tests in one process, in their order: what they share is started once.

    Some of them share a system or ports: :data:`GROUPS`. Told by names alone, since xdist 3.8
    writes the marks ``xdist_group`` where pytest 9.2 does not look.

    Tests that say how long they may take run programs, and wait for them. Every second process
    begins with those, the longest first, beside others that compute: none is left for the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test."""
        module = nodeid.partition("::")[0]
        path = module.removeprefix("tests/")
        group = next((GROUPS[start] for start in GROUPS if path.startswith(start)), module)
        return f"{group}-{'TLS' in nodeid}" if group == "pressure" else group

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a process the group that is to run next."""
        longest = max(self.workqueue, key=patience)
        others = (group for group in self.workqueue if not patience(group))
        waits = self.nodes.index(node) % 2 == 0
        self.workqueue.move_to_end(longest if waits else next(others, longest), last=False)
        super()._assign_work_unit(node)


_TIMEOUT = re.compile(r"mark\.timeout\((\d+)\)")


@cache
def patience(group: str) -> int:
    """Return for how many seconds a group's tests ask at most; 0 where none says so."""
    if not group.endswith(".py"):
        return 3600
    return max(map(int, _TIMEOUT.findall(Path(group).read_text())), default=0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Keep to :class:`ByModule` where groups are asked for."""
    return ByModule(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the modules of tests, in each of several processes from another one on.

    All of them collect everything. In a fresh clone each would compile everything, too, and rewrite
    its assertions, at the same time and in the same order. What one has compiled the others find.
    """
    told = getattr(session.config, "workerinput", None)
    if told is None or [Path(one).resolve() for one in session.config.args] != [HERE]:
        return
    names = sorted(HERE.rglob("test_*.py"))
    first = len(names) * int(told["workerid"].removeprefix("gw")) // told["workercount"]
    for path in names[first:] + names[:first]:
        # What cannot be imported is told where it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Have the collector of cycles leave alone what was imported: millions of objects stay."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """End, once all fixtures have, the process from which others were forked."""
    warm.close()


@pytest.hookimpl(tryfirst=True)  # before those that are long are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a tool that is not here; under CI let it fail instead.

    On plain asyncio's loop nothing of the product ever runs: what is tested on both loops is so
    in the long run alone.
    """
    found: dict[str, bool] = {}
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {})
        if asyncio.new_event_loop in chosen.values():
            item.add_marker(pytest.mark.long)
        for marker in item.iter_markers("needs"):
            for tool in marker.args:
                find, remedy = TOOLS[tool]
                if tool not in found:
                    found[tool] = find()
                if not found[tool]:
                    item.add_marker(pytest.mark.skip(reason=f"needs {tool}: {remedy}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything must be there, also one that a test decides."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped under CI: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what the skipped tests would need."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = sorted({str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped})
    if reasons:
        terminalreporter.write_line(f"{len(skipped)} skipped. {'; '.join(reasons)}")


@pytest.fixture
def strict_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients verify certificates as Python 3.13 does, whichever Python this is."""
    make = ssl.create_default_context

    def strict(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **rest: Any) -> ssl.SSLContext:
        context = make(purpose, **rest)
        if purpose is ssl.Purpose.SERVER_AUTH:  # servers are no Python
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis of this module's own, on a Unix socket: nobody else's term stands in it."""
    with RedisServer(redis_program(), tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A client of an empty Redis."""
    client = connect(redis_server.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of this process' own; tests that use it are marked ``needs("postgres")``."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def embedded_cluster_kubeconfig() -> Iterator[Path]:
    """The administrator's kubeconfig of an embedded cluster of this test process' own."""
    cluster = EmbeddedCluster()
    asyncio.run(cluster.start())
    yield cluster.kubeconfig("admin")
    asyncio.run(cluster.stop())

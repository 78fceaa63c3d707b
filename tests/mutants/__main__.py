"""``python -m tests.mutants [--sample N] [--match TEXT] [module…]``: measures, writes the page."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TextIO

from tests.mutants.children import adopt_orphans
from tests.mutants.mutations import Module
from tests.mutants.results import ROOT, reasons, score, stale, store, summary, write_page
from tests.mutants.targets import TARGETS, Target
from tests.mutants.worker import MutantResult, Plan, run_worker


def main() -> int:
    """Measure the given modules, or all without arguments; write the page."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--sample", type=int, help="how many mutants of each module to try")
    parser.add_argument("--match", default="", help="only mutants with this text; nothing is kept")
    parser.add_argument("--page", action="store_true", help="write the page, measure nothing")
    parser.add_argument("modules", nargs="*", help="parts of paths, such as gateway/live")
    asked = parser.parse_args()
    wanted = [
        one
        for one in TARGETS
        if not asked.modules or any(part in one.file for part in asked.modules)
    ]
    if not wanted:
        parser.error(f"no such module; there are {', '.join(one.file for one in TARGETS)}")
    for target in wanted if not asked.page else ():
        measure(target, asked.sample, asked.match)
    if not asked.match:
        write_page([one.file for one in TARGETS])
    return 0


def measure(target: Target, sample: int | None, match: str) -> None:
    """Try the mutants of one module in a process of its own, and store the results."""
    path = ROOT / target.file
    module = Module(target.file, str(path), path.read_text())
    mutants = module.mutants()
    chosen = [one for one in mutants if match in one.identity]
    if sample is not None:
        chosen = sorted(chosen, key=lambda one: one.rank)[:sample]
    began = time.monotonic()
    tried = list(in_process(Plan(module, target.module, chosen, target.tests)))
    if not match:
        found = summary(len(mutants), tried)
        store({target.file: found})
        print(f"{target.file}: {score(found):.1f} %", end=" ")
    print(f"{len(tried)} of {len(mutants)} mutants in {time.monotonic() - began:.0f} s", flush=True)
    for gone in stale(target.file, mutants):
        print(f"  reasons.toml: no such mutant: {gone}")


def in_process(plan: Plan) -> Iterator[MutantResult]:
    """Run a worker in a fork, because pytest's imports stay; yield the results.

    Raises:
        RuntimeError: If the worker did not try every mutant.
    """
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        output, log = Path(folder, "tried"), Path(folder, "log")
        pid = os.fork()
        if pid == 0:
            _work(plan, output, log)
        _, status = os.waitpid(pid, 0)
        if status:
            print(log.read_text()[-4000:], file=sys.stderr)
            raise RuntimeError(f"{plan.name}: the tests without a mutation do not work")
        for line, mutant in zip(output.read_text().splitlines(), plan.mutants, strict=True):
            outcome, tests = json.loads(line)
            yield MutantResult(mutant, outcome, tests)


def _work(plan: Plan, output: Path, log: Path) -> None:
    code = 1
    try:
        progress = os.fdopen(os.dup(1), "w")
        with log.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        adopt_orphans()
        why = reasons()
        with output.open("w", buffering=1) as results:
            run_worker(plan, lambda tried: _report(tried, results, progress, why))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report(
    tried: MutantResult, results: TextIO, progress: TextIO, why: Container[tuple[str, ...]]
) -> None:
    """Send the result to the parent, and print survivors at once."""
    results.write(json.dumps([tried.outcome, tried.tests]) + "\n")
    if tried.outcome != "failed":
        known = " (with a reason)" if tried.mutant.key in why else ""
        progress.write(f"{tried.outcome}{known}: {tried.mutant.identity} [{tried.tests} tests]\n")
        progress.flush()


if __name__ == "__main__":
    sys.exit(main())

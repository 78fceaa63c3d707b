"""``python -m benchmarks``: the whole run. ``--quick`` takes four minutes, the full one some 32.

A full run writes docs/benchmarks.md and docs/benchmarks/. A quick run writes the same files into
.bench/quick, so the docs always come from a full run. ``--only WORK ...`` measures some works (of
``benchmarks.works``, and ``keystrokes``) as a full run does, and merges them into the existing
results; the page says that they were measured in another run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.install import install
from benchmarks.native_programs import NoCompiler, build
from benchmarks.plan import FULL, QUICK
from benchmarks.report import write_report
from benchmarks.results import Results
from benchmarks.run import KEYSTROKES, Run
from benchmarks.works import WORKS

ROOT: Final = Path(__file__).parents[1]
PEERS_FOLDER: Final = ROOT / ".bench"
NAMES: Final = (*(work.name for work in WORKS), KEYSTROKES)


def main() -> int:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four minutes; nothing into docs/")
    parser.add_argument("--only", nargs="+", metavar="WORK", choices=[*NAMES], default=[])
    given = parser.parse_args()
    quick: bool = given.quick
    only: list[str] = given.only
    print("installing the peers", flush=True)
    programs = install(PEERS_FOLDER)
    try:
        native = build(PEERS_FOLDER)
    except NoCompiler as error:
        print(error, file=sys.stderr)
        return 2
    # A run that is terminated ends its proxies, too, as with Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        run = Run(QUICK if quick else FULL, programs, native, Path(folder))
        asyncio.run(run.some(only) if only else run.all())
    out = PEERS_FOLDER / "quick" if quick else ROOT / "docs"
    results = run.results
    if only:
        results = Results.from_json((out / "benchmarks" / "results.json").read_text())
        results.take(only, run.results)
    page = write_report(results, out)
    run.say(f"written: {page.relative_to(ROOT)}")
    for problem in run.results.problems:
        print(f"  problem: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

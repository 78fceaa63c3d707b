"""``python -m benchmarks``: the whole run. ``--quick`` takes four minutes, the full one some 28.

A full run writes docs/benchmarks.md and docs/benchmarks/; a quick one writes the same into
.bench/quick, so that what is in the docs always comes from a full one.
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
from benchmarks.run import Run

ROOT: Final = Path(__file__).parents[1]
PEERS_FOLDER: Final = ROOT / ".bench"


def main() -> int:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four minutes; nothing into docs/")
    quick: bool = parser.parse_args().quick
    print("installing the peers", flush=True)
    programs = install(PEERS_FOLDER)
    try:
        native = build(PEERS_FOLDER)
    except NoCompiler as error:
        print(error, file=sys.stderr)
        return 2
    # Whoever is ended takes the proxies along, as with Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        run = Run(QUICK if quick else FULL, programs, native, Path(folder))
        asyncio.run(run.all())
    out = PEERS_FOLDER / "quick" if quick else ROOT / "docs"
    page = write_report(run.results, out)
    run.say(f"written: {page.relative_to(ROOT)}")
    for problem in run.results.problems:
        print(f"  problem: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

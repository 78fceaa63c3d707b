"""``python -m benchmarks.large_site``: measure, and print one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import uvloop

from benchmarks.large_site.run import measure


def main() -> int:
    """Measure a site of the size that the command names."""
    parser = argparse.ArgumentParser(prog="large_site")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=5, help="pods of each job")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        print(json.dumps(uvloop.run(measure(asked.jobs, asked.pods, Path(folder)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

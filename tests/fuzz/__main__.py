"""``python -m tests.fuzz --seconds 60 [--seed N] [target…]``: fuzzes up to a crash or time."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from tests.conftest import chromium
from tests.fuzz.corpus import add_to_corpus, read_corpus
from tests.fuzz.mutation import Fuzzer, Target
from tests.fuzz.pages import PAGE_TARGETS, Pages, page_targets
from tests.fuzz.targets import TARGETS

SLICE_SECONDS = 0.5


def main() -> int:
    """Fuzz the targets in turn; return 1 if one of them crashed."""
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("targets", nargs="*", help="all, when none is named")
    asked = parser.parse_args()
    with ExitStack() as stack:
        return fuzz(asked, [*TARGETS, *targets_of_pages(asked.targets, stack)])


def targets_of_pages(asked: Sequence[str], stack: ExitStack) -> Sequence[Target]:
    """Return the targets that need a browser, if one exists and one of them is *asked* for."""
    if asked and not set(asked) & set(PAGE_TARGETS):
        return ()
    if chromium() is None:
        print(f"without a Chromium: not {', '.join(PAGE_TARGETS)}")
        return ()
    return page_targets(stack.enter_context(Pages()))


def fuzz(asked: argparse.Namespace, targets: Sequence[Target]) -> int:
    """Fuzz the requested targets."""
    chosen = [one for one in targets if not asked.targets or one.name in asked.targets]
    print(f"seed {asked.seed}, {asked.seconds:g} s: {', '.join(one.name for one in chosen)}")
    fuzzers = [Fuzzer(one, random.Random(f"{asked.seed} {one.name}")) for one in chosen]
    crashed = 0
    for fuzzer in fuzzers:
        for case in read_corpus(fuzzer.target.name):
            fuzzer.target.check(case)
    until = time.monotonic() + asked.seconds
    while fuzzers and time.monotonic() < until:
        for fuzzer in tuple(fuzzers):
            # Each target gets the same time, however long one of its cases takes.
            end = time.monotonic() + SLICE_SECONDS
            crash = fuzzer.run(fuzzer.target.turn)
            while crash is None and time.monotonic() < end:
                crash = fuzzer.run(fuzzer.target.turn)
            if crash is not None:
                crashed += 1
                fuzzers.remove(fuzzer)
                path = add_to_corpus(crash.target, crash.data, crash.error)
                print(f"{crash.target}: {crash.error}\n  {crash.data!r}\n  added to {path.name}")
    for fuzzer in fuzzers:
        print(f"{fuzzer.target.name}: {fuzzer.tried:,} inputs, no crash")
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main())

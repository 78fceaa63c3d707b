"""Tests how workers that accept from one socket share the connections."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from gateway.workers.shares import Shares
from tests.gateway.process import ROOT


def test_a_single_worker_accepts_every_connection() -> None:
    shares = Shares(3)
    shares.set(0, 1_000_000)
    assert not shares.is_over(0)


def test_a_worker_slightly_above_the_mean_still_accepts() -> None:
    shares = Shares(2)
    shares.set(0, 8)
    shares.set(1, 0)
    assert not shares.is_over(0)
    shares.set(0, 30)
    assert shares.is_over(0)
    assert not shares.is_over(1)


def test_an_exited_worker_is_not_in_the_mean() -> None:
    shares = Shares(2)
    shares.set(0, 500)
    shares.set(1, 0)
    assert shares.is_over(0)
    shares.leave(1)
    assert not shares.is_over(0)


def test_all_processes_share_the_counts() -> None:
    # The fork is not in this process, where threads of tests may run.
    script = """
        import os
        from gateway.workers.shares import Shares
        shares = Shares(2)
        shares.set(0, 100)
        if not os.fork():
            shares.set(1, 7)
            os._exit(0)
        os.wait()
        assert shares.is_over(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, check=True)

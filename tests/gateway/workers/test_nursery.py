"""The nursery: starts, reaps, kills, and leaves nobody behind. Each runs in a process of its own,
since a test's process has threads and loops that must not be forked."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.gateway.process import ROOT

PROLOGUE = """
import os, select, signal, socket, sys, time
from gateway.workers.nursery import Ended, Started, start_nursery

def next_news(nursery):
    assert select.select([nursery], [], [], 10)[0]
    return nursery.news()

def start(nursery, number, listening=()):
    ours, theirs = socket.socketpair()
    nursery.start(number, theirs, listening)
    theirs.close()
    return ours
"""


def run(script: str) -> str:
    """Return what *script* prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_worker_gets_its_sockets_and_its_end_is_told() -> None:
    told = run("""
        def work(number, feed, listening):
            feed.sendall(b"%d %d %d" % (number, listening[0].getsockname()[1], os.getppid()))
            raise SystemExit(7)
        nursery = start_nursery(work)
        with socket.create_server(("127.0.0.1", 0)) as server:
            feed = start(nursery, 3, [server])
            started, ended = next_news(nursery), next_news(nursery)
            number, port, parent = feed.recv(100).split()
            assert (int(number), int(port)) == (3, server.getsockname()[1])
            assert int(parent) == nursery.pid
        assert isinstance(started, Started) and isinstance(ended, Ended), (started, ended)
        assert (ended.number, ended.pid, ended.code) == (3, started.pid, 7)
        assert feed.recv(1) == b""  # nobody else holds the worker's end
        nursery.close()
        print("ok")
    """)
    assert told == "ok\n"


def test_a_worker_that_fails_says_why_and_ends_with_1() -> None:
    run("""
        def work(number, feed, listening):
            os.dup2(feed.fileno(), 2)
            raise RuntimeError("this is why")
        nursery = start_nursery(work)
        feed = start(nursery, 0)
        next_news(nursery)
        assert next_news(nursery).code == 1
        assert b"this is why" in feed.recv(10000)
        nursery.close()
    """)


def test_a_worker_that_cannot_be_forked_has_ended_and_the_next_one_can() -> None:
    run("""
        import errno
        forks, fork = [], os.fork
        def failing():
            forks.append(1)
            if len(forks) == 2:  # the first is the nursery
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return fork()
        os.fork = failing
        nursery = start_nursery(lambda number, feed, listening: None)
        feed = start(nursery, 0)
        ended = next_news(nursery)
        assert isinstance(ended, Ended) and (ended.number, ended.pid, ended.code) == (0, 0, 1)
        assert feed.recv(1) == b""
        start(nursery, 0)
        started, ended = next_news(nursery), next_news(nursery)
        assert isinstance(started, Started) and (ended.pid, ended.code) == (started.pid, 0)
        nursery.close()
    """)


def test_a_worker_can_be_killed_also_when_it_is_stopped() -> None:
    run("""
        nursery = start_nursery(lambda number, feed, listening: time.sleep(100))
        start(nursery, 5)
        pid = next_news(nursery).pid
        os.kill(pid, signal.SIGSTOP)
        nursery.kill(4)  # another one: nothing happens
        nursery.kill(5)
        ended = next_news(nursery)
        assert (ended.number, ended.code) == (5, -signal.SIGKILL)
        nursery.kill(5)  # it has ended: nothing happens
        nursery.close()
    """)


def test_signals_to_all_processes_are_the_supervisors_alone() -> None:
    run("""
        def work(number, feed, listening):
            feed.sendall(b"+")
            feed.recv(1)
        nursery = start_nursery(work)
        feed = start(nursery, 0)
        pid = next_news(nursery).pid
        assert feed.recv(1) == b"+"
        for one in (nursery.pid, pid):
            os.kill(one, signal.SIGTERM)
            os.kill(one, signal.SIGINT)
        feed.sendall(b"-")
        assert next_news(nursery).code == 0
        nursery.close()
    """)


def test_when_the_supervisor_goes_everybody_does() -> None:
    run("""
        nursery = start_nursery(lambda number, feed, listening: time.sleep(100))
        for number in range(3):
            start(nursery, number)
        pids = [next_news(nursery).pid for _ in range(3)]
        nursery.close()
        for pid in pids:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                continue
            raise SystemExit(f"{pid} is still there")
    """)


def test_when_the_nursery_goes_everybody_does_and_it_is_told() -> None:
    run("""
        nursery = start_nursery(lambda number, feed, listening: time.sleep(100))
        feeds = [start(nursery, number) for number in range(2)]
        for _ in range(2):
            next_news(nursery)
        os.kill(nursery.pid, signal.SIGKILL)
        try:
            next_news(nursery)
        except EOFError:
            pass
        else:
            raise SystemExit("nothing was told")
        for feed in feeds:
            feed.settimeout(5)
            assert feed.recv(1) == b""
    """)


def test_a_supervisor_that_goes_without_hearing_all_news_is_no_failure() -> None:
    run("""
        nursery = start_nursery(lambda number, feed, listening: None)
        start(nursery, 0)
        time.sleep(0.5)  # Started and Ended wait to be read
        nursery._control.close()
        assert os.waitstatus_to_exitcode(os.waitpid(nursery.pid, 0)[1]) == 0
    """)

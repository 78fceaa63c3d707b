"""Tests the fork server: it starts, reaps and kills workers, and leaves no process behind.

Each test uses a process of its own, because a test's process has threads and loops that must
not be forked.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.gateway.process import ROOT

PROLOGUE = """
import os, select, signal, socket, sys, time
from gateway.workers.fork_server import WorkerExited, WorkerStarted, start_fork_server

def next_news(fork_server):
    assert select.select([fork_server], [], [], 10)[0]
    return fork_server.news()

def start(fork_server, number, listening=()):
    ours, theirs = socket.socketpair()
    fork_server.start(number, theirs, listening)
    theirs.close()
    return ours
"""


def run(script: str) -> str:
    """Return the output of *script*, which must exit with 0."""
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


def test_a_worker_receives_its_sockets_and_its_exit_is_reported() -> None:
    output = run("""
        def work(number, feed, listening):
            feed.sendall(b"%d %d %d" % (number, listening[0].getsockname()[1], os.getppid()))
            raise SystemExit(7)
        fork_server = start_fork_server(work)
        with socket.create_server(("127.0.0.1", 0)) as server:
            feed = start(fork_server, 3, [server])
            started, ended = next_news(fork_server), next_news(fork_server)
            number, port, parent = feed.recv(100).split()
            assert (int(number), int(port)) == (3, server.getsockname()[1])
            assert int(parent) == fork_server.pid
        assert isinstance(started, WorkerStarted), started
        assert isinstance(ended, WorkerExited), ended
        assert (ended.number, ended.pid, ended.code) == (3, started.pid, 7)
        assert feed.recv(1) == b""  # nobody else holds the worker's end
        fork_server.close()
        print("ok")
    """)
    assert output == "ok\n"


def test_a_failing_worker_logs_the_reason_and_exits_with_1() -> None:
    run("""
        def work(number, feed, listening):
            os.dup2(feed.fileno(), 2)
            raise RuntimeError("this is why")
        fork_server = start_fork_server(work)
        feed = start(fork_server, 0)
        next_news(fork_server)
        assert next_news(fork_server).code == 1
        assert b"this is why" in feed.recv(10000)
        fork_server.close()
    """)


def test_a_failed_fork_is_reported_as_exit_and_the_next_fork_succeeds() -> None:
    run("""
        import errno
        forks, fork = [], os.fork
        def failing():
            forks.append(1)
            if len(forks) == 2:  # the first is the fork server
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return fork()
        os.fork = failing
        fork_server = start_fork_server(lambda number, feed, listening: None)
        feed = start(fork_server, 0)
        ended = next_news(fork_server)
        assert ended == WorkerExited(0, 0, 1)
        assert feed.recv(1) == b""
        start(fork_server, 0)
        started, ended = next_news(fork_server), next_news(fork_server)
        assert isinstance(started, WorkerStarted) and (ended.pid, ended.code) == (started.pid, 0)
        fork_server.close()
    """)


def test_a_suspended_worker_can_be_killed() -> None:
    run("""
        fork_server = start_fork_server(lambda number, feed, listening: time.sleep(100))
        start(fork_server, 5)
        pid = next_news(fork_server).pid
        os.kill(pid, signal.SIGSTOP)
        fork_server.kill(4)  # another one: nothing happens
        fork_server.kill(5)
        ended = next_news(fork_server)
        assert (ended.number, ended.code) == (5, -signal.SIGKILL)
        fork_server.kill(5)  # it has ended: nothing happens
        fork_server.close()
    """)


def test_signals_to_the_process_group_are_handled_only_by_the_supervisor() -> None:
    run("""
        def work(number, feed, listening):
            feed.sendall(b"+")
            feed.recv(1)
        fork_server = start_fork_server(work)
        feed = start(fork_server, 0)
        pid = next_news(fork_server).pid
        assert feed.recv(1) == b"+"
        for one in (fork_server.pid, pid):
            os.kill(one, signal.SIGTERM)
            os.kill(one, signal.SIGINT)
            os.kill(one, signal.SIGHUP)
        feed.sendall(b"-")
        assert next_news(fork_server).code == 0
        fork_server.close()
    """)


def test_all_processes_exit_with_the_supervisor() -> None:
    run("""
        fork_server = start_fork_server(lambda number, feed, listening: time.sleep(100))
        for number in range(3):
            start(fork_server, number)
        pids = [next_news(fork_server).pid for _ in range(3)]
        fork_server.close()
        for pid in pids:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                continue
            raise SystemExit(f"{pid} is still there")
    """)


def test_workers_exit_with_the_fork_server_and_this_is_reported() -> None:
    run("""
        fork_server = start_fork_server(lambda number, feed, listening: time.sleep(100))
        feeds = [start(fork_server, number) for number in range(2)]
        for _ in range(2):
            next_news(fork_server)
        os.kill(fork_server.pid, signal.SIGKILL)
        try:
            next_news(fork_server)
        except EOFError:
            pass
        else:
            raise SystemExit("nothing was told")
        for feed in feeds:
            feed.settimeout(5)
            assert feed.recv(1) == b""
    """)


def test_a_supervisor_that_exits_without_reading_all_messages_is_no_failure() -> None:
    run("""
        fork_server = start_fork_server(lambda number, feed, listening: None)
        start(fork_server, 0)
        time.sleep(0.5)  # Both messages wait to be read
        fork_server._control.close()
        assert os.waitstatus_to_exitcode(os.waitpid(fork_server.pid, 0)[1]) == 0
    """)

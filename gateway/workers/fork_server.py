"""The fork server: a process without threads, loop or connections, which forks the workers.

A process with a loop and threads cannot be forked safely. A process that is started from scratch
takes a second of CPU time, holds a second copy of all modules in memory, and reads settings and
keys again, which may have changed. The supervisor therefore forks the fork server before anything
else, and sends it orders to start and kill workers. The fork server reports which have exited.

No process is left behind. When the supervisor exits for any reason, its socket closes and the fork
server kills the workers. When the fork server is killed, the kernel kills its children.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeAlias

import msgspec

from shared.runtime.process import EXIT_FAILED

WorkerMain: TypeAlias = Callable[[int, socket.socket, Sequence[socket.socket]], None]
"""Runs a worker, given its number, its channel and the listening sockets; exits on return."""

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 4096
_MOST_SOCKETS: Final = 64
_PR_SET_PDEATHSIG: Final = 1


class StartWorker(msgspec.Struct, frozen=True, tag=True):
    """Start a worker; the message carries its channel and the listening sockets."""

    number: int


class KillWorker(msgspec.Struct, frozen=True, tag=True):
    """Kill a worker, unless it has exited."""

    number: int


class WorkerStarted(msgspec.Struct, frozen=True, tag=True):
    """A worker is running."""

    number: int
    pid: int


class WorkerExited(msgspec.Struct, frozen=True, tag=True):
    """A worker exited with ``code`` (below 0: by that signal); ``pid`` 0: the fork failed."""

    number: int
    pid: int
    code: int


_read_order = msgspec.msgpack.Decoder(StartWorker | KillWorker).decode
_read_news = msgspec.msgpack.Decoder(WorkerStarted | WorkerExited).decode
_encode = msgspec.msgpack.Encoder().encode


def start_fork_server(work: WorkerMain) -> ForkServer:
    """Fork the fork server and return the supervisor's end; call it before there is a loop."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = os.getpid()
    pid = os.fork()
    if not pid:
        ours.close()
        _end_process(lambda: _Server(theirs, work, supervisor).run())
    theirs.close()
    ours.setblocking(False)
    return ForkServer(ours, pid)


class ForkServer:
    """The supervisor's end of the socket to the fork server."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self.pid = pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when the fork server has sent a message."""
        return self._control.fileno()

    def start(
        self, number: int, channel: socket.socket, listening: Sequence[socket.socket]
    ) -> None:
        """Start worker *number* with *channel*, which the caller may close afterwards.

        Raises:
            OSError: If the fork server is gone or its socket is full.
        """
        descriptors = [channel.fileno(), *(sock.fileno() for sock in listening)]
        socket.send_fds(self._control, [_encode(StartWorker(number))], descriptors)

    def kill(self, number: int) -> None:
        """Kill worker *number*.

        Raises:
            OSError: If the fork server is gone.
        """
        self._control.send(_encode(KillWorker(number)))

    def news(self) -> WorkerStarted | WorkerExited | None:
        """Return the next message, if any; call it when the descriptor is readable.

        Raises:
            EOFError: If the fork server is gone.
        """
        try:
            data = self._control.recv(_MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            raise EOFError("the fork server has ended")
        news: WorkerStarted | WorkerExited = _read_news(data)
        return news

    def close(self) -> None:
        """End the fork server and its remaining workers, and wait for it."""
        self._control.close()
        os.waitpid(self.pid, 0)


class _Server:
    """The fork server's own process."""

    def __init__(self, control: socket.socket, work: WorkerMain, supervisor: int) -> None:
        self._control = control
        self._work = work
        self._supervisor = supervisor
        self._numbers: dict[int, int] = {}
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Carry out orders until the supervisor is gone."""
        # A terminal and systemd send signals to all processes of the gateway. The supervisor
        # handles them: it drains the workers and then closes its socket to the fork server.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        # Keep the objects created so far in memory pages that are shared with the workers.
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._woken in ready:
                self._reap()
            if self._control.fileno() in ready and not self._handle_order():
                self._kill_all()
                return

    def _handle_order(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _MOST_BYTES, _MOST_SOCKETS)
        except OSError:
            data = b""  # a reset: the supervisor exited without reading all messages
        if not data:
            return False
        match _read_order(data):
            case StartWorker(number=number):
                sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
                self._fork(number, sockets)
                for sock in sockets:
                    sock.close()
            case KillWorker(number=number):
                for pid, held in self._numbers.items():
                    if held == number:
                        os.kill(pid, signal.SIGKILL)  # not reaped, so the pid is not reused
        return True

    def _fork(self, number: int, sockets: Sequence[socket.socket]) -> None:
        fork_server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            # EAGAIN or ENOMEM (fork(2)): the limit of processes or memory is reached for now.
            log.error("cannot fork a worker", extra={"worker": number, "why": str(error)})
            self._send(WorkerExited(number, 0, EXIT_FAILED))
            return
        if not pid:
            _end_process(lambda: self._run_worker(number, sockets, fork_server))
        self._numbers[pid] = number
        self._send(WorkerStarted(number, pid))

    def _run_worker(self, number: int, sockets: Sequence[socket.socket], fork_server: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._woken)
        os.close(self._waker)
        self._control.close()
        _die_with_parent()
        if os.getppid() != fork_server:
            return  # the fork server exited before prctl took effect
        self._work(number, sockets[0], sockets[1:])

    def _reap(self) -> None:
        while True:
            try:
                if not os.read(self._woken, 512):
                    break
            except BlockingIOError:
                break
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self._numbers.pop(pid)
            self._send(WorkerExited(number, pid, os.waitstatus_to_exitcode(status)))

    def _send(self, news: WorkerStarted | WorkerExited) -> None:
        try:
            self._control.send(_encode(news))
        except OSError:
            return  # the supervisor is gone; the next read of its socket reports that

    def _kill_all(self) -> None:
        for pid in self._numbers:
            os.kill(pid, signal.SIGKILL)
        for pid in self._numbers:
            os.waitpid(pid, 0)


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_process(run: Callable[[], None]) -> NoReturn:
    """Call *run* and exit; never return into the frames of the parent process."""
    code = EXIT_FAILED
    try:
        run()
        code = 0
    except BaseException as error:  # the outermost boundary of a process
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else code
        if not isinstance(error, SystemExit):
            log.critical("a process of the gateway has failed", exc_info=error)
    finally:
        logging.shutdown()
        os._exit(code)

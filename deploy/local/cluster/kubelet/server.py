"""The kubelet's own API: logs and exec, for an API server that shows its certificate."""

import asyncio
import contextlib
import json
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from fcntl import ioctl
from typing import Any, Final

from aiohttp import WSMsgType, web

from deploy.local.cluster.kubelet.container import ContainerRun
from deploy.local.cluster.kubelet.pod import PodRun
from deploy.local.cluster.kubelet.sandboxes import Process, SandboxFailed, StartFailed
from deploy.local.cluster.pipes import read_chunks

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK_BYTES: Final = 32 * 1024
FindPod = Callable[[str, str], PodRun | None]
AllPods = Callable[[], Iterable[PodRun]]


def make_app(find_pod: FindPod, all_pods: AllPods) -> web.Application:
    """Return the application; *find_pod* takes namespace and name."""
    server = _Server(find_pod, all_pods)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", server.logs)
    app.router.add_get("/exec/{namespace}/{pod}/{container}", server.execute)
    app.router.add_get("/metrics/resource", server.metrics)
    return app


class _Server:
    def __init__(self, find_pod: FindPod, all_pods: AllPods) -> None:
        self._find_pod = find_pod
        self._all_pods = all_pods

    async def metrics(self, _request: web.Request) -> web.Response:
        """Return the use of every container, in Prometheus' text format."""
        lines = [line for pod in self._all_pods() for line in _metric_lines(pod)]
        return web.Response(text="".join(lines))

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """Stream a container's log."""
        _, container = self._find(request)
        query = request.query
        log = container.previous_log if _is_true(query.get("previous")) else container.log
        if log is None:
            why = container.record.state.get("waiting", {}).get("reason", "ContainerCreating")
            name = request.match_info["pod"]
            text = f'container "{container.name}" in pod "{name}" is waiting to start: {why}'
            raise web.HTTPBadRequest(text=text)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        tail = query.get("tailLines", "")
        lines = log.lines(
            follow=_is_true(query.get("follow")),
            tail=int(tail) if tail.isdigit() else None,
            since=_since(query.get("sinceSeconds", ""), query.get("sinceTime", "")),
            timestamps=_is_true(query.get("timestamps")),
        )
        async with contextlib.aclosing(lines):
            with contextlib.suppress(ConnectionError):  # the client may disconnect
                async for part in lines:
                    await response.write(part)
        return response

    async def execute(self, request: web.Request) -> web.StreamResponse:
        """Run a command in a container and join its streams to a WebSocket."""
        pod, container = self._find(request)
        query = request.query
        tty = _is_true(query.get("tty"))
        wants = {name: _is_true(query.get(name)) for name in ("stdin", "stdout", "stderr")}
        try:
            specification = container.exec_specification(query.getall("command"), tty=tty)
        except SandboxFailed as error:
            raise web.HTTPNotFound(text=str(error)) from error
        socket = web.WebSocketResponse(protocols=_PROTOCOLS)
        await socket.prepare(request)
        execution = _Execution(socket, wants, tty=tty)
        status = await execution.run(pod, specification)
        with contextlib.suppress(ConnectionError):  # the client may have disconnected
            await socket.send_bytes(bytes([_ERROR]) + json.dumps(status).encode())
        await socket.close()
        return socket

    def _find(self, request: web.Request) -> tuple[PodRun, ContainerRun]:
        names = request.match_info
        pod = self._find_pod(names["namespace"], names["pod"])
        container = pod.find(names["container"]) if pod else None
        if pod is None or container is None:
            raise web.HTTPNotFound(text=f"container {names['container']} not found")
        return pod, container


class _Execution:
    """One exec: the process' streams on one side, numbered channels on the other."""

    def __init__(self, socket: web.WebSocketResponse, wants: dict[str, bool], *, tty: bool) -> None:
        self._socket = socket
        self._wants = wants
        self._tty = tty
        self._stdin: int | None = None
        self._terminal: int | None = None

    async def run(self, pod: PodRun, specification: dict[str, Any]) -> dict[str, Any]:
        """Run it to its end, and return the Status with its result."""
        theirs, ours = self._make_pipes()
        try:
            if pod.sandbox is None:
                raise SandboxFailed("the container is not running")
            process = await pod.sandbox.run(specification, theirs)
        except (StartFailed, SandboxFailed) as error:
            for fd in ours.values():
                os.close(fd)
            return _failure(str(error))
        finally:
            for fd in set(theirs):
                os.close(fd)
        if process.terminal is not None:
            self._terminal = process.terminal
            self._stdin = os.dup(process.terminal)
            ours = {_STDOUT: process.terminal}
        else:
            self._stdin = ours.pop(_STDIN, None)
        return await self._carry(process, ours)

    def _make_pipes(self) -> tuple[list[int], dict[int, int]]:
        """Return the process' three descriptors, and our ends of the requested ones."""
        theirs, ours = [], {}
        for channel, name in enumerate(("stdin", "stdout", "stderr")):
            if self._tty or not self._wants[name]:
                theirs.append(os.open(os.devnull, os.O_RDWR))
                continue
            reading, writing = os.pipe()
            theirs.append(reading if channel == _STDIN else writing)
            ours[channel] = writing if channel == _STDIN else reading
        return theirs, ours

    async def _carry(self, process: Process, outputs: dict[int, int]) -> dict[str, Any]:
        listening = asyncio.create_task(self._listen())
        ending = asyncio.create_task(process.wait())
        sending = [asyncio.create_task(self._send(c, fd)) for c, fd in outputs.items()]
        try:
            await asyncio.wait({listening, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                # The client has disconnected: a terminal hangs up, any other process runs on.
                if self._terminal is not None:
                    process.send_signal(signal.SIGHUP)
                process.leave()
                return _failure("the client has left")
            # A child that holds the pipe open must not delay the client.
            await asyncio.wait(sending, timeout=0.5)
            return _ending(ending.result())
        finally:
            for task in (listening, ending, *sending):
                task.cancel()
            await asyncio.gather(listening, ending, *sending, return_exceptions=True)
            self._terminal = None  # closed by its reader
            self._close_stdin()

    async def _send(self, channel: int, fd: int) -> None:
        """Send the process' output, as fast as the client reads it."""
        with contextlib.suppress(OSError):  # the client has disconnected
            async with contextlib.aclosing(read_chunks(fd, _CHUNK_BYTES)) as chunks:
                async for chunk in chunks:
                    await self._socket.send_bytes(bytes([channel]) + chunk)

    async def _listen(self) -> None:
        """Receive input, sizes and the end of input, until the client disconnects."""
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == _STDIN and data:
                await self._write(data)
            elif channel == _RESIZE and self._terminal is not None:
                self._resize(data)
            elif channel == _CLOSE and data[:1] == bytes([_STDIN]):  # v5 only
                self._close_stdin()

    async def _write(self, data: bytes) -> None:
        if self._stdin is None:
            return
        # A descriptor for the thread alone: this one may be closed while the thread waits for the
        # process.
        await asyncio.to_thread(_write_all, os.dup(self._stdin), data)

    def _resize(self, data: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError, struct.error, OSError):
            size = json.loads(data)
            packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
            if self._terminal is not None:
                ioctl(self._terminal, termios.TIOCSWINSZ, packed)

    def _close_stdin(self) -> None:
        if self._stdin is not None and self._terminal is None:
            os.close(self._stdin)
            self._stdin = None


def _metric_lines(pod: PodRun) -> Iterator[str]:
    metadata, at = pod.pod["metadata"], int(time.time() * 1000)
    for container in pod.mains:
        process = container.process
        if process is None or pod.sandbox is None:
            continue
        namespace, name = metadata["namespace"], metadata["name"]
        labels = f'{{container="{container.name}",namespace="{namespace}",pod="{name}"}}'
        cpu, memory = pod.sandbox.cpu_seconds_of(process), pod.sandbox.memory_of(process)
        yield f"container_cpu_usage_seconds_total{labels} {cpu:.2f} {at}\n"
        yield f"container_memory_working_set_bytes{labels} {memory} {at}\n"


def _write_all(fd: int, data: bytes) -> None:
    """Write *data* as fast as the process reads it, then close *fd* to mark the end of the data."""
    writable = select.poll()
    writable.register(fd, select.POLLOUT)
    try:
        while data:
            writable.poll()  # its reader has made the terminal non-blocking
            data = data[os.write(fd, data) :]
    except OSError:
        pass
    finally:
        os.close(fd)


def _ending(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = code if code > 0 else 128 - code
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _failure(why: str) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: error executing command in container: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }


def _since(seconds: str, moment: str) -> datetime | None:
    if seconds.isdigit():
        return datetime.now(UTC) - timedelta(seconds=int(seconds))
    return datetime.fromisoformat(moment) if moment else None


def _is_true(text: str | None) -> bool:
    return text in ("1", "t", "T", "true", "TRUE", "True")

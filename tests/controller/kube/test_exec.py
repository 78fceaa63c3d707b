from __future__ import annotations

import asyncio
import fcntl
import json
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.kube import exec as exec_module
from controller.kube.client import Kube
from controller.kube.exec import (
    BUFFER_BYTES,
    ExecFailed,
    ExecStream,
    ExecTarget,
    Exited,
    PodExec,
    TerminalStream,
    read_status,
)
from tests.controller.kube.api_server import write_kubeconfig
from tests.controller.kube.exec_server import ExecServer, serving

WHERE = ExecTarget("jobs", "j-one-job-0", "job")


@pytest.fixture
async def server() -> AsyncIterator[ExecServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def executor(server: ExecServer, tmp_path: Path) -> AsyncIterator[PodExec]:
    async with Kube.connect(write_kubeconfig(tmp_path / "kubeconfig", server.url, "good")) as kube:
        yield PodExec(kube)


async def until_ended(stream: TerminalStream) -> tuple[bytes, Exited]:
    output = b""
    async with asyncio.timeout(10):
        while not isinstance(received := await stream.receive(), Exited):
            output += received
    return output, received


async def read_until(stream: TerminalStream, text: bytes) -> bytes:
    output = b""
    async with asyncio.timeout(10):
        while text not in output:
            received = await stream.receive()
            assert isinstance(received, bytes), received
            assert received, "output is never empty"
            output += received
    return output


async def test_the_exec_request_names_pod_container_and_command(
    server: ExecServer, executor: PodExec
) -> None:
    stream = await executor.open(ExecTarget("a/b", "p?", "c&d"), ["true", "a b&c"])
    await stream.close()
    assert server.requests[0].raw_path == (
        "/k8s/api/v1/namespaces/a%2Fb/pods/p%3F/exec"
        "?container=c%26d&stdin=1&stdout=1&tty=1&command=true&command=a+b%26c"
    )


async def test_a_command_has_a_terminal_and_returns_its_exit_code(executor: PodExec) -> None:
    stream = await executor.open(WHERE, ["sh", "-c", "tty && stty -echo; read x; echo <$x>; exit 3"
                                         .replace("<$x>", '"got $x"')])  # fmt: skip
    await read_until(stream, b"/dev/")
    await stream.send("grüße\n".encode())
    output, exited = await until_ended(stream)
    assert "got grüße" in output.decode()
    assert exited.code == 3
    assert not exited.lost
    assert await stream.receive() == exited, "an end is an end"
    await stream.send(b"x")
    await stream.resize(1, 1)
    await stream.close()
    await stream.close()


async def test_a_successful_command_has_exit_code_0(executor: PodExec) -> None:
    stream = await executor.open(WHERE, ["true"])
    assert (await until_ended(stream))[1] == Exited(0)
    await stream.close()


@pytest.mark.parametrize("protocols", [("v5.channel.k8s.io",), ("v4.channel.k8s.io",)])
async def test_v5_is_preferred_and_v4_supported(
    server: ExecServer, executor: PodExec, protocols: tuple[str, ...]
) -> None:
    server.protocols = protocols
    stream = await executor.open(WHERE, ["echo", "hello"])
    assert b"hello" in (await until_ended(stream))[0]
    assert server.offered[0].split(",")[0] == "v5.channel.k8s.io"
    await stream.close()


async def test_a_server_without_a_supported_subprotocol_is_refused(
    server: ExecServer, executor: PodExec
) -> None:
    server.protocols = ()
    with pytest.raises(ExecFailed, match="none of our exec protocols"):
        await executor.open(WHERE, ["true"])


async def test_the_size_reaches_the_terminal(server: ExecServer, executor: PodExec) -> None:
    stream = await executor.open(WHERE, ["sh", "-c", "stty -echo; read x; stty size"])
    await stream.resize(132, 43)
    await stream.send(b"\n")
    output, _ = await until_ended(stream)
    assert b"43 132" in output
    assert server.sizes == [{"Width": 132, "Height": 43}]
    await stream.close()


async def test_input_longer_than_a_frame_arrives_complete(executor: PodExec) -> None:
    stream = await executor.open(
        WHERE, ["sh", "-c", "stty raw -echo; echo go; head -c 100000 | wc -c"]
    )
    await read_until(stream, b"go")
    for _ in range(50):
        await stream.send(b"y" * 2000)
    output, _ = await until_ended(stream)
    assert b"100000" in output
    await stream.close()


async def test_a_program_that_reads_no_input_keeps_its_connection(
    executor: PodExec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exec_module, "PING_SECONDS", 0.1)
    monkeypatch.setattr(exec_module, "PONG_SECONDS", 0.1)
    flag = tmp_path / "read"
    late = f"until [ -e {flag} ]; do sleep 0.05; done; head -c 20000000 | wc -c"
    script = f"stty raw -echo; echo go; {late}"
    stream = await executor.open(WHERE, ["sh", "-c", script])
    await read_until(stream, b"go")
    sending = asyncio.create_task(stream.send(bytes(20_000_000)))
    reading = asyncio.create_task(until_ended(stream))
    # The server reads no ping while it waits for the program.
    await asyncio.wait({sending, reading}, timeout=1)
    assert not sending.done(), "the program reads no input"
    flag.touch()
    output, exited = await reading
    assert (output.strip(), exited) == (b"20000000", Exited(0))
    await sending
    await stream.close()


async def test_a_server_that_has_read_all_input_must_answer_pings(
    server: ExecServer, executor: PodExec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_module, "PING_SECONDS", 0.1)
    monkeypatch.setattr(exec_module, "PONG_SECONDS", 0.1)
    stream = await executor.open(WHERE, ["sh", "-c", "stty raw -echo; echo go; exec cat"])
    await read_until(stream, b"go")
    await stream.send(b"y" * 4096 + b"end")
    await read_until(stream, b"end")
    assert isinstance(stream, ExecStream)
    reading = asyncio.create_task(until_ended(stream))
    async with asyncio.timeout(10):
        while stream._unread:  # until a Pong has confirmed it
            await asyncio.sleep(0.01)
    server.stop_answering()
    _, exited = await reading
    assert exited == Exited(None, "the connection to the container was lost", lost=True)
    await stream.close()


async def test_what_was_typed_beside_output_does_not_hide_a_lost_connection(
    server: ExecServer, executor: PodExec, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await executor.open(WHERE, ["sh", "-c", "stty raw -echo; echo go; exec cat"])
    await read_until(stream, b"go")
    for number in range(40):  # the server is never silent, as while a user types
        await stream.send(b"word %04d" % number)
        await read_until(stream, b"%04d" % number)
    server.stop_answering()
    monkeypatch.setattr(exec_module, "PING_SECONDS", 0.1)
    monkeypatch.setattr(exec_module, "PONG_SECONDS", 0.1)
    _, exited = await until_ended(stream)
    assert exited == Exited(None, "the connection to the container was lost", lost=True)
    await stream.close()


async def test_little_data_is_buffered_ahead_of_an_interrupt(
    executor: PodExec,
) -> None:
    stream = await executor.open(WHERE, ["head", "-c", str(40 << 20), "/dev/zero"])
    assert isinstance(stream, ExecStream)
    read = 0
    async with asyncio.timeout(60):
        while read < 16 << 20:  # fast: the kernel's buffers still grow
            received = await stream.receive()
            assert isinstance(received, bytes)
            read += len(received)
        before, waiting = -1, 0
        while waiting != before:  # until no more arrives
            await asyncio.sleep(0.3)
            before, waiting = waiting, unread(stream)
    assert 0 < waiting <= 2 * BUFFER_BYTES
    async with asyncio.timeout(60):
        while not isinstance(received := await stream.receive(), Exited):
            read += len(received)
    assert (received, read) == (Exited(0), 40 << 20), "it goes on, and nothing is lost"
    await stream.close()


def unread(stream: ExecStream) -> int:
    """Return how many bytes of *stream* the kernel buffers."""
    connection = stream._socket.get_extra_info("socket")
    return int.from_bytes(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)), "little")


async def test_closing_hangs_up_on_the_command(executor: PodExec) -> None:
    stream = await executor.open(WHERE, ["sh", "-c", "echo pid $$ end; exec sleep 60"])
    text = await read_until(stream, b"end")
    pid = int(text.split(b"pid ")[1].split()[0])
    await stream.close()
    assert (await stream.receive()) == Exited(None, "closed", lost=True)
    async with asyncio.timeout(5):
        while _alive(pid):
            await asyncio.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split(") ")[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_broken_connection_is_lost_and_not_an_exit(
    server: ExecServer, executor: PodExec
) -> None:
    stream = await executor.open(WHERE, ["sh", "-c", "echo here; exec sleep 60"])
    await read_until(stream, b"here")
    server.cut()
    _, exited = await until_ended(stream)
    assert exited == Exited(None, "the connection to the container was lost", lost=True)
    await stream.close()


@pytest.mark.parametrize("status", [400, 403, 404, 500])
async def test_a_refusal_before_the_upgrade_has_its_status(
    server: ExecServer, executor: PodExec, status: int
) -> None:
    server.refuse = [status]
    with pytest.raises(ExecFailed) as raised:
        await executor.open(WHERE, ["true"])
    assert raised.value.status == status


async def test_an_unreachable_server_is_unavailable(tmp_path: Path) -> None:
    nowhere = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    async with Kube.connect(nowhere) as kube:
        with pytest.raises(ExecFailed) as raised:
            await PodExec(kube).open(WHERE, ["true"])
    assert raised.value.status == 0


async def test_refused_credentials_are_read_again_once(server: ExecServer, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url, "old")
    async with Kube.connect(kubeconfig) as kube:
        write_kubeconfig(kubeconfig, server.url, "good")
        stream = await PodExec(kube).open(WHERE, ["true"])
        await until_ended(stream)
        await stream.close()
        assert len(server.requests) == 2
        server.tokens = {"better"}
        with pytest.raises(ExecFailed) as raised:
            await PodExec(kube).open(WHERE, ["true"])
        assert raised.value.status == 401
        assert len(server.requests) == 4


async def test_more_execs_than_a_pool_has_connections(executor: PodExec) -> None:
    streams = await asyncio.gather(*(executor.open(WHERE, ["cat"]) for _ in range(30)))
    for stream in streams:
        await stream.send(b"\x04")
    ended = await asyncio.gather(*(until_ended(stream) for stream in streams))
    assert {exited for _, exited in ended} == {Exited(0)}
    for stream in streams:
        await stream.close()


NOT_FOUND = (
    "Internal error occurred: error executing command in container: failed to exec in container:"
    ' failed to start exec "0af1": OCI runtime exec failed: exec failed: unable to start container'
    ' process: exec: "bash": executable file not found in $PATH: unknown'
)
"""The message of containerd for a program that the container does not have."""


@pytest.mark.parametrize(
    ("status", "exited"),
    [
        ({"status": "Success"}, Exited(0)),
        ({"status": "Failure", "message": "m", "details": {"causes": [
            {"reason": "ExitCode", "message": "137"}]}}, Exited(137, "m")),
        ({"status": "Failure", "message": "no such file"}, Exited(None, "no such file")),
        ({"status": "Failure", "reason": "InternalError"}, Exited(None, "InternalError")),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}},
         Exited(None, "the command failed")),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "²"}]}},
         Exited(None, "the command failed")),
        ({}, Exited(None, "the command failed")),
        ({"status": "Failure", "reason": "InternalError", "message": NOT_FOUND},
         Exited(None, NOT_FOUND)),
    ],
)  # fmt: skip
def test_the_exit_status_is_parsed(status: object, exited: Exited) -> None:
    assert read_status(json.dumps(status).encode()) == exited


@pytest.mark.parametrize(
    "message",
    [
        'unable to upgrade connection: container not found ("job")',
        'error sending request: Post "https://10.0.0.1:10250/exec/jobs/j-a-job-0/job": dial tcp '
        "10.0.0.1:10250: connect: connection refused",
        "error dialing backend: dial tcp 10.0.0.1:10250: i/o timeout",
        "error reading from error stream: read tcp 10.0.0.9:4711->10.0.0.1:10250: connection"
        " reset by peer",
        "error executing command in container: failed to exec in container: failed to load task:"
        " no running task found: task 0af1 not found",
        "container is not created or running",
    ],
)
def test_a_status_about_the_way_to_the_container_is_a_lost_connection(message: str) -> None:
    # As API servers from 1.30 on report it with v5, after the upgrade.
    said = f"Internal error occurred: {message}"
    status = {"status": "Failure", "reason": "InternalError", "code": 500, "message": said}
    assert read_status(json.dumps(status).encode()) == Exited(None, said, lost=True)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"status": 1}'])
def test_a_partial_status_is_not_parsed(data: bytes) -> None:
    assert read_status(data) is None

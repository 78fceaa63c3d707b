from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from controller.hub import opening
from controller.hub.opening import COMMANDS, NoShell, open_shell
from controller.kube.exec import ExecFailed, ExecTarget, Exited
from tests.controller.hub.streams import FakeExecutor, FakeStream

WHERE = ExecTarget("jobs", "pod", "job")
MISSING = Exited(None, 'exec: "/bin/sh": stat /bin/sh: no such file or directory')


class Scripted(FakeExecutor):
    """An executor whose streams follow *scripts*, in order."""

    def __init__(self, *scripts: list[bytes | Exited]) -> None:
        super().__init__(prompt=b"")
        self._scripts = list(scripts)

    async def open(self, container: ExecTarget, command: list[str]) -> FakeStream:
        stream = await super().open(container, command)
        for received in self._scripts.pop(0):
            stream.output.put_nowait(received)
        return stream


async def test_one_exec_suffices_if_bin_sh_exists() -> None:
    executor = Scripted([b"$ "])
    stream, first = await open_shell(executor, WHERE)
    assert (stream, first) == (executor.streams[0], b"$ ")
    assert executor.commands == [COMMANDS[0]]
    assert executor.containers == [WHERE]


async def test_other_shells_are_tried_without_bin_sh() -> None:
    executor = Scripted([MISSING], [MISSING], [b"% "])
    stream, first = await open_shell(executor, WHERE)
    assert first == b"% "
    assert executor.commands == list(COMMANDS[:3])
    assert [s.closed for s in executor.streams] == [True, True, False]
    assert stream is executor.streams[2]


async def test_a_runtime_error_written_to_the_terminal_is_recognised() -> None:
    words: list[bytes | Exited] = [
        b"OCI runtime exec failed: no such file",
        Exited(127, "exit 127"),
    ]
    executor = Scripted(words, [b"$ "])
    assert (await open_shell(executor, WHERE))[1] == b"$ "


async def test_a_greeting_similar_to_a_runtime_error_is_accepted() -> None:
    executor = Scripted([b"motd: no such file\r\n", b"$ "])
    assert (await open_shell(executor, WHERE))[1] == b"motd: no such file\r\n$ "
    executor = Scripted([b"motd not found\r\n", Exited(0)])
    assert (await open_shell(executor, WHERE))[1] == b"motd not found\r\n"


async def test_a_container_without_any_shell_is_reported() -> None:
    nothing: list[list[bytes | Exited]] = [[MISSING]] * len(COMMANDS)
    executor = Scripted(*nothing)
    with pytest.raises(NoShell, match="/bin/sh"):
        await open_shell(executor, WHERE)
    assert all(stream.closed for stream in executor.streams)


async def test_a_broken_connection_is_not_reported_as_missing_shell() -> None:
    executor = Scripted([Exited(None, "lost", lost=True)])
    with pytest.raises(ExecFailed, match="lost"):
        await open_shell(executor, WHERE)
    assert executor.streams[0].closed


async def test_a_shell_without_prompt_is_accepted_after_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "FIRST_WORD_SECONDS", 0.01)
    stream, first = await open_shell(Scripted([]), WHERE)
    assert first == b""
    await stream.close()


async def test_a_cancelled_opening_leaves_no_stream() -> None:
    executor = Scripted([])
    task = asyncio.create_task(open_shell(executor, WHERE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [stream.closed for stream in executor.streams] == [True]


# Process id and hang-up


async def test_the_shells_process_id_is_read_and_hidden_from_clients() -> None:
    for script in (
        [b"\x1b]5522;123\x07$ "],
        [b"\x1b", b"]5522;12", b"3\x07$ "],
        [b"\x1b]5522;123;\x07$ "],
        [b"\x1b]5522;123;77", b"7\x07$ "],
    ):
        executor = Scripted(list(script), [Exited(0)])
        stream, first = await open_shell(executor, WHERE)
        assert first == b"$ "
        await stream.close()
        assert executor.commands[1] == ["/bin/sh", "-c", 'kill -HUP "$1"', "sh", "123"]
        assert executor.containers == [WHERE, WHERE]
        assert [s.closed for s in executor.streams] == [True, True]
        await stream.close()
        assert len(executor.commands) == 2, "once is enough"


async def test_no_hangup_is_sent_to_an_ended_process() -> None:
    executor = Scripted([b"\x1b]5522;123\x07", Exited(5)])
    stream, first = await open_shell(executor, WHERE)
    assert first == b""
    assert await stream.receive() == Exited(5)
    await stream.close()
    assert len(executor.commands) == 1, "the number may be another process' by now"


@pytest.mark.parametrize("mark", [b"\x1b]5522;x\x07", b"\x1b]5522;-1\x07", b"\x1b]5522;0\x07"])
async def test_a_hangup_needs_a_process_id(mark: bytes) -> None:
    executor = Scripted([mark])
    stream, _ = await open_shell(executor, WHERE)
    await stream.close()
    assert len(executor.commands) == 1


async def test_a_removed_container_needs_no_hangup() -> None:
    executor = Scripted([b"\x1b]5522;123\x07"])
    stream, _ = await open_shell(executor, WHERE)
    executor.refuse = ExecFailed("pods/exec was refused with 404", status=404)
    await stream.close()
    assert executor.streams[0].closed


# A shell that was killed


KILLED = Exited(137, "command terminated with exit code 137")
STARTED = b"\x1b]5522;123;777\x07"


async def test_a_shell_killed_with_its_container_is_reported_lost() -> None:
    executor = Scripted([STARTED, KILLED])
    stream, _ = await open_shell(executor, WHERE)
    executor.refuse = ExecFailed("pods/exec was refused with 404", status=404)
    assert await stream.receive() == Exited(None, "the container has ended", lost=True)
    assert await stream.receive() == Exited(None, "the container has ended", lost=True)
    await stream.close()
    assert len(executor.commands) == 2, "nobody hangs up on a process that has ended"


@pytest.mark.parametrize("response", [Exited(None, "the container is not running"), Exited(126)])
async def test_a_container_without_processes_has_ended(response: Exited) -> None:
    executor = Scripted([STARTED, KILLED], [response])
    stream, _ = await open_shell(executor, WHERE)
    assert await stream.receive() == Exited(None, "the container has ended", lost=True)
    assert executor.streams[1].closed


async def test_an_unresponsive_container_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_CONTAINER_SECONDS", 0.01)
    executor = Scripted([STARTED, KILLED], [])
    stream, _ = await open_shell(executor, WHERE)
    assert await stream.receive() == Exited(None, "the container has ended", lost=True)
    assert executor.streams[1].closed


@pytest.mark.parametrize(
    "response", [Exited(0), Exited(None, "error sending request", lost=True), None]
)
async def test_a_shell_whose_end_is_only_a_lost_connection_is_reported_lost(
    response: Exited | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With v5, an API server reports success when the kubelet is gone.
    monkeypatch.setattr(opening, "_CONTAINER_SECONDS", 0.01)
    executor = Scripted([STARTED, Exited(0)], [] if response is None else [response])
    stream, _ = await open_shell(executor, WHERE)
    lost = Exited(None, "the connection to the container was lost", lost=True)
    assert await stream.receive() == lost
    assert await stream.receive() == lost
    assert executor.commands[1][-2:] == ["777", "123"]


async def test_a_shell_that_is_gone_has_exited() -> None:
    executor = Scripted([STARTED, Exited(0)], [Exited(1)])
    stream, _ = await open_shell(executor, WHERE)
    assert await stream.receive() == Exited(0)
    assert executor.streams[1].closed


async def test_a_user_who_kills_the_shell_sees_its_exit_code() -> None:
    executor = Scripted([STARTED, KILLED], [Exited(0)])
    stream, _ = await open_shell(executor, WHERE)
    assert await stream.receive() == KILLED
    assert await stream.receive() == KILLED
    assert executor.commands[1][3:] == ["sh", "777"]
    assert executor.containers == [WHERE, WHERE]


async def test_other_exit_codes_need_no_check_of_the_container() -> None:
    executor = Scripted([STARTED, Exited(130)])
    stream, _ = await open_shell(executor, WHERE)
    assert await stream.receive() == Exited(130)
    assert len(executor.commands) == 1


# The script, run by a real shell


def began() -> bytes:
    """Return when the first process began, in clock ticks since the boot (proc_pid_stat(5))."""
    return Path("/proc/1/stat").read_bytes().rpartition(b")")[2].split()[19]


@pytest.mark.parametrize(("was", "same"), [(began().decode(), True), ("1", False)])
async def test_a_replaced_container_of_the_same_name_is_recognised(was: str, same: bool) -> None:
    executor = Scripted([b"\x1b]5522;123;%s\x07" % was.encode(), KILLED], [Exited(0)])
    stream, _ = await open_shell(executor, WHERE)
    await stream.receive()
    process = await asyncio.create_subprocess_exec(*executor.commands[1])
    assert (await process.wait() == 0) is same


async def chosen(folder: Path) -> str:
    """Return the output of the shell that the script starts with *folder* as its PATH."""
    process = await asyncio.create_subprocess_exec(
        *COMMANDS[0], stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL, env={"PATH": str(folder), "HOME": "/nonexistent"},
    )  # fmt: skip
    output, _ = await process.communicate()
    mark, _, output = output.partition(b"\x07")
    assert mark == b"\x1b]5522;%d;%s" % (process.pid, began()), "exec keeps the process"
    return output.decode()


def put(folder: Path, name: str) -> None:
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $* $TERM $SHELL"\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("present", "best"),
    [(["bash", "zsh", "fish"], "bash"), (["fish", "zsh"], "zsh"), (["fish"], "fish")],
)
async def test_the_preferred_shell_is_started(
    tmp_path: Path, present: list[str], best: str
) -> None:
    for name in present:
        put(tmp_path, name)
    assert await chosen(tmp_path) == f"{best} -i xterm-256color {tmp_path / best}\n"


async def test_a_missing_shell_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "bash").write_text("not executable")
    put(tmp_path, "fish")
    assert (await chosen(tmp_path)).startswith("fish ")


async def test_sh_is_the_last_resort(tmp_path: Path) -> None:
    assert shutil.which("sh", path=str(tmp_path)) is None
    assert await chosen(tmp_path) == ""  # no prompt on a pipe and no error: the shell read EOF


async def test_hanging_up_ends_in_a_container_that_does_not_respond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "HANG_UP_SECONDS", 0.05)
    executor = Scripted([b"\x1b]5522;123\x07$ "], [])
    stream, _ = await open_shell(executor, WHERE)
    async with asyncio.timeout(5):
        await stream.close()
    assert [one.closed for one in executor.streams] == [True, True]

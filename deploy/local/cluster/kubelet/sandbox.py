"""The first process of a Pod: it owns the Pod's namespaces and starts the processes in them.

The kubelet starts it under ``unshare``, by its path and on its own. It imports only the standard
library, so that a Pod is up in milliseconds. It obeys a socket that the kubelet holds. When that
socket is closed, as by the death of the kubelet, this process ends, and the kernel ends everything
in the Pod with it.

A request is one packet of JSON with file descriptors:

- ``run``: a reply socket, a file with the process' specification, its stdin, stdout, stderr;
- ``socket``: the response is a socket that belongs to the Pod's network;
- ``tmpfs``: mounts one for the Pod's containers to share.

A fork of this process supervises each ``run``. Over the reply socket it sends ``pid`` or ``error``,
then ``exit``, and receives ``signal``. When that socket closes, it kills the process that it
started, if the specification says so.
"""

import array
import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Callable
from typing import Any, Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PACKET_BYTES: Final = 65536
_FDS: Final = 8

_NEWNS, _NEWUSER, _NEWPID = 0x00020000, 0x10000000, 0x20000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC = 1, 2, 4, 32, 4096, 16384
_DETACH: Final = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_TIOCSPTLCK, _TIOCGPTN = 0x40045431, 0x80045430
_SOCK_DIAG: Final = 4
_MOUNT_SETATTR: Final = 442
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

Spec = dict[str, Any]


def main() -> None:
    """Obey the socket whose descriptor is the argument, until it closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    isolated = sys.argv[2] == "isolated"
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if isolated:
        _bring_up_loopback()
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV)
    # The Pod's processes, and then the tables of its listening sockets.
    looks = [os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)]
    looks += [os.open(f"/proc/self/net/{name}", os.O_RDONLY) for name in _net_tables()]
    diag = _diag()
    if diag is not None:
        looks.append(diag)
    socket.send_fds(control, [json.dumps({"diag": diag is not None}).encode()], looks)
    for one in looks:
        os.close(one)
    while True:
        packet, fds, _, _ = socket.recv_fds(control, _PACKET_BYTES, _FDS)
        _reap()
        if not packet:
            os._exit(0)
        _obey(control, json.loads(packet), fds)
        for fd in fds:
            os.close(fd)


def _net_tables() -> list[str]:
    return [name for name in ("tcp", "tcp6") if os.path.exists(f"/proc/self/net/{name}")]


def _diag() -> int | None:
    """Return a socket that lists the listening sockets here, or None without sock_diag."""
    try:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG).detach()
    except OSError:
        return None


def _obey(control: socket.socket, request: Spec, fds: list[int]) -> None:
    match request["op"]:
        case "run":
            if os.fork() == 0:
                control.close()
                _supervise(*fds)
        case "socket":
            with socket.socket(*request["of"]) as fresh:
                socket.send_fds(control, [b"{}"], [fresh.fileno()])
        case "tmpfs":
            options = f"mode=1777,size={request['size']}" if request.get("size") else "mode=1777"
            _mount("tmpfs", request["path"], "tmpfs", _NOSUID | _NODEV, options)
            control.send(b"{}")
        case "hostname":
            _checked(_LIBC.sethostname(request["name"].encode(), len(request["name"].encode())))
            control.send(b"{}")


def _reap() -> None:
    """Reap supervisors that have ended, and orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


# --- one process and its supervisor ---


def _supervise(reply_fd: int, spec_fd: int, stdin: int, stdout: int, stderr: int) -> None:
    """Start the specified process, and report; never returns."""
    reply = socket.socket(fileno=reply_fd)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        spec = json.loads(_read_all(spec_fd))
        start = _start_container if spec["kind"] == "container" else _start_inside
        child, terminal, failure = start(spec, [stdin, stdout, stderr])
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        message = os.read(failure, 4096).decode(errors="replace")
        os.close(failure)
        if message:
            _say(reply, {"error": message})
        else:
            _say(reply, {"pid": child}, [terminal] if terminal is not None else [])
        if terminal is not None:
            os.close(terminal)
        _attend(reply, child, until_gone=spec["kind"] != "container")
    except OSError as error:
        _say(reply, {"error": str(error)})
    finally:
        os._exit(0)


def _attend(reply: socket.socket, child: int, *, until_gone: bool) -> None:
    """Pass signals to *child*, and report how it ended."""
    gone = os.pidfd_open(child)
    poll = select.poll()
    poll.register(gone, select.POLLIN)
    poll.register(reply, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if gone in ready:
            if not until_gone:
                _kill_group(child)  # before the wait: until then, no other process has its number
            _, status = os.waitpid(child, 0)
            _say(reply, {"exit": os.waitstatus_to_exitcode(status)})
            return
        packet = reply.recv(_PACKET_BYTES)
        if packet:
            os.kill(child, json.loads(packet)["signal"])
        elif until_gone:
            # The client that ran it has left. As with a real kubelet, it runs on, and its end is
            # not reported.
            poll.unregister(reply)
        else:
            os.kill(child, signal.SIGKILL)


def _kill_group(first: int) -> None:
    """Kill processes that a container's first process leaves; only a process namespace does so."""
    with contextlib.suppress(ProcessLookupError):  # it ended before it had a group
        os.killpg(first, signal.SIGKILL)


def _start_container(spec: Spec, stdio: list[int]) -> tuple[int, None, int]:
    """Start a container's process in a process namespace and with a root of its own."""
    if spec["isolated"]:
        _checked(_LIBC.unshare(_NEWNS | _NEWPID))

    def enter() -> None:
        os.setsid()
        if spec["isolated"]:
            _make_root(spec)
            _become(spec["user"])

    child, failure = _fork_and_exec(spec, stdio, enter)
    return child, None, failure


def _start_inside(spec: Spec, stdio: list[int]) -> tuple[int, int | None, int]:
    """Start a process beside that of a running container, on its own terminal if required."""
    user: int | None = None
    if spec["isolated"]:
        user = _join(spec["beside"])
    terminal, slave = _open_terminal() if spec["tty"] else (None, None)

    def enter() -> None:
        os.setsid()
        if slave is not None:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        if user is not None:
            _checked(_LIBC.setns(user, _NEWUSER))

    if slave is not None:
        stdio = [slave, slave, slave]
    child, failure = _fork_and_exec(spec, stdio, enter)
    if slave is not None:
        os.close(slave)
    return child, terminal, failure


def _fork_and_exec(spec: Spec, stdio: list[int], enter: Callable[[], None]) -> tuple[int, int]:
    """Return the child, and a pipe that has an error, or ends empty once the program runs."""
    failure, report = os.pipe()  # closed by a successful exec
    child = os.fork()
    if child:
        os.close(report)
        return child, failure
    try:
        if not spec["isolated"]:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, 10)
        sources = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in stdio]
        enter()
        for number, source in enumerate(sources):
            os.dup2(source, number)
        _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if spec["isolated"]:
            os.makedirs(spec["cwd"], exist_ok=True)
        os.chdir(spec["cwd"])
        environment = spec["env"]
        os.environ["PATH"] = environment.get("PATH", os.defpath)
        os.execvpe(spec["argv"][0], spec["argv"], environment)  # noqa: S606 - no shell, on purpose
    except OSError as error:
        os.write(report, _why_not_started(spec["argv"][0], error).encode())
    finally:
        os._exit(128)


def _why_not_started(program: str, error: OSError) -> str:
    """Return runc's message for a program that cannot be executed; its words are Go's."""
    if isinstance(error, FileNotFoundError) and "/" not in program:
        return f'exec: "{program}": executable file not found in $PATH'
    text = (error.strerror or str(error)).lower()
    if isinstance(error, FileNotFoundError):
        text = f"stat {program}: {text}"
    return f'exec: "{program}": {text}'


def _open_terminal() -> tuple[int, int]:
    """Return both ends of a terminal of the joined container, so that `tty` works."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    number = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, b"\0" * 4))[0]
    return master, os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)


# --- namespaces and mounts ---


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _join(pid: int) -> int | None:
    """Enter the mount and process namespaces of *pid*; return its user namespace, if its own."""
    names = {
        name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in ("mnt", "pid", "user")
    }
    own = os.stat("/proc/self/ns/user").st_ino == os.fstat(names["user"]).st_ino
    _checked(_LIBC.setns(names["pid"], _NEWPID))
    _checked(_LIBC.setns(names["mnt"], _NEWNS))
    os.chdir("/")
    return None if own else names["user"]


def _become(user: int) -> None:
    """Become *user* in a user namespace below the Pod's: exec then leaves no capability."""
    if user == 0:
        return
    _checked(_LIBC.unshare(_NEWUSER))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} 0 1"),
        ("gid_map", f"{user} 0 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _make_root(spec: Spec) -> None:
    """Mount what the specification lists under a new root, and make that the root."""
    root = spec["root"]
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=755")
    for step in spec["mounts"]:
        target = root + step["target"]
        match step["op"]:
            case "bind":
                _make_room(root, target, folder=os.path.isdir(step["source"]))
                _mount(step["source"], target, "", _BIND | _REC)
                if step["read_only"]:
                    _make_read_only(target)
            case "link":
                _make_room(root, os.path.dirname(target), folder=True)
                os.symlink(step["source"], target)
            case filesystem:
                _make_room(root, target, folder=True)
                _mount(filesystem, target, filesystem, step["flags"], step["options"])
    os.chdir(root)
    _checked(_LIBC.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
    _checked(_LIBC.umount2(b".", _DETACH))
    os.chdir("/")


def _make_room(root: str, target: str, *, folder: bool) -> None:
    """Make sure that *target* exists, so that something can be mounted there.

    If its parent is shared with the host, and so read-only, the parent is replaced by a folder of
    the Pod with the same entries.
    """
    if os.path.lexists(target) and (folder or not os.path.islink(target)):
        return
    parent = os.path.dirname(target)
    if parent != root:
        _make_room(root, parent, folder=True)
    try:
        _make_entry(target, folder=folder)
    except OSError as error:
        if isinstance(error, FileExistsError) and not os.path.islink(target):
            return  # another container of a shared volume has just made it
        _open_up(parent)
        if os.path.islink(target):  # as resolv.conf often is; its target may not exist in here
            os.unlink(target)
        _make_entry(target, folder=folder)


def _make_entry(path: str, *, folder: bool) -> None:
    if folder:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _open_up(folder: str) -> None:
    below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    entries = list(os.scandir(below))
    _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "mode=755")
    for entry in entries:
        path = os.path.join(folder, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.name, dir_fd=below), path)
            continue
        _make_entry(path, folder=entry.is_dir())
        _mount(f"/proc/self/fd/{below}/{entry.name}", path, "", _BIND | _REC)
        _make_read_only(path)
    os.close(below)


def _make_read_only(target: str) -> None:
    attributes = struct.pack("QQQQ", _RDONLY, 0, 0, 0)
    done = _LIBC.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, len(attributes)
    )
    if done != 0:  # Linux before 5.12: lower mounts stay as they are
        _mount("", target, "", _REMOUNT | _BIND | _RDONLY)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    done = _LIBC.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _say(reply: socket.socket, message: Spec, fds: list[int] | None = None) -> None:
    try:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        reply.sendmsg([json.dumps(message).encode()], ancillary)
    except OSError:
        pass  # the reader is gone


def _read_all(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return file.read()


if __name__ == "__main__":
    main()

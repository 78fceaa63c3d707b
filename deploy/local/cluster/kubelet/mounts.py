"""The file system of a container, as a list of steps for the sandbox. No I/O."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deploy.local.cluster.kubelet.environment import Unresolved, expand
from deploy.local.cluster.kubelet.images import Image
from deploy.local.cluster.kubelet.volumes import Volume

Object = dict[str, Any]
Step = dict[str, Any]
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_SHM_BYTES: Final = 64 * 1024 * 1024  # the default of container runtimes
_SHARED: Final = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "sys")
TERMINATION_LOG: Final = "termination-log"
_FILES: Final = ("hostname", "passwd", "group", "resolv.conf")
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")


def make_root(host: Mapping[str, str | None]) -> list[Step]:
    """Return the steps for the mounts of every container.

    Args:
        host: The entries of this machine's root folder: the target of a link, else None.
    """
    steps: list[Step] = []
    for name in _SHARED:
        if name in host:
            target = host[name]
            steps.append(_link(target, f"/{name}") if target else _bind(f"/{name}", f"/{name}"))
    steps += [_filesystem("proc", "/proc", _NOSUID | _NODEV | _NOEXEC, "")]
    steps += [_filesystem("tmpfs", "/tmp", _NOSUID | _NODEV, "mode=1777")]  # noqa: S108 - the Pod's own
    steps += [_filesystem("tmpfs", "/run", _NOSUID | _NODEV, "mode=755")]
    steps += [_filesystem("tmpfs", "/var/tmp", _NOSUID | _NODEV, "mode=1777")]  # noqa: S108 - as above
    steps += [_filesystem("tmpfs", "/dev", _NOSUID, "mode=755")]
    steps += [_bind(f"/dev/{name}", f"/dev/{name}", read_only=False) for name in _DEVICES]
    steps += [_filesystem("devpts", "/dev/pts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666")]
    steps += [_filesystem("tmpfs", "/dev/shm", _NOSUID | _NODEV, f"mode=1777,size={_SHM_BYTES}")]  # noqa: S108 - as above
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"}
    links |= {name: f"/proc/self/fd/{n}" for n, name in enumerate(("stdin", "stdout", "stderr"))}
    return [*steps, *(_link(target, f"/dev/{name}") for name, target in links.items())]


def make_mounts(
    container: Object,
    image: Image,
    volumes: Mapping[str, Volume],
    *,
    own: Path,
    environment: Mapping[str, str],
) -> list[Step]:
    """Return the steps for the mounts of *container* alone.

    Args:
        container: From the Pod's spec.
        image: Its image.
        volumes: The volumes of the Pod, ready.
        own: A folder with the container's ``work``, ``hosts``, `TERMINATION_LOG`, `_FILES`.
        environment: For ``subPathExpr``.
    """
    home = _bind(str(own / "work"), image.working_dir, read_only=False)
    files = [_bind(str(own / name), f"/etc/{name}") for name in _FILES]
    # Kubernetes lets a container write its hosts file.
    files.append(_bind(str(own / "hosts"), "/etc/hosts", read_only=False))
    mounts = [_volume_mount(m, volumes, environment) for m in container.get("volumeMounts") or []]
    # A parent comes before mounts within it, whatever the order in the spec.
    steps = sorted([home, *mounts], key=lambda step: step["target"].count("/"))
    visible = sorted(image.visible, key=lambda path: len(path.parts))
    seen = (_bind(str(path), str(path)) for path in _outermost(visible))
    return [*files, *steps, *seen, *_termination_log(container, own)]


def _termination_log(container: Object, own: Path) -> list[Step]:
    path = container.get("terminationMessagePath")
    # It may be in a folder of a volume, so it comes after the volumes.
    return [_bind(str(own / TERMINATION_LOG), _clean(path), read_only=False)] if path else []


def _volume_mount(
    mount: Object, volumes: Mapping[str, Volume], environment: Mapping[str, str]
) -> Step:
    volume = volumes[mount["name"]]
    below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", environment)
    if below.startswith("/") or ".." in below.split("/"):
        raise Unresolved(f"subPath must be relative and may not contain '..': {below}")
    path = volume.path / below if below else volume.path
    read_only = bool(mount.get("readOnly")) or volume.read_only
    return {**_bind(str(path), _clean(mount["mountPath"]), read_only=read_only), "sub": bool(below)}


def _clean(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _outermost(paths: list[Path]) -> list[Path]:
    """Return *paths* without those inside another one; *paths* are sorted by depth."""
    kept: list[Path] = []
    for path in paths:
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def _bind(source: str, target: str, *, read_only: bool = True) -> Step:
    return {"op": "bind", "source": source, "target": target, "read_only": read_only}


def _link(source: str | None, target: str) -> Step:
    return {"op": "link", "source": source, "target": target}


def _filesystem(kind: str, target: str, flags: int, options: str) -> Step:
    return {"op": kind, "target": target, "flags": flags, "options": options}

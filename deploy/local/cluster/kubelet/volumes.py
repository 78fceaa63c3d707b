"""A Pod's volumes as folders, written before its containers start."""

import base64
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.cluster.kubelet.environment import (
    Unresolved,
    field_value,
    resource_value,
)
from deploy.local.cluster.quantities import quantity

Object = dict[str, Any]


Contents = Mapping[tuple[str, str], Mapping[str, bytes]]
"""The entries of ConfigMaps and Secrets, by kind (``configMap``, ``secret``) and name."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that is ready: its folder, and its size if it is backed by memory."""

    path: Path
    memory: bool = False
    size: int | None = None
    read_only: bool = False


def make_volumes(
    pod: Object, folder: Path, contents: Contents, places: Mapping[str, Path]
) -> dict[str, Volume]:
    """Write every volume of *pod* below *folder*.

    Args:
        pod: The Pod.
        folder: The Pod's folder for volumes.
        contents: The entries of its ConfigMaps and Secrets.
        places: The folder behind each claim that it names.

    Raises:
        Unresolved: If an object or key that is not optional is missing. Nothing is started then,
            and the caller tries again.
    """
    volumes = {}
    for volume in pod["spec"].get("volumes") or []:
        path = folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        volumes[volume["name"]] = _make_volume(volume, path, pod, contents, places)
    return volumes


def renew_volumes(pod: Object, folder: Path, contents: Contents) -> None:
    """Rewrite the volumes that are made from ConfigMaps, Secrets and the Pod's own fields.

    Raises:
        Unresolved: If something is missing now; the volume stays as it was.
    """
    for volume in pod["spec"].get("volumes") or []:
        if not {"emptyDir", "persistentVolumeClaim", "hostPath"} & volume.keys():
            write_files(folder / volume["name"], _files(volume, pod, contents))


def claims_of(pod: Object) -> set[str]:
    """Return the names of the claims that *pod* mounts."""
    volumes = pod["spec"].get("volumes") or []
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    }


def _make_volume(
    volume: Object, path: Path, pod: Object, contents: Contents, places: Mapping[str, Path]
) -> Volume:
    if (empty := volume.get("emptyDir")) is not None:
        path.chmod(0o777)
        limit = empty.get("sizeLimit")
        size = int(quantity(str(limit))) if limit else None
        return Volume(path, memory=empty.get("medium") == "Memory", size=size)
    if claim := volume.get("persistentVolumeClaim"):
        return Volume(places[claim["claimName"]], read_only=bool(claim.get("readOnly")))
    if host := volume.get("hostPath"):
        return Volume(_host_folder(host))
    write_files(path, _files(volume, pod, contents))
    return Volume(path, read_only=True)


def _host_folder(host: Object) -> Path:
    path = Path(host["path"])
    if host.get("type") == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    if host.get("type") and not path.exists():
        raise Unresolved(f"hostPath type check failed: {path} is not there")
    return path


def _files(volume: Object, pod: Object, contents: Contents) -> Iterator[tuple[str, bytes, int]]:
    """Yield the files of *volume*: path within it, content, mode."""
    if projected := volume.get("projected"):
        mode = projected.get("defaultMode", 0o644)
        for source in projected.get("sources") or []:
            yield from _source_files(source, mode, pod, contents)
        return
    source = {key: value for key, value in volume.items() if key != "name"}
    mode = next((int(s["defaultMode"]) for s in source.values() if "defaultMode" in s), 0o644)
    if secret := source.get("secret"):
        source = {"secret": {**secret, "name": secret.get("secretName")}}
    yield from _source_files(source, mode, pod, contents)


def _source_files(
    source: Object, mode: int, pod: Object, contents: Contents
) -> Iterator[tuple[str, bytes, int]]:
    if downward := source.get("downwardAPI"):
        for item in downward.get("items") or []:
            yield item["path"], _downward(item, pod).encode(), item.get("mode", mode)
    elif reference := source.get("configMap"):
        yield from _selected(
            "configmap",
            reference,
            mode,
            contents.get(("configMap", reference["name"])),
        )
    elif reference := source.get("secret"):
        yield from _selected("secret", reference, mode, contents.get(("secret", reference["name"])))
    elif "serviceAccountToken" in source:
        raise Unresolved("service account tokens are not issued by the embedded cluster")
    else:
        raise Unresolved(f"volumes of this type are not served: {', '.join(source)}")


def config_map_content(value: Object) -> dict[str, bytes]:
    """Return a ConfigMap's entries as bytes."""
    texts = {name: text.encode() for name, text in (value.get("data") or {}).items()}
    binary = value.get("binaryData") or {}
    return texts | {name: base64.b64decode(text) for name, text in binary.items()}


def secret_content(value: Object) -> dict[str, bytes]:
    """Return a Secret's entries as bytes."""
    return {name: base64.b64decode(text) for name, text in (value.get("data") or {}).items()}


def _selected(
    kind: str, reference: Object, mode: int, content: Mapping[str, bytes] | None
) -> Iterator[tuple[str, bytes, int]]:
    if content is None:
        if not reference.get("optional"):
            raise Unresolved(f'{kind} "{reference["name"]}" not found')
        return
    items = reference.get("items") or [{"key": name, "path": name} for name in content]
    for item in items:
        if item["key"] in content:
            yield item["path"], content[item["key"]], item.get("mode", mode)
        elif not reference.get("optional"):
            raise Unresolved(
                f"{kind} {reference['name']} references non-existent key: {item['key']}"
            )


def _downward(item: Object, pod: Object) -> str:
    if reference := item.get("fieldRef"):
        return field_value(pod, reference["fieldPath"])
    return resource_value(item["resourceFieldRef"], pod, None)


def write_files(folder: Path, files: Iterable[tuple[str, bytes, int]]) -> None:
    """Make *files* (path, content, mode) the whole content of *folder*, in one step.

    As with a kubelet, the files are in a folder of their own. The link ``..data`` leads to that
    folder, and the names of the files lead through the link. So a reader sees either all old or all
    new files.
    """
    wanted = {path: (content, mode) for path, content, mode in files}
    current = folder / "..data"
    if current.exists() and wanted == _read_files(current.resolve()):
        return
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    fresh.chmod(0o755)
    for path, (content, mode) in wanted.items():
        if path.startswith("/") or ".." in path.split("/"):
            raise Unresolved(f"a path of a volume may not leave it: {path}")
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    before = current.resolve() if current.exists() else None
    _link(current, fresh.name)
    tops = {path.partition("/")[0] for path in wanted}
    for name in tops:
        _link(folder / name, f"..data/{name}")
    for entry in list(folder.iterdir()):
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if before is not None:
        shutil.rmtree(before)


def _link(path: Path, target: str) -> None:
    new = path.with_name(f"..{path.name}.new")
    new.symlink_to(target)
    new.replace(path)


def _read_files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in folder.rglob("*")
        if path.is_file()
    }

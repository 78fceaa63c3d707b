"""A Pod's volumes as folders: written before its containers start, and where they then are."""

import base64
import os
import re
from collections.abc import Iterator, Mapping
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


@dataclass(frozen=True, slots=True)
class Sources:
    """What volumes are made from: the objects of the Pod's namespace, and claims' folders."""

    config_maps: Mapping[str, Object]
    secrets: Mapping[str, Object]
    claims: Path


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that is ready: its folder, and whether memory backs it, up to so many bytes."""

    path: Path
    memory: bool = False
    size: int | None = None
    read_only: bool = False


def make_volumes(pod: Object, folder: Path, sources: Sources) -> dict[str, Volume]:
    """Write every volume of *pod* below *folder*.

    Raises:
        Unresolved: If an object or key that is not optional is missing; nothing is started
            then, and the caller tries again.
    """
    volumes = {}
    for volume in pod["spec"].get("volumes") or []:
        path = folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        volumes[volume["name"]] = _make_volume(volume, path, pod, sources)
    return volumes


def _make_volume(volume: Object, path: Path, pod: Object, sources: Sources) -> Volume:
    if (empty := volume.get("emptyDir")) is not None:
        path.chmod(0o777)
        limit = empty.get("sizeLimit")
        size = int(quantity(str(limit))) if limit else None
        return Volume(path, memory=empty.get("medium") == "Memory", size=size)
    if claim := volume.get("persistentVolumeClaim"):
        place = sources.claims / pod["metadata"]["namespace"] / claim["claimName"]
        place.mkdir(parents=True, exist_ok=True)
        return Volume(place, read_only=bool(claim.get("readOnly")))
    if host := volume.get("hostPath"):
        return Volume(_host_folder(host))
    for name, content, mode in _files(volume, pod, sources):
        _write(path / name, content, mode)
    return Volume(path, read_only=True)


def _host_folder(host: Object) -> Path:
    path = Path(host["path"])
    if host.get("type") == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    if host.get("type") and not path.exists():
        raise Unresolved(f"hostPath type check failed: {path} is not there")
    return path


def _files(volume: Object, pod: Object, sources: Sources) -> Iterator[tuple[str, bytes, int]]:
    """Yield the files of *volume*: path within it, content, mode."""
    if projected := volume.get("projected"):
        mode = projected.get("defaultMode", 0o644)
        for source in projected.get("sources") or []:
            yield from _source_files(source, mode, pod, sources)
        return
    source = {key: value for key, value in volume.items() if key != "name"}
    mode = next((int(s["defaultMode"]) for s in source.values() if "defaultMode" in s), 0o644)
    if secret := source.get("secret"):
        source = {"secret": {**secret, "name": secret.get("secretName")}}
    yield from _source_files(source, mode, pod, sources)


def _source_files(
    source: Object, mode: int, pod: Object, sources: Sources
) -> Iterator[tuple[str, bytes, int]]:
    if downward := source.get("downwardAPI"):
        for item in downward.get("items") or []:
            yield item["path"], _downward(item, pod).encode(), item.get("mode", mode)
    elif reference := source.get("configMap"):
        yield from _selected(
            "configmap",
            reference,
            mode,
            config_map_content(sources.config_maps.get(reference["name"])),
        )
    elif reference := source.get("secret"):
        yield from _selected(
            "secret", reference, mode, secret_content(sources.secrets.get(reference["name"]))
        )
    elif "serviceAccountToken" in source:
        raise Unresolved("service account tokens are not issued by the embedded cluster")
    else:
        raise Unresolved(f"volumes of this type are not served: {', '.join(source)}")


def config_map_content(value: Object | None) -> dict[str, bytes] | None:
    """Return a ConfigMap's entries as bytes; None if there is none."""
    if value is None:
        return None
    texts = {name: text.encode() for name, text in (value.get("data") or {}).items()}
    binary = value.get("binaryData") or {}
    return texts | {name: base64.b64decode(text) for name, text in binary.items()}


def secret_content(value: Object | None) -> dict[str, bytes] | None:
    """Return a Secret's entries as bytes; None if there is none."""
    if value is None:
        return None
    return {name: base64.b64decode(text) for name, text in (value.get("data") or {}).items()}


def _selected(
    kind: str, reference: Object, mode: int, content: dict[str, bytes] | None
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


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole, so that no reader sees half of it."""
    if re.search(r"(^|/)\.\.(/|$)", str(path)):
        raise Unresolved(f"a path of a volume may not contain '..': {path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    os.chmod(new, mode)
    new.replace(path)

"""Storage of the node: binds claims to volumes, which are folders of this machine.

A claim of the class `STANDARD`, the default, gets a new folder, which is deleted with the claim.
Other claims are bound to a PersistentVolume that fits (``hostPath`` or ``local``), which a user
makes for data of this machine. That data stays.
"""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Final

from deploy.local.cluster.client import (
    CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Cache,
    Client,
    Object,
    Refused,
)
from deploy.local.cluster.kubelet.environment import Unresolved
from deploy.local.cluster.quantities import quantity

_LOG: Final = logging.getLogger(__name__)
STANDARD: Final = "standard"
_PROVISIONER: Final = "embedded-cluster/folder"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_AGAIN_SECONDS: Final = 1.0


class Storage:
    """Binds claims while `run` runs, and knows the folder behind each.

    Args:
        client: Reads and writes the objects.
        folder: The folder for the folders of claims: ``<namespace>/<name>``.
    """

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._enqueue = asyncio.Event()
        self._claims = Cache(client, CLAIMS, changed=self._changed)
        self._volumes = Cache(client, PERSISTENT_VOLUMES, changed=self._changed)
        self._classes = Cache(client, STORAGE_CLASSES, changed=self._changed)

    async def run(self) -> None:
        """Bind and release until cancelled."""
        caches = (self._claims, self._volumes, self._classes)
        async with asyncio.TaskGroup() as tasks:
            for cache in caches:
                tasks.create_task(cache.follow())
            for cache in caches:
                await cache.synced.wait()
            self._enqueue.set()
            while True:
                await self._enqueue.wait()
                self._enqueue.clear()
                try:
                    if self._classes.get("", STANDARD) is None:
                        await self._client.ensure(STORAGE_CLASSES, "", _standard_class())
                    await self._settle()
                except (Refused, OSError, TimeoutError) as error:
                    _LOG.info("storage: %s", error)
                    await asyncio.sleep(_AGAIN_SECONDS)
                    self._enqueue.set()

    async def place_of(self, namespace: str, name: str) -> Path:
        """Return the folder behind a claim.

        Raises:
            Unresolved: If the claim does not exist, or is not bound yet.
        """
        claim = await self._client.get(CLAIMS, namespace, name)
        if claim is None:
            raise Unresolved(f'persistentvolumeclaim "{name}" not found')
        volume_name = claim["spec"].get("volumeName")
        bound = (claim.get("status") or {}).get("phase") == "Bound"
        volume = await self._client.get(PERSISTENT_VOLUMES, "", volume_name) if bound else None
        if volume is None:
            raise Unresolved(f'persistentvolumeclaim "{name}" is not bound')
        return _place(volume)

    def _changed(self, change: str, value: Object) -> None:
        self._enqueue.set()

    async def _settle(self) -> None:
        for claim in list(self._claims.objects.values()):
            if (claim.get("status") or {}).get("phase") != "Bound":
                await self._bind(claim)
        for volume in list(self._volumes.objects.values()):
            await self._release(volume)

    async def _bind(self, claim: Object) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        wanted = spec.get("storageClassName")
        if wanted is None:
            wanted = self._default_class()
        provisioner = (self._classes.get("", wanted) or {}).get("provisioner")
        volume = choose_volume(claim, wanted, list(self._volumes.objects.values()))
        if volume is None and provisioner == _PROVISIONER and not spec.get("volumeName"):
            volume = await self._provision(claim, wanted)
        if volume is None:
            return
        owner = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            **{key: metadata[key] for key in ("namespace", "name", "uid")},
        }
        name = volume["metadata"]["name"]
        taken = {"spec": {"claimRef": owner}}
        await self._volumes.remember(await self._client.patch(PERSISTENT_VOLUMES, "", name, taken))
        await self._write_volume_phase(name, "Bound")
        where = (CLAIMS, metadata["namespace"], metadata["name"])
        await self._client.patch(*where, {"spec": {"volumeName": name, "storageClassName": wanted}})
        status = {"phase": "Bound", "accessModes": spec["accessModes"]}
        status["capacity"] = volume["spec"]["capacity"]
        await self._claims.remember(await self._client.patch(*where, {"status": status}, "status"))

    async def _provision(self, claim: Object, class_name: str) -> Object:
        metadata = claim["metadata"]
        path = self._folder / metadata["namespace"] / metadata["name"]
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        volume: Object = {
            "metadata": {
                "name": f"pvc-{metadata['uid']}",
                "annotations": {_PROVISIONED_BY: _PROVISIONER},
            },
            "spec": {
                "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                "accessModes": claim["spec"]["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": class_name,
                "hostPath": {"path": str(path)},
            },
        }
        await self._client.ensure(PERSISTENT_VOLUMES, "", volume)
        return volume

    async def _release(self, volume: Object) -> None:
        """Release a volume whose claim is gone; a folder that was made for the claim is deleted."""
        owner = volume["spec"].get("claimRef")
        if not owner:
            return
        claim = self._claims.get(owner["namespace"], owner["name"])
        if claim is not None and claim["metadata"]["uid"] == owner.get("uid", ""):
            return
        name, notes = volume["metadata"]["name"], volume["metadata"].get("annotations") or {}
        # Only folders made here are ever deleted. Any other folder belongs to a user.
        if notes.get(_PROVISIONED_BY) == _PROVISIONER:
            if claim is None:
                await asyncio.to_thread(shutil.rmtree, _place(volume), ignore_errors=True)
            await self._client.delete(PERSISTENT_VOLUMES, "", name)
        elif owner.get("uid") and volume["status"].get("phase") != "Released":
            await self._write_volume_phase(name, "Released")

    async def _write_volume_phase(self, name: str, phase: str) -> None:
        change = {"status": {"phase": phase}}
        written = await self._client.patch(PERSISTENT_VOLUMES, "", name, change, "status")
        await self._volumes.remember(written)

    def _default_class(self) -> str:
        for value in self._classes.objects.values():
            if (value["metadata"].get("annotations") or {}).get(_DEFAULT) == "true":
                return str(value["metadata"]["name"])
        return ""


def choose_volume(claim: Object, class_name: str, volumes: list[Object]) -> Object | None:
    """Return the smallest free volume that fits *claim*, or the one that it names. No I/O."""
    spec, metadata = claim["spec"], claim["metadata"]
    wanted = quantity(str(spec["resources"]["requests"]["storage"]))

    def size(volume: Object) -> float:
        return quantity(str((volume["spec"].get("capacity") or {}).get("storage", "0")))

    def suits(volume: Object) -> bool:
        own = volume["spec"]
        holder = own.get("claimRef") or {}
        reserved = (holder.get("namespace"), holder.get("name"))
        mine = reserved == (metadata["namespace"], metadata["name"])
        if holder and not (mine and holder.get("uid", metadata["uid"]) == metadata["uid"]):
            return False
        if spec.get("volumeName"):
            return bool(volume["metadata"]["name"] == spec["volumeName"])
        return (
            own.get("storageClassName", "") == class_name
            and size(volume) >= wanted
            and set(spec["accessModes"]) <= set(own.get("accessModes") or [])
        )

    return min((v for v in volumes if suits(v)), key=size, default=None)


def _place(volume: Object) -> Path:
    spec = volume["spec"]
    source = spec.get("hostPath") or spec.get("local")
    if not source:
        raise Unresolved(f"volume {volume['metadata']['name']} is of a kind that is not served")
    return Path(source["path"])


def _standard_class() -> Object:
    return {
        "metadata": {"name": STANDARD, "annotations": {_DEFAULT: "true"}},
        "provisioner": _PROVISIONER,
    }

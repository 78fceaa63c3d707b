"""The work of kube-controller-manager in a cluster of this size.

Small loops beside the server: the garbage collector, the use of quotas, the end of namespaces, the
``default`` ServiceAccount of namespaces, and custom kinds. All are level-triggered: a change only
wakes a loop, and the loop reads the store.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.builtin import IN_USE
from deploy.local.cluster.apiserver.definitions import DEFINITIONS, make_custom_kinds
from deploy.local.cluster.apiserver.deletion import FOREGROUND, ORPHAN
from deploy.local.cluster.apiserver.errors import ApiError
from deploy.local.cluster.apiserver.kinds import KindTable, Object
from deploy.local.cluster.apiserver.options import Options
from deploy.local.cluster.apiserver.quotas import shown_resource, usage
from deploy.local.cluster.apiserver.registry import Registry, now
from deploy.local.cluster.apiserver.rules import NAMESPACES
from deploy.local.cluster.apiserver.store import Event, Key, Stored
from deploy.local.cluster.lags import Lags, RateLimit

_LOG: Final = logging.getLogger(__name__)
_SELF: Final = User("system:kube-controller-manager", ("system:masters",))
_QUOTAS: Final = ("", "resourcequotas")
_ACCOUNTS: Final = ("", "serviceaccounts")
_CONFIG_MAPS: Final = ("", "configmaps")
_PODS: Final = ("", "pods")
_CLAIMS: Final = ("", "persistentvolumeclaims")
_EVENTS: Final = ("", "events")
_ROOT_AUTHORITY: Final = "kube-root-ca.crt"
_OWNER_FIELDS: Final = ("apiVersion", "kind", "namespace", "name", "uid")
_SETTLE_SECONDS: Final = 0.05
_BURST_SECONDS: Final = 1.5
"""The rate of the collector's client: 20 requests a second, 30 at once."""

_REQUESTS_OF_AN_END: Final = 2
"""The collector reads an object again before it deletes the object."""

Address = tuple[Key, str, str]


def serve_definitions(kinds: KindTable, key: Key, event: Event) -> None:
    """Serve the kinds of a definition at once, so that the client that created it may go on."""
    if key != DEFINITIONS:
        return
    for kind in make_custom_kinds(event.now.value):
        if event.change == "DELETED":
            kinds.remove(kind)
        else:
            kinds.add(kind)


class Controllers:
    """The loops. `run` returns only when it is cancelled."""

    def __init__(self, registry: Registry, chance: random.Random, lags: Lags, trust: str) -> None:
        """Make the loops; *trust* is the certificate by which Pods verify the server."""
        self._trust: Object = {"data": {"ca.crt": trust}}
        self._registry = registry
        self._store = registry.store
        self._kinds = registry.kinds
        self._chance = chance
        self._owned: dict[str, set[Address]] = defaultdict(set)
        self._by_uid: dict[str, Address] = {}
        self._spaces: set[str] = set()
        self._limit = RateLimit(lags, "collector", burst_seconds=_BURST_SECONDS)
        # In the order of events: the object whose owner ended first is collected first.
        self._suspects: dict[Address, None] = {}
        self._gone_owners: dict[str, None] = {}
        self._uncounted: set[str] = set()
        self._enqueue = asyncio.Event()
        self._count_wake = asyncio.Event()
        self._store.listen(self._hear)  # from the start, so that no change is missed

    async def run(self) -> None:
        """Collect, finish and complete until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect_forever())
            tasks.create_task(self._count_forever())
            tasks.create_task(self._complete_namespaces_forever())

    def _hear(self, key: Key, event: Event) -> None:
        metadata = event.now.value["metadata"]
        address = (key, metadata.get("namespace", ""), metadata["name"])
        before = event.before.value["metadata"] if event.before else {}
        for owner in before.get("ownerReferences") or []:
            self._owned[owner["uid"]].discard(address)
        if event.change == "DELETED":
            self._by_uid.pop(metadata["uid"], None)
            owners = [owner["uid"] for owner in metadata.get("ownerReferences") or []]
            self._gone_owners |= dict.fromkeys([metadata["uid"], *owners])
        else:
            self._by_uid[metadata["uid"]] = address
            for owner in metadata.get("ownerReferences") or []:
                self._owned[owner["uid"]].add(address)
            if metadata.get("ownerReferences") or metadata.get("deletionTimestamp"):
                self._suspects[address] = None
        if key == _PODS:
            self._suspects |= dict.fromkeys(_claims(event.now))
        if metadata.get("namespace"):
            self._uncounted.add(metadata["namespace"])
            self._count_wake.set()
        if key in (NAMESPACES, _ACCOUNTS) or metadata["name"] == _ROOT_AUTHORITY:
            self._spaces.add(metadata.get("namespace") or metadata["name"])
        elif metadata.get("namespace") and event.change == "DELETED":
            space = self._store.get(NAMESPACES, "", metadata["namespace"])
            if space and space.value["metadata"].get("deletionTimestamp"):
                self._spaces.add(metadata["namespace"])
        self._enqueue.set()

    async def _collect_forever(self) -> None:
        while True:
            await self._enqueue.wait()
            await asyncio.sleep(_SETTLE_SECONDS)  # a real collector takes about 0.1 s
            self._enqueue.clear()
            gone, self._gone_owners = self._gone_owners, {}
            suspects, self._suspects = self._suspects, {}
            for uid in gone:
                suspects |= dict.fromkeys(self._owned.get(uid, ()))
                if uid in self._by_uid:
                    suspects[self._by_uid[uid]] = None
                elif not self._owned.get(uid):
                    self._owned.pop(uid, None)
            for address in suspects:
                await self._attempt(self._collect(address))

    async def _count_forever(self) -> None:
        while True:
            await self._count_wake.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._count_wake.clear()
            uncounted, self._uncounted = self._uncounted, set()
            for namespace in uncounted:
                self._count(namespace)

    def _count(self, namespace: str) -> None:
        """Write the use of the namespace's quotas."""
        for stored in self._store.items(_QUOTAS, namespace):
            value = stored.copy()
            hard = (value.get("spec") or {}).get("hard") or {}
            used: dict[str, float] = dict.fromkeys(hard, 0.0)
            for kind in self._kinds:
                for item in self._store.items(kind.key, namespace):
                    for resource, amount in usage(kind, item.value).items():
                        if resource in used:
                            used[resource] += amount
            shown = {
                resource: shown_resource(resource, amount) for resource, amount in used.items()
            }
            value["status"] = {"hard": hard, "used": shown}
            if value != stored.value:
                self._store.put(_QUOTAS, value)

    async def _collect(self, address: Address) -> None:
        stored = self._store.get(*address)
        if stored is None:
            return
        metadata = stored.value["metadata"]
        finalizers = metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp") and FOREGROUND in finalizers:
            await self._delete_dependents_first(address, stored)
        elif metadata.get("deletionTimestamp") and ORPHAN in finalizers:
            await self._orphan_dependents(address, stored)
        elif metadata.get("deletionTimestamp") and IN_USE in finalizers:
            if not any(_uses(pod, address) for pod in self._store.items(_PODS, address[1])):
                await self._without_finalizer(address, IN_USE)
        elif not metadata.get("deletionTimestamp") and metadata.get("ownerReferences"):
            await self._delete_if_orphaned(address, stored)

    async def _delete_dependents_first(self, address: Address, owner: Stored) -> None:
        waits = False
        uid = owner.value["metadata"]["uid"]
        for dependent in list(self._owned.get(uid, ())):
            stored = self._store.get(*dependent)
            if stored is None:
                continue
            reference = _reference(stored, uid)
            waits = waits or bool(reference.get("blockOwnerDeletion"))
            if not stored.value["metadata"].get("deletionTimestamp"):
                await self._attempt(self._delete(dependent, stored, "Foreground"))
        if not waits or not self._owned.get(uid):
            await self._without_finalizer(address, FOREGROUND)

    async def _orphan_dependents(self, address: Address, owner: Stored) -> None:
        uid = owner.value["metadata"]["uid"]
        for dependent in list(self._owned.get(uid, ())):
            await self._without_owners(dependent, {uid})
        await self._without_finalizer(address, ORPHAN)

    async def _delete_if_orphaned(self, address: Address, stored: Stored) -> None:
        owners, space = stored.value["metadata"]["ownerReferences"], address[1]
        gone = {o["uid"] for o in owners if not self._is_reachable(o["uid"], space)}
        elsewhere = [o for o in owners if o["uid"] in gone and o["uid"] in self._by_uid]
        if elsewhere and len(gone) == len(owners):
            await self._attempt(self._record_owner_event(stored, elsewhere[0]))
        if len(gone) == len(owners):
            await self._limit.wait(_REQUESTS_OF_AN_END)
            if self._store.get(*address) is stored:  # else its change enqueues it again
                await self._delete(address, stored, "Background")
        elif gone:
            await self._without_owners(address, gone)

    def _is_reachable(self, uid: str, namespace: str) -> bool:
        """Whether the owner exists. An object in another namespace is no owner."""
        address = self._by_uid.get(uid)
        return address is not None and address[1] in ("", namespace)

    async def _record_owner_event(self, stored: Stored, owner: Object) -> None:
        """Record that an object is deleted because its owner is in another namespace."""
        value, metadata = stored.value, stored.value["metadata"]
        kind, space = self._kinds.by_key(_EVENTS), metadata.get("namespace", "")
        shown = ", ".join(f"{name}: {owner.get(name, '')}" for name in _OWNER_FIELDS)
        event: Object = {
            "metadata": {"name": f"{metadata['name']}.{metadata['uid'][:8]}", "namespace": space},
            "involvedObject": {
                "apiVersion": value["apiVersion"],
                "kind": value["kind"],
                "name": metadata["name"],
                "namespace": space,
                "uid": metadata["uid"],
            },
            "type": "Warning",
            "reason": "OwnerRefInvalidNamespace",
            "message": f'ownerRef [{shown}] does not exist in namespace "{space}"',
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
            "source": {"component": "garbage-collector-controller"},
        }
        await self._registry.create(kind, space, event, user=_SELF, options=Options())

    async def _complete_namespaces_forever(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                if not self._spaces:
                    await asyncio.sleep(_SETTLE_SECONDS)
                spaces, self._spaces = self._spaces, set()
                for name in spaces:
                    tasks.create_task(self._attempt(self._complete_namespace(name)))

    async def _complete_namespace(self, name: str) -> None:
        space = self._store.get(NAMESPACES, "", name)
        if space is None:
            return
        if space.value["metadata"].get("deletionTimestamp"):
            await self._empty_namespace(name)
            return
        for key, value in ((_ACCOUNTS, {}), (_CONFIG_MAPS, self._trust)):
            called = "default" if key == _ACCOUNTS else _ROOT_AUTHORITY
            if self._store.get(key, name, called) is None:
                # On a real cluster it takes seconds, and never happens at the same moment as the
                # namespace.
                await asyncio.sleep(self._chance.uniform(0.01, 0.3))
                body: Object = {"metadata": {"name": called, "namespace": name}, **value}
                kind = self._kinds.by_key(key)
                created = self._registry.create(kind, name, body, user=_SELF, options=Options())
                await self._attempt(created)

    async def _empty_namespace(self, name: str) -> None:
        content = list(self._store.in_namespace(name))
        for key, stored in content:
            address = (key, name, stored.value["metadata"]["name"])
            if not stored.value["metadata"].get("deletionTimestamp"):
                await self._attempt(self._delete(address, stored, "Background"))
        if not any(True for _ in self._store.in_namespace(name)):
            space = self._store.get(NAMESPACES, "", name)
            if space is not None and not space.value["metadata"].get("finalizers"):
                self._store.remove(NAMESPACES, space)

    async def _delete(self, address: Address, stored: Stored, policy: str) -> None:
        key, namespace, name = address
        metadata = stored.value["metadata"]
        wish: Object = {
            "propagationPolicy": policy,
            "preconditions": {"uid": metadata["uid"]},
        }
        kind = self._kinds.by_key(key)
        await self._registry.delete(kind, namespace, name, wish, user=_SELF)

    async def _without_finalizer(self, address: Address, finalizer: str) -> None:
        def change(value: Object) -> Object:
            rest = [f for f in value["metadata"].get("finalizers") or [] if f != finalizer]
            value["metadata"]["finalizers"] = rest
            return value

        await self._update(address, change)

    async def _without_owners(self, address: Address, uids: set[str]) -> None:
        def change(value: Object) -> Object:
            owners = value["metadata"].get("ownerReferences") or []
            value["metadata"]["ownerReferences"] = [o for o in owners if o["uid"] not in uids]
            return value

        await self._update(address, change)

    async def _update(self, address: Address, change: Any) -> None:
        key, namespace, name = address
        kind = self._kinds.by_key(key)
        await self._registry.update(kind, namespace, name, change, user=_SELF, options=Options())

    async def _attempt(self, work: Any) -> None:
        """Await *work*; a change that somebody else has made already is no error."""
        try:
            await work
        except ApiError as error:
            if error.code not in (404, 409):
                _LOG.warning("%s", error)
        except StopIteration:  # its kind is no longer served
            pass


def _claims(pod: Stored) -> Iterator[Address]:
    """Yield the claims that *pod* uses."""
    metadata = pod.value["metadata"]
    for volume in pod.value.get("spec", {}).get("volumes") or []:
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield _CLAIMS, metadata.get("namespace", ""), claim


def _uses(pod: Stored, claim: Address) -> bool:
    phase = (pod.value.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and claim in _claims(pod)


def _reference(stored: Stored, uid: str) -> Object:
    owners = stored.value["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner["uid"] == uid), {})

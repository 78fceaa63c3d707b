"""The ConfigMaps and Secrets of Pods, as the server last sent them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from deploy.local.cluster.client import CONFIG_MAPS, SECRETS, Cache, Client, Object
from deploy.local.cluster.kubelet.volumes import config_map_content, secret_content

Content = dict[str, bytes]


Changed = Callable[[str, str, str], None]


class Sources:
    """Both kinds, while `follow` runs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed: Changed = lambda kind, namespace, name: None
        self._caches = {
            "configMap": Cache(client, CONFIG_MAPS, changed=self._take("configMap")),
            "secret": Cache(client, SECRETS, changed=self._take("secret")),
        }

    async def follow(self, changed: Changed) -> None:
        """Follow until cancelled; call *changed* with kind, namespace and name."""
        self._changed = changed
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches.values():
                tasks.create_task(cache.follow())

    def _take(self, kind: str) -> Callable[[str, Object], None]:
        def take(change: str, value: Object) -> None:
            self._changed(kind, value["metadata"]["namespace"], value["metadata"]["name"])

        return take

    async def fetch(self, pod: Object) -> dict[tuple[str, str], Content]:
        """Return the entries of all existing objects that *pod* refers to, by kind and name."""
        namespace = pod["metadata"]["namespace"]
        found = {}
        for kind, name in references(pod["spec"]):
            value = self._caches[kind].get(namespace, name)
            if value is None:  # it may have been created a moment ago
                resource = CONFIG_MAPS if kind == "configMap" else SECRETS
                value = await self._client.get(resource, namespace, name)
            if value is not None:
                read = config_map_content if kind == "configMap" else secret_content
                found[kind, name] = read(value)
        return found


def references(spec: Object) -> set[tuple[str, str]]:
    """Return kind and name of every ConfigMap and Secret that *spec* names anywhere."""
    return set(_references(spec))


def _references(spec: Any) -> Iterator[tuple[str, str]]:
    if isinstance(spec, list):
        for item in spec:
            yield from _references(item)
    elif isinstance(spec, dict):
        for key, value in spec.items():
            if key in ("configMap", "configMapRef", "configMapKeyRef") and "name" in value:
                yield "configMap", value["name"]
            elif key in ("secret", "secretRef", "secretKeyRef"):
                yield "secret", value.get("secretName") or value.get("name", "")
            yield from _references(value)

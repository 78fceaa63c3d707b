"""The Kubernetes client: few verbs, plain objects, our own errors, and evidence of absence."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import aiohttp

from controller.kube.decoding import (
    METADATA,
    WHOLE,
    FieldTransform,
    Object,
    Objects,
    Part,
    read_list,
)
from controller.kube.errors import Conflict, Expired, Forbidden, NotFound
from controller.kube.kinds import NAMESPACES, Kind
from controller.kube.transport import CALL_SECONDS, JSON, Request, Transport

__all__ = ["Kube", "Object", "Objects", "Propagation", "path_of"]


Propagation = Literal["Background", "Foreground", "Orphan"]

LIST_SECONDS: Final = 300.0
"""Timeout of one page, which is the whole list if the server ignores ``limit``."""
PAGED_LISTS: Final = 2
"""How often a list is begun again that expires between its pages; then it is requested unpaged."""

METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


def path_of(kind: Kind, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
    """Return the URL path of the collection, an object, or a subresource.

    Without *namespace* the collection is that of all namespaces.
    """
    root = f"/api/{kind.api}" if "/" not in kind.api else f"/apis/{kind.api}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    parts = [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join([f"{root}{inside}/{kind.plural}", *parts])


class Kube:
    """Calls the API server; every method raises a KubeError when the call fails."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.stream = transport.stream
        """Opens the body of a streamed response."""
        self.websocket = transport.websocket
        """Opens a WebSocket."""

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None = None) -> AsyncIterator[Self]:
        """Open a client; nothing is sent yet.

        Raises:
            Unavailable: If there is no usable configuration.
        """
        async with Transport.connect(kubeconfig) as transport:
            yield cls(transport)

    def now(self) -> float:
        """Return unix seconds, by this machine's clock or the API server's: by the earlier one.

        A job that ends too early by a wrong clock is lost; one that ends late is not.
        """
        return time.time() + min(0.0, self.clock_offset)

    @property
    def server_ahead(self) -> float:
        """How far the API server's clock is ahead of :meth:`now`, in seconds.

        Times of deletions are the server's.
        """
        return max(0.0, self.clock_offset)

    @property
    def clock_offset(self) -> float:
        """How far the API server's clock was ahead of this machine's, at its last response.

        0 if they differ by less than five seconds.
        """
        return self._transport.clock_offset

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """Return an object.

        Raises:
            NotFound: If it does not exist.
        """
        return await self._transport.call("GET", path_of(kind, namespace, name))

    async def openapi(self, path: str) -> Object:
        """Return the OpenAPI 3 document of a group and version, such as ``apis/apps/v1``.

        Raises:
            NotServed: If the server has no such group.
        """
        return await self._transport.call("GET", f"/openapi/v3/{path}")

    async def resources(self, api: str) -> dict[str, Object]:
        """Return the resources of a group and version, such as ``policy/v1``, by their plurals.

        Raises:
            NotServed: If the server does not serve them.
        """
        root = "/apis" if "/" in api else "/api"
        response = await self._transport.call("GET", f"{root}/{api}")
        return {one["name"]: one for one in response.get("resources") or ()}

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        transform: FieldTransform = WHOLE,
    ) -> Objects:
        """Return all objects that match the selectors, in all namespaces if none is given.

        All of them are in memory at once: use :meth:`parts` if there may be many.
        """
        selected = partial(
            self.parts, kind, namespace, labels=labels, fields=fields, transform=transform
        )
        for _ in range(PAGED_LISTS):
            # If the list expired between two pages, it is requested again from the start.
            with suppress(Expired):
                return await _gathered(selected())
        return await _gathered(selected(paged=False))

    def parts(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        transform: FieldTransform = WHOLE,
        paged: bool = True,
        accept: str = JSON,
    ) -> AsyncGenerator[Part, None]:
        """Yield the objects that match the selectors in parts (see ``decoding``).

        Raises:
            Expired: If the list expired between two pages.
        """
        path = path_of(kind, namespace)

        def open_page(
            query: Mapping[str, str],
        ) -> AbstractAsyncContextManager[aiohttp.StreamReader]:
            return self.stream(
                path,
                query,
                quiet_seconds=CALL_SECONDS,
                whole_seconds=LIST_SECONDS,
                accept=accept,
            )

        return read_list(open_page, _selectors(labels, fields), transform, paged=paged)

    async def version_of(self, kind: Kind) -> str:
        """Return the resourceVersion that a list of all objects has now; empty if it has none.

        Without a selector, for which the server might read all objects until one matches.
        """
        page = await self._transport.call("GET", path_of(kind), query={"limit": "1"})
        version = page["metadata"].get("resourceVersion")
        return version if isinstance(version, str) else ""

    async def metadata(self, kind: Kind, *, labels: str) -> AsyncIterator[Objects]:
        """Yield the metadata of the objects in all namespaces that match *labels*, in parts.

        A server that cannot reduce objects to metadata sends whole ones, which are then reduced
        here. (Kubernetes API concepts, "Alternate representations of resources".)

        Raises:
            Expired: If the list expired between two pages.
        """
        parts = self.parts(kind, labels=labels, transform=METADATA, accept=METADATA_LIST)
        async with aclosing(parts):
            async for part in parts:
                if part.objects:
                    yield part.objects

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        """Create an object, and return it as it was stored.

        Raises:
            AlreadyExists: If an object of this name exists.
        """
        typed = {"apiVersion": kind.api, "kind": kind.kind} | body
        return await self._transport.call("POST", path_of(kind, namespace), body=typed)

    async def try_create(self, kind: Kind, body: Object, namespace: str | None = None) -> None:
        """Check with a dry run whether the server would create the object; nothing is stored.

        Unknown fields are refused instead of dropped. To RBAC and admission webhooks this is a
        ``create`` (Kubernetes API concepts, "Dry-run" and "Field validation").

        Raises:
            KubeError: The error with which the server would refuse the object.
        """
        typed = {"apiVersion": kind.api, "kind": kind.kind} | body
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        await self._transport.once(Request("POST", path_of(kind, namespace), query, typed))

    async def replace(
        self, kind: Kind, name: str, body: Object, namespace: str | None = None
    ) -> Object:
        """Replace an object; if *body* has a resourceVersion, only that version.

        Raises:
            Conflict: If the object has another version.
        """
        typed = {"apiVersion": kind.api, "kind": kind.kind} | body
        return await self._transport.call("PUT", path_of(kind, namespace, name), body=typed)

    async def merge(
        self,
        kind: Kind,
        name: str,
        patch: Object,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Object:
        """Apply a merge patch (RFC 7386)."""
        path = path_of(kind, namespace, name, subresource)
        return await self._transport.call("PATCH", path, body=patch, content_type=MERGE)

    async def json_patch(
        self,
        kind: Kind,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str | None = None,
    ) -> Object:
        """Apply a JSON patch (RFC 6902). A failed test operation raises Invalid."""
        path = path_of(kind, namespace, name)
        return await self._transport.call(
            "PATCH", path, body=list(operations), content_type=JSON_PATCH
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object. An object that does not exist is no error.

        Args:
            kind: The resource.
            name: The object's name.
            namespace: The object's namespace.
            uid: Deletes only the object with this UID.
            propagation: How objects that it owns are deleted.
            grace_seconds: Overrides the object's own grace period.

        Raises:
            Conflict: If the object of this name has another UID.
        """
        options: Object = {"propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._transport.call("DELETE", path_of(kind, namespace, name), body=options)
        except NotFound:
            return

    async def ensure_deleted(self, kind: Kind, name: str, namespace: str, uid: str) -> None:
        """Delete exactly this object; another object of its name stays, which is no error.

        Raises:
            Conflict: If it still exists. A webhook, or a server with a stale cache, responds 409,
                too; an object that is taken for gone is never deleted again.
        """
        try:
            await self.delete(kind, name, namespace, uid=uid)
        except Conflict:
            try:
                found = await self.get(kind, name, namespace)
            except (NotFound, Forbidden):
                return  # some kinds may be deleted but not read
            if found["metadata"].get("uid") == uid:
                raise

    @asynccontextmanager
    async def unless_gone(self, namespace: str) -> AsyncIterator[None]:
        """Suppress the errors of the block if its object is gone, alone or with *namespace*.

        The controller's permissions in an owner's namespace are objects in it, and are deleted with
        it. The API server then forbids all reads there. The missing namespace is the evidence that
        the object is gone.
        """
        try:
            yield
        except NotFound:
            return
        except Forbidden:
            try:
                await self.get(NAMESPACES, namespace)
            except NotFound:
                return
            raise

    @asynccontextmanager
    async def unless_going(self, namespace: str) -> AsyncIterator[None]:
        """As :meth:`unless_gone`, for a deletion, also if *namespace* is being deleted.

        That cannot be revoked, and deletes all objects of the namespace. The namespace itself may
        stay for days: an object with a finalizer keeps it, or an API that is unavailable.
        """
        try:
            async with self.unless_gone(namespace):
                yield
        except Forbidden:
            found = await self.get(NAMESPACES, namespace)
            if not found["metadata"].get("deletionTimestamp"):
                raise


async def _gathered(parts: AsyncGenerator[Part, None]) -> Objects:
    async with aclosing(parts):
        return [one async for part in parts for one in part.objects]


def _selectors(labels: str, fields: str) -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in selectors.items() if value}

"""A Kubernetes client for programs that read and write plain JSON objects.

``volcano`` and ``kubelet`` use it instead of ``kubernetes_asyncio``, whose import alone takes
longer than the whole cluster may take to start. It speaks to any API server.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from deploy.local.cluster.kubeconfig import Access
from deploy.local.cluster.lags import RateLimit

Object = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
_LOG: Final = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 300
_CALL_SECONDS: Final = 30.0
_TRIES: Final = 6
_PAUSE_SECONDS: Final = 0.2


class Refused(Exception):
    """The API server refused a call; `code` and `reason` are from its Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Unreachable(ConnectionError):
    """The API server could not be called, or disconnected in the middle of its response."""


@contextmanager
def _border() -> Iterator[None]:
    """Translate aiohttp's errors: callers handle `Refused`, OSError and TimeoutError."""
    try:
        yield
    except aiohttp.ClientError as error:
        raise Unreachable(str(error) or type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class Resource:
    """The API path of a kind."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        prefix = "/apis/" if "/" in self.api_version else "/api/"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{prefix}{self.api_version}{scope}/{self.plural}{tail}"


NODES: Final = Resource("v1", "nodes", namespaced=False)
NAMESPACES: Final = Resource("v1", "namespaces", namespaced=False)
PODS: Final = Resource("v1", "pods")
SERVICES: Final = Resource("v1", "services")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
SECRETS: Final = Resource("v1", "secrets")
CLAIMS: Final = Resource("v1", "persistentvolumeclaims")
PERSISTENT_VOLUMES: Final = Resource("v1", "persistentvolumes", namespaced=False)
STORAGE_CLASSES: Final = Resource("storage.k8s.io/v1", "storageclasses", namespaced=False)
EVENTS: Final = Resource("v1", "events")
NETWORK_POLICIES: Final = Resource("networking.k8s.io/v1", "networkpolicies")


class Client:
    """Calls to one API server; an async context manager that closes its connections.

    Args:
        access: The server's address, and the client's credentials.
        tries: How often a call is made that is answered 429.
        limit: The rate limiter for which every call waits.
    """

    def __init__(
        self, access: Access, *, tries: int = _TRIES, limit: RateLimit | None = None
    ) -> None:
        self._tries = tries
        self._limit = limit
        headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        self._session = aiohttp.ClientSession(
            base_url=access.server,
            headers={**headers, "Accept": "application/json"},
            connector=aiohttp.TCPConnector(ssl=access.tls or False, limit=0),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """Return the object, or None."""
        try:
            return await self._call("GET", resource.path(namespace, name))
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def create(self, resource: Resource, namespace: str, value: Object) -> Object:
        """Create *value*."""
        return await self._call("POST", resource.path(namespace), value)

    async def ensure(self, resource: Resource, namespace: str, value: Object) -> None:
        """Create *value* unless an object of its name exists."""
        try:
            await self.create(resource, namespace, value)
        except Refused as error:
            if error.reason != "AlreadyExists":
                raise

    async def replace(self, resource: Resource, value: Object, subresource: str = "") -> Object:
        """Replace the object; 409 if *value* was made from an older revision."""
        metadata = value["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._call("PUT", path, value)

    async def patch(
        self, resource: Resource, namespace: str, name: str, change: Object, subresource: str = ""
    ) -> Object:
        """Apply a merge patch."""
        path = resource.path(namespace, name, subresource)
        return await self._call("PATCH", path, change, content_type=MERGE)

    async def post(self, path: str, value: Object) -> Object:
        """Post *value* to a subresource's *path*."""
        return await self._call("POST", path, value)

    async def delete(
        self, resource: Resource, namespace: str, name: str, options: Object | None = None
    ) -> None:
        """Delete the object, if it exists."""
        try:
            await self._call("DELETE", resource.path(namespace, name), options or {})
        except Refused as error:
            if error.code != 404:
                raise

    async def list_objects(self, resource: Resource, query: Object) -> tuple[list[Object], str]:
        """Return all objects that *query* selects, and the revision of the list."""
        response = await self._call("GET", resource.path(), query=query)
        # Items of a typed list do not repeat their kind.
        kind, version = response["kind"].removesuffix("List"), response["apiVersion"]
        items = [{"kind": kind, "apiVersion": version, **i} for i in response.get("items") or []]
        return items, response["metadata"]["resourceVersion"]

    async def watch(self, resource: Resource, query: Object) -> AsyncIterator[tuple[str, Object]]:
        """Yield changes until the server ends the stream.

        Raises:
            Refused: 410 when the revision is too old.
        """
        query = {**query, "watch": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        timeout = aiohttp.ClientTimeout(total=_WATCH_SECONDS + 30, sock_connect=5)
        request = self._session.get(resource.path(), params=query, timeout=timeout)
        with _border():
            async with request as response:
                async for event in _events(response):
                    yield event

    async def text(self, path: str) -> str:
        """Return the response of *path* as text, such as a log."""
        timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS, sock_connect=5)
        with _border():
            async with self._session.get(path, timeout=timeout) as response:
                if response.status >= 400:
                    raise await _refusal(response)
                return await response.text()

    async def _call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type} if data is not None else {}
        timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS, sock_connect=5)
        request: Object = {"data": data, "params": query, "headers": headers, "timeout": timeout}
        for left in reversed(range(self._tries)):
            if self._limit is not None:
                await self._limit.wait()
            with _border():
                async with self._session.request(method, path, **request) as response:
                    if response.status < 400:
                        decoded: Object = msgspec.json.decode(await response.read())
                        return decoded
                    error = await _refusal(response)
                    pause = float(response.headers.get("Retry-After", _PAUSE_SECONDS))
            if error.code != 429 or not left:
                break
            await asyncio.sleep(pause)
        raise error


Changed = Callable[[str, Object], Awaitable[None] | None]


class Cache:
    """The objects of one kind, as the server last sent them; `follow` keeps them up to date.

    Args:
        client: The client to call with.
        resource: The kind to follow.
        query: Selectors.
        changed: Called with every object that is new, different or gone: ``ADDED``, ``MODIFIED``,
            ``DELETED``. After a gap it is called for the differences.
    """

    def __init__(
        self, client: Client, resource: Resource, query: Object | None = None, *, changed: Changed
    ) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()
        self._gone: dict[tuple[str, str], int] = {}
        self._client = client
        self._resource = resource
        self._query = query or {}
        self._changed = changed

    def get(self, namespace: str, name: str) -> Object | None:
        """Return the object as last seen, or None."""
        return self.objects.get((namespace, name))

    async def remember(self, value: Object) -> None:
        """Take the result of a write at once, before the watch brings it."""
        await self._take("MODIFIED", value)

    async def follow(self) -> None:
        """List and watch until cancelled; list again whenever the watch cannot continue."""
        revision = ""
        while True:
            try:
                if not revision:
                    revision = await self._relist()
                async for change, value in self._client.watch(
                    self._resource, {**self._query, "resourceVersion": revision}
                ):
                    revision = value["metadata"]["resourceVersion"]
                    if change != "BOOKMARK":
                        await self._take(change, value)
            except (Refused, TimeoutError, OSError) as error:
                if isinstance(error, Refused) and error.code != 410:
                    _LOG.warning("%s: %s", self._resource.plural, error)
                revision = ""
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _relist(self) -> str:
        items, revision = await self._client.list_objects(self._resource, self._query)
        self._gone.clear()  # so that it does not grow for ever; this list is newer than all of it
        there = {_key(item) for item in items}
        for key in [key for key in self.objects if key not in there]:
            await self._take("DELETED", self.objects[key])
        for item in items:
            await self._take("MODIFIED" if _key(item) in self.objects else "ADDED", item)
        self.synced.set()
        return revision

    async def _take(self, change: str, value: Object) -> None:
        key, revision = _key(value), _revision(value)
        before = self.objects.get(key)
        # The result of a write may be ahead of the watch, or behind it.
        known = max(_revision(before) if before else 0, self._gone.get(key, 0))
        if revision < known or (revision == known and change != "DELETED"):
            return
        if change == "DELETED":
            self.objects.pop(key, None)
            self._gone[key] = revision
        else:
            self.objects[key] = value
            self._gone.pop(key, None)
        try:
            told = self._changed(change, value)
            if told is not None:
                await told
        except (Refused, OSError, TimeoutError):
            raise
        except Exception:  # noqa: BLE001 - one odd object must not end the client that follows all of them
            _LOG.exception("%s %s/%s", self._resource.plural, *key)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Object]]:
    """Yield type and object of each line of a watch's response."""
    if response.status != 200:
        raise await _refusal(response)
    buffer = bytearray()
    async for chunk in response.content.iter_any():
        buffer += chunk
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        for line in lines:
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise _from_status(event["object"])
            yield event["type"], event["object"]


def _key(value: Object) -> tuple[str, str]:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _revision(value: Object) -> int:
    return int(value["metadata"]["resourceVersion"])


async def _refusal(response: aiohttp.ClientResponse) -> Refused:
    body = await response.read()
    try:
        return _from_status(msgspec.json.decode(body))
    except (msgspec.DecodeError, KeyError, TypeError):
        return Refused(response.status, "", body[:200].decode(errors="replace"))


def _from_status(status: Object) -> Refused:
    return Refused(status["code"], status.get("reason", ""), status.get("message", ""))

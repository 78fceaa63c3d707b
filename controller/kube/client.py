"""The one client of Kubernetes: few verbs, plain objects, errors of our own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self

import aiohttp

from controller.kube.credentials import Credentials
from controller.kube.decoding import (
    METADATA,
    WHOLE,
    FieldTransform,
    Object,
    Objects,
    Part,
    decode_object,
    read_list,
)
from controller.kube.errors import (
    Expired,
    KubeError,
    NotFound,
    NotServed,
    Throttled,
    Unavailable,
    error_from,
)
from controller.kube.kinds import Kind
from controller.kube.library import (
    ApiClient,
    Configuration,
    RESTClientObject,
    accept_plain_authorities,
    read_environment_once,
    tls_of,
)

__all__ = ["Kube", "Object", "Objects", "Propagation"]

Propagation = Literal["Background", "Foreground", "Orphan"]

CALL_SECONDS: Final = 30.0
LIST_SECONDS: Final = 300.0
"""For one page, which may be the whole list where the server knows no pages."""
PAGED_LISTS: Final = 2
"""How often a list is begun that becomes too old between its pages; then it is asked for whole."""

PAUSES_SECONDS: Final = (0.2, 0.8)
"""Before a change is sent again that the server could not make: a step of a job's life takes
several, and would begin anew."""
LONGEST_PAUSE_SECONDS: Final = 2.0
"""Who is asked to wait for longer than this does so elsewhere."""

SENT_AGAIN: Final = frozenset({"POST", "PATCH", "DELETE"})
"""What callers may find done already: by its name, its UID, or because it was the same before.
Lists and watches wait by themselves, and whoever replaces an object has to read it first."""

OLD_CONNECTIONS: Final = 8
"""Connections that were opened with a certificate which has ended: so many are tried at most."""

ABOUT_OBJECTS: Final = frozenset({400, 403, 404, 409, 422})
"""Statuses that decide about objects: only an API server's own are believed, never a page of a
proxy's that is before it."""
NOT_SERVED: Final = b"404 page not found"
"""What an API server says of a group that it does not serve."""

JSON: Final = "application/json"
METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


class Kube:
    """Calls the API server; every method raises a KubeError when the call fails."""

    def __init__(self, api: ApiClient, credentials: Credentials, streams: RESTClientObject) -> None:
        self._api = api
        self._credentials = credentials
        self._streams = streams

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None = None) -> AsyncIterator[Self]:
        """Give a client; nothing is sent yet.

        Raises:
            Unavailable: If there is no usable configuration.
        """
        credentials = Credentials(kubeconfig)
        await credentials.load()
        configuration = credentials.configuration
        async with ApiClient(configuration) as api:
            # Connections of their own, as many as there are: hundreds of logs that are followed
            # would leave none of the pool's hundred for calls.
            streams = RESTClientObject(configuration, maxsize=0)
            for rest in (api.rest_client, streams):
                read_environment_once(rest, configuration.host or "")
                accept_plain_authorities(tls_of(rest))
                credentials.follow(tls_of(rest))
            try:
                yield cls(api, credentials, streams)
            finally:
                await streams.close()

    @property
    def configuration(self) -> Configuration:
        """The client library's configuration, for what does not speak HTTP."""
        return self._credentials.configuration

    def follow_certificates(self, context: ssl.SSLContext) -> None:
        """Have connections that *context* opens trust and show what is read from now on."""
        self._credentials.follow(context)

    async def renew_credentials(self) -> None:
        """Read the credentials again: the server refused them.

        Raises:
            Unavailable: If they cannot be read.
        """
        await self._credentials.renew(self._credentials.generation)

    # Verbs

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object:
        """Return an object.

        Raises:
            NotFound: If it is not there.
        """
        return await self._call("GET", kind.path(namespace, name))

    async def openapi(self, path: str) -> Object:
        """Return the OpenAPI 3 document of a group and version, such as ``apis/apps/v1``.

        Raises:
            NotFound: If the server has no such group.
        """
        return await self._call("GET", f"/openapi/v3/{path}")

    async def resources(self, api: str) -> dict[str, Object]:
        """Return what the server has in a group and version, such as ``policy/v1``, by plural.

        Raises:
            NotFound: If it does not serve them.
        """
        root = "/apis" if "/" in api else "/api"
        answer = await self._call("GET", f"{root}/{api}")
        return {one["name"]: one for one in answer.get("resources") or ()}

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        transform: FieldTransform = WHOLE,
    ) -> Objects:
        """Return all objects that the selectors match, in all namespaces if none is named.

        They are in memory together: where there may be many, use :meth:`parts`.
        """
        selected = partial(
            self.parts, kind, namespace, labels=labels, fields=fields, transform=transform
        )
        for _ in range(PAGED_LISTS):
            # Where the list became too old between two pages, from the start.
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
        """Yield what the selectors match, a part at a time (see ``decoding``).

        Raises:
            Expired: If the list became too old between two pages.
        """
        path = kind.path(namespace)

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

    async def metadata(self, kind: Kind, *, labels: str) -> AsyncIterator[Objects]:
        """Yield, some at a time, what *labels* matches in all namespaces: only each one's metadata.

        A server that cannot leave the rest out sends it too. (Kubernetes API concepts, "Alternate
        representations of resources".)

        Raises:
            Expired: If the list became too old between two pages.
        """
        parts = self.parts(kind, labels=labels, transform=METADATA, accept=METADATA_LIST)
        async with aclosing(parts):
            async for part in parts:
                if part.objects:
                    yield part.objects

    async def create(self, kind: Kind, body: Object, namespace: str | None = None) -> Object:
        """Create an object, and return it as it was stored.

        Raises:
            AlreadyExists: If one of its name is there.
        """
        typed = {"apiVersion": kind.api, "kind": kind.kind} | body
        return await self._call("POST", kind.path(namespace), body=typed)

    async def try_create(self, kind: Kind, body: Object, namespace: str | None = None) -> None:
        """Have the server say whether it would create the object; nothing is stored.

        Fields that it does not know are refused instead of dropped. It is a ``create`` to whoever
        gives rights, and to admission webhooks (Kubernetes API concepts, "Dry-run" and "Field
        validation").

        Raises:
            KubeError: As it would refuse the object.
        """
        typed = {"apiVersion": kind.api, "kind": kind.kind} | body
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        await self._once(_Call("POST", kind.path(namespace), query, typed))

    async def replace(
        self, kind: Kind, name: str, body: Object, namespace: str | None = None
    ) -> Object:
        """Replace an object; with a resourceVersion in *body*, only if it is still that.

        Raises:
            Conflict: If it is not.
        """
        typed = {"apiVersion": kind.api, "kind": kind.kind} | body
        return await self._call("PUT", kind.path(namespace, name), body=typed)

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
        path = kind.path(namespace, name, subresource)
        return await self._call("PATCH", path, body=patch, content_type=MERGE)

    async def json_patch(
        self,
        kind: Kind,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str | None = None,
    ) -> Object:
        """Apply a JSON patch (RFC 6902); it is Invalid when one of its tests fails."""
        path = kind.path(namespace, name)
        return await self._call("PATCH", path, body=list(operations), content_type=JSON_PATCH)

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
        """Delete an object; one that is gone already is fine.

        Args:
            kind: The resource.
            name: The object's name.
            namespace: The object's namespace.
            uid: Only if it is this very object.
            propagation: What becomes of what it owns.
            grace_seconds: Overrides the object's own grace period.

        Raises:
            Conflict: If an object of this name has another *uid*.
        """
        options: Object = {"propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._call("DELETE", kind.path(namespace, name), body=options)
        except NotServed:
            raise
        except NotFound:
            return

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        quiet_seconds: float,
        whole_seconds: float | None = None,
        accept: str = JSON,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Give the body of an answer that goes on, failing after *quiet_seconds* of silence."""
        timeout = aiohttp.ClientTimeout(
            total=whole_seconds, sock_connect=CALL_SECONDS, sock_read=quiet_seconds
        )
        call = _Call("GET", path, query, accept=accept)
        answer = await self._answer(self._streams, call, timeout)
        try:
            if answer.status != 200:
                raise await _refusal(answer)
            with _translated():
                yield answer.content
        finally:
            answer.close()

    # The border

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
    ) -> Object:
        call = _Call(method, path, query or {}, body, content_type)
        for pause in PAUSES_SECONDS if method in SENT_AGAIN else ():
            try:
                return await self._once(call)
            except (Throttled, Unavailable) as error:
                asked = error.retry_after_seconds or 0.0
                if not error.status or asked > LONGEST_PAUSE_SECONDS:
                    raise
                await asyncio.sleep(max(asked, pause))
        return await self._once(call)

    async def _once(self, call: _Call) -> Object:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        answer = await self._answer(self._api.rest_client, call, timeout)
        async with answer:
            if not 200 <= answer.status < 300:
                raise await _refusal(answer)
            with _translated():
                text = await answer.read()
        return decode_object(text)

    async def _answer(
        self, rest: RESTClientObject, call: _Call, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return the answer; to credentials that are refused, that to those read again."""
        generation = self._credentials.generation
        answer = await self._send(rest, call, timeout)
        renewals = 0
        while answer.status == 401 and renewals < self._most_renewals:
            answer.close()
            await self._credentials.renew(generation)
            answer = await self._send(rest, call, timeout, last=True)
            renewals += 1
        return answer

    @property
    def _most_renewals(self) -> int:
        return OLD_CONNECTIONS if self._credentials.has_certificate else 1

    async def _send(
        self,
        rest: RESTClientObject,
        call: _Call,
        timeout: aiohttp.ClientTimeout,
        *,
        last: bool = False,
    ) -> aiohttp.ClientResponse:
        """Return the answer; with *last*, nothing is sent over the same connection after it."""
        own = {"Accept": call.accept, "Content-Type": call.content_type}
        headers = {**self._api.default_headers, **own} | ({"Connection": "close"} if last else {})
        if not self.configuration.api_key:  # else the library has them refreshed below
            await self._credentials.refresh()
        with _translated():
            # Not call_api: it copies what is sent three times, looking for models of its own.
            await self._api.update_params_for_auth(headers, [], ["BearerToken"])
            answer: aiohttp.ClientResponse = await rest.request(
                call.method,
                f"{self._api.configuration.host}{call.path}",
                query_params=dict(call.query),
                headers=headers,
                body=call.body,
                _preload_content=False,
                _request_timeout=timeout,
            )
        return answer


@dataclass(frozen=True, slots=True)
class _Call:
    """What is sent."""

    method: str
    path: str
    query: Mapping[str, str]
    body: object = None
    content_type: str = JSON
    accept: str = JSON


async def _gathered(parts: AsyncGenerator[Part, None]) -> Objects:
    async with aclosing(parts):
        return [one async for part in parts for one in part.objects]


def _selectors(labels: str, fields: str) -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in selectors.items() if value}


async def _refusal(answer: aiohttp.ClientResponse) -> KubeError:
    with _translated():
        text = await answer.read()
    body: Object = {}
    try:
        body = decode_object(text)
    except Unavailable:
        if text.strip() == NOT_SERVED:
            body = {"message": NOT_SERVED.decode()}
        elif answer.status in ABOUT_OBJECTS:
            said = f"something before the API server answered {answer.status}"
            return Unavailable(said, status=answer.status)
    return error_from(answer.status, body, answer.headers.get("Retry-After"))


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the HTTP client raises into Unavailable."""
    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # ValueError: a body that is no JSON, or breaks off. A TimeoutError is an OSError.
        # Of a connection that was not had the library says which, and why.
        why = (
            str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__
        )
        raise Unavailable(f"the API server did not answer: {why}") from error

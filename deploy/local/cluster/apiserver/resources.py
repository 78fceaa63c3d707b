"""The handlers of objects and collections, one per verb."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.errors import (
    ApiError,
    bad_request,
    method_not_allowed,
    no_such_resource,
)
from deploy.local.cluster.apiserver.faults import Faults
from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.apiserver.kubelets import Kubelets
from deploy.local.cluster.apiserver.listing import (
    Page,
    check_options,
    revision_of,
    wants_initial_events,
)
from deploy.local.cluster.apiserver.metadata import json_type
from deploy.local.cluster.apiserver.options import delete_wish, write_options
from deploy.local.cluster.apiserver.patch import patched
from deploy.local.cluster.apiserver.rbac import check_resource
from deploy.local.cluster.apiserver.registry import Registry, now
from deploy.local.cluster.apiserver.requests import Target, is_true
from deploy.local.cluster.apiserver.reviews import Issue, answer_token_request
from deploy.local.cluster.apiserver.rules import bind, disrupt
from deploy.local.cluster.apiserver.schema import unknown_fields
from deploy.local.cluster.apiserver.selectors import equal_labels, make_selector
from deploy.local.cluster.apiserver.store import Stored
from deploy.local.cluster.apiserver.table import make_metadata_list, make_table
from deploy.local.cluster.apiserver.watch import Asked, error_line, follow, lifetime, line

_METADATA: Final = "as=PartialObjectMetadataList"
_TABLE: Final = "as=Table"
_WARNINGS: Final = 20
_FUTURE_SECONDS: Final = 3.0
"""How long a list waits for a revision that does not exist yet."""

_DELETED_IS_SHOWN: Final = frozenset(
    ("", plural)
    for plural in ("pods", "namespaces", "services", "serviceaccounts", "resourcequotas")
)


class Resources:
    """Answers requests for the objects of `registry`."""

    def __init__(
        self,
        registry: Registry,
        kubelets: Kubelets,
        chance: random.Random,
        faults: Faults,
        issue: Issue,
    ) -> None:
        self._registry = registry
        self.store = registry.store
        self._kubelets = kubelets
        self._chance = chance
        self._faults = faults
        self._issue = issue

    async def answer(
        self, request: web.Request, verb: str, kind: Kind, target: Target, user: User
    ) -> web.StreamResponse:
        """Return the response to *verb*.

        Raises:
            ApiError: If the request is refused.
        """
        if target.subresource and target.subresource not in (
            *kind.subresources,
            *(["status"] if kind.status else []),
        ):
            raise no_such_resource()
        if target.subresource in kind.subresources:
            return await self._subresource(request, kind, target, user)
        match verb:
            case "get":
                return _shown(request, kind, self._get(kind, target))
            case "list":
                return await self._list(request, kind, target)
            case "watch":
                return await self._watch(request, kind, target, user)
            case "create":
                return await self._create(request, kind, target, user)
            case "delete":
                return await self._delete(request, kind, target, user)
            case "deletecollection":
                return await self._delete_collection(request, kind, target, user)
            case _:
                return await self._update(request, verb, kind, target, user)

    def _get(self, kind: Kind, target: Target) -> Stored:
        return self._registry.get(kind, target.namespace, target.name)

    def _is_there(self, kind: Kind, target: Target) -> bool:
        return self.store.get(kind.key, target.namespace, target.name) is not None

    async def _subresource(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.StreamResponse:
        """Answer a request for a subresource; the object must exist."""
        if target.subresource == "eviction":
            return await self._evict(request, kind, target, user)
        stored = self._get(kind, target)
        match target.subresource:
            case "log":
                return await self._kubelets.log(request, stored)
            case "exec":
                return await self._kubelets.exec(request, stored)
            case "binding":
                return await self._bind(request, kind, target)
            case "token":
                body = await read_body(request)
                said = answer_token_request(body, stored, self._issue)
                return _json(said, 201)
        raise no_such_resource()

    async def _list(self, request: web.Request, kind: Kind, target: Target) -> web.Response:
        query = request.query
        check_options(query, watch=False)
        selector = query.get("labelSelector", ""), query.get("fieldSelector", "")
        selected = make_selector(*selector)
        labels = equal_labels(selector[0])
        asked = await self._page(query, target.namespace)
        found = self.store.labelled_at(kind.key, target.namespace, labels, asked.rv)
        if found is None:
            if query.get("continue"):
                raise asked.expired()
            raise ApiError(410, "The resourceVersion for the provided list is too old.")
        items = [item for item in found if selected(item.value)]
        page, metadata = asked.cut(items, query.get("limit", ""))
        if any(selector):
            metadata.pop("remainingItemCount", None)
        if _wants_table(request):
            whole = query.get("includeObject", "Metadata")
            revision = metadata["resourceVersion"]
            table = make_table(kind, [i.value for i in page], revision, whole=whole)
            table["metadata"] = metadata
            return _json(table)
        if _METADATA in request.headers.get("Accept", ""):
            return _json(make_metadata_list([i.value for i in page], metadata))
        if kind.custom:
            metadata.setdefault("continue", "")  # Go's ListMeta of an untyped list
        head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
        body = msgspec.json.encode(head)[:-1] + b',"items":['
        # Items of a typed list do not repeat their kind.
        items_raw = (item.raw if kind.custom else item.untyped for item in page)
        return _raw(body + b",".join(items_raw) + b"]}")

    async def _page(self, query: Mapping[str, str], namespace: str) -> Page:
        """Return the page that *query* requests; wait for a revision that does not exist yet."""
        try:
            return Page.asked(query, namespace, self.store.revision)
        except ApiError as error:
            if error.code != 504:
                raise
        await asyncio.sleep(_FUTURE_SECONDS)
        return Page.asked(query, namespace, self.store.revision)

    async def _watch(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.StreamResponse:
        query = request.query
        check_options(query, watch=True)
        seconds = query.get("timeoutSeconds", "")
        asked = Asked(
            namespace=target.namespace,
            selected=make_selector(query.get("labelSelector", ""), query.get("fieldSelector", "")),
            revision=revision_of(query.get("resourceVersion", "")),
            initial=wants_initial_events(query),
            seconds=lifetime(float(seconds) if seconds.isdigit() else None, self._chance),
            bookmarks=is_true(query.get("allowWatchBookmarks")),
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        whole = query.get("includeObject", "Metadata") if _wants_table(request) else ""
        try:
            self._faults.expire(user, self.store.revision)
            async with contextlib.aclosing(follow(self.store, kind, asked)) as changes:
                async for change, stored in changes:
                    said = line(change, _encoded(kind, stored, whole))
                    if request.transport is not None and self._faults.happens("cut", user):
                        await response.write(said[: len(said) // 2])
                        request.transport.abort()
                        return response
                    await response.write(said)
        except ApiError as error:
            await response.write(error_line(error))
        except ConnectionError:
            return response  # the client has disconnected
        await response.write_eof()
        return response

    async def _create(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.Response:
        options = write_options(request.query, "CreateOptions")
        body = await read_body(request, kind)
        warned = _warnings(request, kind, body)
        stored = await self._registry.create(
            kind, target.namespace, body, user=user, options=options
        )
        return _warn(_shown(request, kind, stored, status=201), warned)

    async def _update(
        self, request: web.Request, verb: str, kind: Kind, target: Target, user: User
    ) -> web.Response:
        replaces = verb == "update"
        if replaces and kind.upsert and not target.subresource and not self._is_there(kind, target):
            group, resource = target.group, target.resource
            check_resource(self.store, user, "create", group, resource, target.namespace, "")
            return await self._create(request, kind, target, user)
        options = write_options(request.query, "UpdateOptions" if replaces else "PatchOptions")
        change = await (
            _replacement(request, kind)
            if verb == "update"
            else _patch(request, named_lists=not kind.custom)
        )
        stored = await self._registry.update(
            kind,
            target.namespace,
            target.name,
            change,
            user=user,
            options=options,
            subresource=target.subresource,
            whole=replaces,
        )
        return _shown(request, kind, stored)

    async def _delete(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.Response:
        wish = delete_wish(request.query, await read_body(request) if request.can_read_body else {})
        stored, deletion = await self._registry.delete(
            kind, target.namespace, target.name, wish, user=user
        )
        if not deletion.gone or kind.key in _DELETED_IS_SHOWN:
            return _raw(stored.raw)
        metadata = stored.value["metadata"]
        details = {"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]}
        if kind.group:
            details["group"] = kind.group
        return _success(details, 200)

    async def _delete_collection(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.Response:
        """Delete the selected objects, one after the other, and answer with all of them."""
        if kind.key == ("", "namespaces"):
            raise method_not_allowed()
        query = request.query
        wish = delete_wish(query, await read_body(request) if request.can_read_body else {})
        selected = make_selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        chosen = [i for i in self.store.items(kind.key, target.namespace) if selected(i.value)]
        for item in chosen:
            with contextlib.suppress(ApiError):  # gone by itself meanwhile
                await self._registry.delete(kind, *item.place, wish, user=user)
        return _json(
            {
                "kind": f"{kind.kind}List",
                "apiVersion": kind.api_version,
                "metadata": {"resourceVersion": str(self.store.revision)},
                "items": [item.value for item in chosen],
            }
        )

    async def _bind(self, request: web.Request, kind: Kind, target: Target) -> web.Response:
        binding = await read_body(request)
        stored = self._get(kind, target)
        pod = stored.copy()
        bind(pod, binding, now())
        self.store.put(kind.key, pod)
        return _success(None, 201)

    async def _evict(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.Response:
        """Evict a Pod; there are no disruption budgets that could forbid it."""
        body = await read_body(request)
        if (body.get("metadata") or {}).get("name", target.name) != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        wish = delete_wish(request.query, body.get("deleteOptions") or {})
        pod = self._get(kind, target).copy()
        if not wish.get("dryRun"):
            disrupt(pod, now())
            self.store.put(kind.key, pod)
        await self._registry.delete(kind, target.namespace, target.name, wish, user=user)
        return _success(None, 201)


async def read_body(request: web.Request, kind: Kind | None = None) -> Object:
    """Return the JSON object of the body, of *kind* if that is known.

    Raises:
        ApiError: 415 for another content type, 400 for a body that is no object.
    """
    if request.content_type not in ("application/json", "application/octet-stream"):
        raise ApiError(
            415,
            f"the body of the request was in an unknown format ({request.content_type}) - "
            f"accepted media types include: application/json",
        )
    raw = await request.read()
    of_type = f" (must be of type {kind.kind})" if kind else ""
    try:
        body = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        cut = not raw or "truncated" in str(error)
        why = "unexpected end of JSON input" if cut else str(error)
        raise bad_request(
            f"the object provided is unrecognized{of_type}: couldn't get version/kind; json parse "
            f"error: {why} ({_abbreviated(raw)})"
        ) from error
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise bad_request(
            f"the object provided is unrecognized{of_type}: couldn't get version/kind; json parse "
            f"error: json: cannot unmarshal {json_type(body)} into Go value of type struct {{ "
            f'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            f'"json:\\"kind,omitempty\\"" }} ({_abbreviated(raw)})'
        )
    if kind is not None and kind.custom and not body.get("kind"):
        raise bad_request(
            f"the object provided is unrecognized{of_type}: Object 'Kind' is missing in "
            f"'{raw.decode(errors='replace')}' ({_abbreviated(raw)})"
        )
    return body


def _abbreviated(raw: bytes) -> str:
    """Return *raw* as apimachinery shows an unreadable body: as text if it resembles an object."""
    if not raw:
        return "<empty>"
    if raw[:1] != b"{":
        return raw[:30].hex() + (" ..." if len(raw) > 30 else "")
    return raw[:30].decode(errors="replace") + (" ..." if len(raw) > 30 else "")


async def _replacement(request: web.Request, kind: Kind) -> Callable[[Object], Object]:
    body = await read_body(request, kind)
    return lambda _: body


async def _patch(request: web.Request, *, named_lists: bool) -> Callable[[Object], Object]:
    content_type = request.content_type
    nothing: Any = [] if "json-patch" in content_type else {}
    patched(content_type, {}, nothing, named_lists=named_lists)  # 415 before the body
    try:
        patch = msgspec.json.decode(await request.read())
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error

    def change(value: Object) -> Object:
        changed = patched(content_type, value, patch, named_lists=named_lists)
        if not isinstance(changed, dict):
            raise bad_request("a patch cannot make an object into something else")
        return changed

    return change


def _warnings(request: web.Request, kind: Kind, body: Object) -> list[str]:
    """Return the dropped fields of *body*, unless the client does not want to know them."""
    if kind.schema is None or request.query.get("fieldValidation") == "Ignore":
        return []
    return [f'unknown field "{path}"' for path in unknown_fields(kind.schema, body)]


def _warn(response: web.Response, warnings: list[str]) -> web.Response:
    for warning in warnings[:_WARNINGS]:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _wants_table(request: web.Request) -> bool:
    return _TABLE in request.headers.get("Accept", "")


def _shown(request: web.Request, kind: Kind, stored: Stored, status: int = 200) -> web.Response:
    if not _wants_table(request):
        return _raw(stored.raw, status)
    revision = stored.value["metadata"]["resourceVersion"]
    whole = request.query.get("includeObject", "Metadata")
    return _json(make_table(kind, [stored.value], revision, whole=whole), status)


def _encoded(kind: Kind, stored: Stored, whole: str) -> bytes:
    if not whole or not stored.value["metadata"].get("name"):
        return stored.raw
    revision = stored.value["metadata"]["resourceVersion"]
    return msgspec.json.encode(make_table(kind, [stored.value], revision, whole=whole))


def _success(details: Object | None, code: int) -> web.Response:
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return _json(status | ({"details": details} if details else {"code": code}), code)


def _raw(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _json(value: Any, status: int = 200) -> web.Response:
    return _raw(msgspec.json.encode(value), status)

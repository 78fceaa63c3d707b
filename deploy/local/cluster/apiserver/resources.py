"""The handlers of objects and collections, one per verb."""

import base64
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from deploy.local.cluster.apiserver.access import User
from deploy.local.cluster.apiserver.errors import ApiError, bad_request, expired_list
from deploy.local.cluster.apiserver.faults import Faults
from deploy.local.cluster.apiserver.kinds import Kind, Object
from deploy.local.cluster.apiserver.kubelets import Kubelets
from deploy.local.cluster.apiserver.patch import patched
from deploy.local.cluster.apiserver.registry import Options, Registry, now
from deploy.local.cluster.apiserver.requests import Target, is_true
from deploy.local.cluster.apiserver.reviews import Issue, answer_token_request
from deploy.local.cluster.apiserver.rules import bind, disrupt
from deploy.local.cluster.apiserver.selectors import equal_labels, make_selector
from deploy.local.cluster.apiserver.store import Stored
from deploy.local.cluster.apiserver.table import make_metadata_list, make_table
from deploy.local.cluster.apiserver.watch import Asked, error_line, follow, lifetime, line

_METADATA: Final = "as=PartialObjectMetadataList"
_TABLE: Final = "as=Table"
_DELETED_IS_SHOWN: Final = frozenset(
    {("", "pods"), ("", "namespaces"), ("", "services"), ("", "serviceaccounts")}
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
        """Return the answer to *verb*.

        Raises:
            ApiError: If it is refused.
        """
        if target.subresource and target.subresource not in (
            *kind.subresources,
            *(["status"] if kind.status else []),
        ):
            raise ApiError(404, "the server could not find the requested resource")
        if target.subresource in kind.subresources:
            return await self._subresource(request, kind, target, user)
        match verb:
            case "get":
                return _shown(request, kind, self._get(kind, target))
            case "list":
                return self._list(request, kind, target)
            case "watch":
                return await self._watch(request, kind, target, user)
            case "create":
                return await self._create(request, kind, target, user)
            case "delete":
                return await self._delete(request, kind, target, user)
            case _:
                return await self._update(request, verb, kind, target, user)

    def _get(self, kind: Kind, target: Target) -> Stored:
        return self._registry.get(kind, target.namespace, target.name)

    async def _subresource(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.StreamResponse:
        """Answer what is not the object itself; it has to be there."""
        stored = self._get(kind, target)
        match target.subresource:
            case "log":
                return await self._kubelets.log(request, stored)
            case "exec":
                return await self._kubelets.exec(request, stored)
            case "binding":
                return await self._bind(request, kind, target)
            case "eviction":
                return await self._evict(request, kind, target, user)
            case "token":
                body = await read_body(request)
                said = answer_token_request(body, target.namespace, target.name, self._issue)
                return _json(said, 201)
        raise ApiError(404, "the server could not find the requested resource")

    def _list(self, request: web.Request, kind: Kind, target: Target) -> web.Response:
        query = request.query
        if "sendInitialEvents" in query:
            raise bad_request("sendInitialEvents is forbidden for list")
        selector = query.get("labelSelector", ""), query.get("fieldSelector", "")
        selected = make_selector(*selector)
        labels = equal_labels(selector[0])
        token = query.get("continue", "")
        seen = _Seen.read(token) if token else _Seen(self.store.revision)
        found = self.store.labelled_at(kind.key, target.namespace, labels, seen.revision)
        if found is None:
            raise expired_list()
        items = [item for item in found if selected(item.value)]
        page, metadata = _page(items, query.get("limit", ""), seen)
        if any(selector):
            metadata.pop("remainingItemCount", None)
        if _wants_table(request):
            whole = query.get("includeObject", "Metadata")
            table = make_table(kind, [i.value for i in page], str(seen.revision), whole=whole)
            table["metadata"] = metadata
            return _json(table)
        if _METADATA in request.headers.get("Accept", ""):
            return _json(make_metadata_list([i.value for i in page], metadata))
        head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
        body = msgspec.json.encode(head)[:-1] + b',"items":['
        return _raw(body + b",".join(item.raw for item in page) + b"]}")

    async def _watch(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.StreamResponse:
        query = request.query
        if query.get("sendInitialEvents"):
            raise ApiError(
                422,
                "ListOptions.meta.k8s.io is invalid: sendInitialEvents: Forbidden: "
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is "
                "enabled",
            )
        seconds = query.get("timeoutSeconds", "")
        asked = Asked(
            namespace=target.namespace,
            selected=make_selector(query.get("labelSelector", ""), query.get("fieldSelector", "")),
            revision=query.get("resourceVersion", ""),
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
            return response  # the client has left
        await response.write_eof()
        return response

    async def _create(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.Response:
        body = await read_body(request)
        stored = await self._registry.create(
            kind, target.namespace, body, user=user, options=_options(request)
        )
        return _shown(request, kind, stored, status=201)

    async def _update(
        self, request: web.Request, verb: str, kind: Kind, target: Target, user: User
    ) -> web.Response:
        change = await (
            _replacement(request)
            if verb == "update"
            else _patch(request, named_lists=not kind.custom)
        )
        stored = await self._registry.update(
            kind,
            target.namespace,
            target.name,
            change,
            user=user,
            options=_options(request),
            subresource=target.subresource,
            whole=verb == "update",
        )
        return _shown(request, kind, stored)

    async def _delete(
        self, request: web.Request, kind: Kind, target: Target, user: User
    ) -> web.Response:
        wish = await read_body(request) if request.can_read_body else {}
        wish = {**_wish(request), **wish}
        stored, deletion = await self._registry.delete(
            kind, target.namespace, target.name, wish, user=user, options=_options(request)
        )
        if not deletion.gone or kind.key in _DELETED_IS_SHOWN:
            return _raw(stored.raw)
        metadata = stored.value["metadata"]
        details = {"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]}
        if kind.group:
            details["group"] = kind.group
        return _success(details, 200)

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
        """Delete a Pod for the cluster's sake; there are no budgets that could forbid it."""
        wish = (await read_body(request)).get("deleteOptions") or {}
        pod = self._get(kind, target).copy()
        disrupt(pod, now())
        self.store.put(kind.key, pod)
        await self._registry.delete(
            kind, target.namespace, target.name, wish, user=user, options=_options(request)
        )
        return _success(None, 201)


class _Seen(msgspec.Struct, array_like=True, frozen=True):
    """How far a list has been read: all of its pages show one revision."""

    revision: int
    namespace: str = ""
    name: str = ""

    @classmethod
    def read(cls, token: str) -> Self:
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(token), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise bad_request("continue key is not valid: unable to decode") from error

    @property
    def token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def _page(items: list[Stored], limit: str, seen: _Seen) -> tuple[list[Stored], Object]:
    """Return the page of *items* after what was *seen*, and the metadata that leads on."""
    rest = [item for item in items if item.place > (seen.namespace, seen.name)]
    count = int(limit) if limit.isdigit() and int(limit) else len(rest)
    metadata: Object = {"resourceVersion": str(seen.revision)}
    if len(rest) > count:
        metadata["continue"] = _Seen(seen.revision, *rest[count - 1].place).token
        metadata["remainingItemCount"] = len(rest) - count
    return rest[:count], metadata


async def read_body(request: web.Request) -> Object:
    """Return the JSON object that is sent.

    Raises:
        ApiError: 415 for another content type, 400 for what is no object.
    """
    if request.content_type not in ("application/json", "application/octet-stream"):
        raise ApiError(
            415,
            f"the body of the request was in an unknown format ({request.content_type}) - "
            f"accepted media types include: application/json",
        )
    try:
        body = msgspec.json.decode(await request.read() or b"{}")
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized: it must be a JSON object")
    return body


async def _replacement(request: web.Request) -> Callable[[Object], Object]:
    body = await read_body(request)
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


def _options(request: web.Request) -> Options:
    query = request.query
    if query.get("dryRun") not in (None, "", "All"):
        raise ApiError(422, f'invalid dryRun: Unsupported value: "{query["dryRun"]}"')
    return Options(
        dry_run=bool(query.get("dryRun")), strict=query.get("fieldValidation") == "Strict"
    )


def _wish(request: web.Request) -> Object:
    wish: Object = {}
    if "propagationPolicy" in request.query:
        wish["propagationPolicy"] = request.query["propagationPolicy"]
    if request.query.get("gracePeriodSeconds", "").isdigit():
        wish["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    return wish


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

"""Tests the Kubernetes client: error border, credentials, and verbs on the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.kube import transport as module
from controller.kube.client import Kube, path_of
from controller.kube.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unavailable,
)
from controller.kube.kinds import CONFIG_MAPS, PODS, QUEUES, VCJOBS
from tests.controller.kube.api_server import (
    Answer,
    Script,
    listing,
    says,
    serving,
    streams,
    thing,
    write_kubeconfig,
)

UNAUTHORIZED = says({"reason": "Unauthorized", "message": "Unauthorized"}, 401)


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, (), "/api/v1/pods"),
        (PODS, ("ns", "a", "log"), "/api/v1/namespaces/ns/pods/a/log"),
        (VCJOBS, ("ns", "j"), "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs/j"),
        (QUEUES, (None, "q"), "/apis/scheduling.volcano.sh/v1beta1/queues/q"),
        (PODS, ("../x", "a/b?c"), "/api/v1/namespaces/..%2Fx/pods/a%2Fb%3Fc"),
    ],
)
def test_names_are_escaped_in_paths(kind: Any, arguments: Any, path: str) -> None:
    assert path_of(kind, *arguments) == path


async def test_a_list_is_read_page_by_page(tmp_path: Path) -> None:
    script = Script(
        listing(thing("a", "1"), version="7", **{"continue": "next"}),
        listing(thing("b", "2"), version="8"),
    )
    async with serving(script, tmp_path) as kube:
        parts = [part async for part in kube.parts(PODS, "ns", labels="x=y", fields="a=b")]
    assert [one["metadata"]["name"] for part in parts for one in part.objects] == ["a", "b"]
    assert parts[-1].version == "7", "a watch from the last page's would miss what came between"
    assert script.requests[0][2]["labelSelector"] == "x=y"
    assert script.requests[1][2]["continue"] == "next"


async def test_a_list_that_expires_between_pages_restarts(tmp_path: Path) -> None:
    script = Script(
        listing(thing("a", "1"), version="7", **{"continue": "next"}),
        says({"reason": "Expired", "code": 410}, 410),
        listing(thing("c", "3"), version="9"),
    )
    async with serving(script, tmp_path) as kube:
        objects = await kube.list(PODS)
    assert [one["metadata"]["name"] for one in objects] == ["c"]


PAGE = "<html><body>default backend</body></html>"


def shows(text: str, status: int) -> Answer:
    """Respond with text that is not JSON."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status, content_type="text/html")

    return answer


@pytest.mark.parametrize(
    "text",
    [PAGE, '{"message":"no Route matched"}', '{"type":"error","code":"NotFound"}'],
    ids=["HTML", "an API gateway", "a cluster manager"],
)
@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_a_404_of_a_proxy_is_not_not_found(tmp_path: Path, status: int, text: str) -> None:
    async with serving(Script(shows(text, status)), tmp_path) as kube:
        with pytest.raises(Unavailable, match="before the API server"):
            await kube.get(VCJOBS, "a", "ns")
        with pytest.raises(Unavailable, match="before the API server"):
            await kube.delete(VCJOBS, "a", "ns", uid="u")
        with pytest.raises(Unavailable, match="before the API server"):
            await kube.create(VCJOBS, {"metadata": {"name": "a"}}, "ns")


async def test_a_404_of_an_unserved_group_says_nothing_about_objects(tmp_path: Path) -> None:
    async with serving(Script(shows("404 page not found\n", 404)), tmp_path) as kube:
        with pytest.raises(NotServed):
            await kube.get(VCJOBS, "a", "ns")


async def test_refused_credentials_are_read_again_once(tmp_path: Path) -> None:
    script = Script(UNAUTHORIZED, says(thing("a", "1")), UNAUTHORIZED)
    async with serving(script, tmp_path) as kube:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(kubeconfig.read_text().replace("first", "second"))
        await kube.get(PODS, "a", "ns")
        assert script.tokens == ["Bearer first", "Bearer second"]
        with pytest.raises(Unauthorized):
            await kube.get(PODS, "a", "ns")
        assert len(script.tokens) == 4


async def test_an_object_is_not_deleted_while_credentials_are_refused(tmp_path: Path) -> None:
    conflict = says({"reason": "Conflict"}, 409)
    async with serving(Script(conflict, UNAUTHORIZED), tmp_path) as kube:
        with pytest.raises(Unauthorized):
            await kube.ensure_deleted(PODS, "a", "ns", "uid")


async def test_a_failed_call_is_retried_unless_it_is_a_put_that_may_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSES_SECONDS", (0.01, 0.02))
    busy, broken = says({}, 429), says({}, 500)
    script = Script(busy, broken, says(thing("a", "1")), busy)
    async with serving(script, tmp_path) as kube:
        assert await kube.create(PODS, {}, "ns") == thing("a", "1")
        assert len(script.requests) == 3
        with pytest.raises(Throttled):
            await kube.delete(PODS, "a", "ns")
        assert len(script.requests) == 6
        with pytest.raises(Throttled):
            await kube.get(PODS, "a", "ns")
        assert len(script.requests) == 9
        with pytest.raises(Throttled):
            await kube.replace(PODS, "a", {}, "ns")
        assert len(script.requests) == 12
        script.answer(broken)
        with pytest.raises(Unavailable):
            await kube.replace(PODS, "a", {}, "ns")
        assert len(script.requests) == 13
        script.answer(says({}, 503, **{"Retry-After": "60"}))
        with pytest.raises(Unavailable):
            await kube.merge(PODS, "a", {}, "ns")
        assert len(script.requests) == 14


async def test_open_streams_do_not_block_calls(tmp_path: Path) -> None:
    # The library's pool has this many connections; logs of more pods are followed at once.
    script, many = Script(streams(then="hang")), 100
    async with serving(script, tmp_path) as kube, AsyncExitStack() as stack:
        for _ in range(many):
            opened = kube.stream("/api/v1/namespaces/ns/pods/a/log", {}, quiet_seconds=60)
            await stack.enter_async_context(opened)
        script.answer(says(thing("a", "1")))
        async with asyncio.timeout(10):
            assert await kube.get(PODS, "a", "ns") == thing("a", "1")


async def test_a_write_without_response_is_not_retried(tmp_path: Path) -> None:
    script = Script(streams(then="cut"))
    async with serving(script, tmp_path) as kube:
        with pytest.raises(Unavailable):
            await kube.create(PODS, {}, "ns")
    assert len(script.requests) == 1


async def test_retry_after_comes_with_the_error(tmp_path: Path) -> None:
    busy = says({"reason": "TooManyRequests"}, 429, **{"Retry-After": "4"})
    async with serving(Script(busy), tmp_path) as kube:
        with pytest.raises(Throttled) as error:
            await kube.list(PODS)
    assert error.value.retry_after_seconds == 4


async def test_a_server_that_shuts_down_is_quoted(tmp_path: Path) -> None:
    said = "The apiserver is shutting down, please try again later."

    # Not a Status (``WithRetryAfter`` in k8s.io/apiserver/pkg/server/filters).
    async def shuts_down(_request: web.Request) -> web.StreamResponse:
        headers = {"Retry-After": "5", "Connection": "close"}
        return web.Response(text=f"{said}\n", status=429, headers=headers)

    script = Script(shuts_down, says(thing("a", "1")))
    async with serving(script, tmp_path) as kube:
        with pytest.raises(Throttled) as error:
            await kube.get(PODS, "a", "ns")
        assert (error.value.message, error.value.retry_after_seconds) == (said, 5)
        assert await kube.get(PODS, "a", "ns") == thing("a", "1")


async def test_retry_after_may_be_a_date_as_proxies_send_it(tmp_path: Path) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    busy = says("<html>", 503, **{"Retry-After": date})
    async with serving(Script(busy), tmp_path) as kube:
        with pytest.raises(Unavailable) as error:
            await kube.list(PODS)
    assert error.value.retry_after_seconds == pytest.approx(60, abs=10)


async def _html(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>gateway timeout</html>", status=504)


async def _half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"metadata":')
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize("answer", [_html, _half, says("x", 500)])
async def test_a_5xx_is_unavailable(tmp_path: Path, answer: Any) -> None:
    async with serving(Script(answer), tmp_path) as kube:
        with pytest.raises(Unavailable):
            await kube.get(PODS, "a", "ns")


async def test_a_refused_connection_is_unavailable(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1")
    async with Kube.connect(kubeconfig) as kube:
        with pytest.raises(Unavailable, match=r"Cannot connect to host 127\.0\.0\.1:1 "):
            await kube.list(PODS)


@pytest.mark.parametrize("text", ["", "{", "[]", "clusters: 7"])
async def test_a_malformed_kubeconfig_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(Unavailable, match="configuration"):
        async with Kube.connect(tmp_path / "k"):
            pass


# On the embedded cluster


@pytest.fixture
async def kube(embedded_cluster_kubeconfig: Path) -> AsyncIterator[Kube]:
    async with Kube.connect(embedded_cluster_kubeconfig) as kube:
        yield kube


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_each_verb_sends_its_request(kube: Kube, request: pytest.FixtureRequest) -> None:
    name = f"verbs-{abs(hash(request.node.nodeid)) % 10**8}"
    made = await kube.create(CONFIG_MAPS, config_map(name, a="1"), "default")
    with pytest.raises(AlreadyExists):
        await kube.create(CONFIG_MAPS, config_map(name), "default")
    merged = await kube.merge(CONFIG_MAPS, name, {"data": {"b": "2", "a": None}}, "default")
    assert merged["data"] == {"b": "2"}
    with pytest.raises(Conflict):
        await kube.replace(CONFIG_MAPS, name, made, "default")
    replaced = await kube.replace(CONFIG_MAPS, name, merged | {"data": {"c": "3"}}, "default")
    assert replaced["data"] == {"c": "3"}
    test = {"op": "test", "path": "/data/c", "value": "4"}
    with pytest.raises(Invalid):
        await kube.json_patch(CONFIG_MAPS, name, [test], "default")
    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAPS, name, "default", uid="another")
    await kube.delete(CONFIG_MAPS, name, "default", uid=made["metadata"]["uid"])
    await kube.delete(CONFIG_MAPS, name, "default")
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, name, "default")


async def test_concurrent_calls_do_not_mix_responses(kube: Kube) -> None:
    names = [f"mix-{index}" for index in range(40)]
    made = await asyncio.gather(
        *(kube.create(CONFIG_MAPS, config_map(name, me=name), "default") for name in names)
    )
    assert [one["data"]["me"] for one in made] == names
    read = await asyncio.gather(*(kube.get(CONFIG_MAPS, name, "default") for name in names))
    assert [one["data"]["me"] for one in read] == names
    await asyncio.gather(*(kube.delete(CONFIG_MAPS, name, "default") for name in names))

"""Tests the API's entry: authentication, reading of request bodies, and error responses."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import time
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from pytest_aiohttp import AiohttpClient

from controller.api import requests
from controller.api.error_responses import ApiError, errors_as_json
from controller.api.requests import (
    LARGE_BYTES,
    MAX_BODY_BYTES,
    MOST_VALUES,
    few_large_bodies,
    read_object,
)
from controller.store.errors import StoreUnavailable
from shared.jose.jws import MOST_MEMBERS
from shared.tokens import SESSION_AUDIENCE
from tests.controller.api.conftest import SIGNER, Api, service_token
from tests.shared.samples import Signer, make_claims


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer x",
        "Basic YTpi",
        f"Bearer {SIGNER.sign(make_claims(aud=SESSION_AUDIENCE))}",
        f"Bearer {service_token(exp=int(time.time()) - 60, iat=int(time.time()) - 120)}",
        f"Bearer {service_token(exp=int(time.time()) + 3700)}",
        f"Bearer {service_token(iss='https://elsewhere.example')}",
        f"Bearer {Signer(SIGNER.kid, 'EdDSA').sign(make_claims(aud='fumarole-controller'))}",
    ],
    ids=["none", "empty", "no token", "basic", "session", "expired", "long", "issuer", "foreign"],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/openapi.json", "/v1/nothing"])
async def test_callers_without_orchestrator_token_get_401_everywhere(
    api: Api, authorization: str, path: str
) -> None:
    response = await api.client.get(path, headers={"Authorization": authorization})
    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert set(await response.json()) == {"code", "message"}


async def test_two_authorization_fields_are_refused(api: Api) -> None:
    async with aiohttp.ClientSession() as stranger:
        headers = [("Authorization", f"Bearer {service_token()}")] * 2
        async with stranger.get(api.client.make_url("/v1/jobs"), headers=headers) as response:
            assert response.status == 401


def members_of(count: int) -> bytes:
    """Return a JSON object with *count* members."""
    return json.dumps({f"k{n}": 1 for n in range(count)}).encode()


@pytest.mark.parametrize(
    ("data", "kind", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"mode":"atomic","mode":"atomic","items":[]}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"items":[' + b"[" * 100_000, "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "application/json", 422),
        (b'{"items":[]}', "application/json", 422),
        (b'{"items":{}}', "application/json", 422),
        (b'{"items":[1],"mode":"some"}', "application/json", 422),
        (b'{"items":[' + b"1," * 1000 + b"1]}", "application/json", 422),
        (b"{}" + b" " * (MAX_BODY_BYTES - 2), "application/json", 422),
        (b" " * (MAX_BODY_BYTES + 1), "application/json", 413),
        (members_of(MOST_MEMBERS), "application/json", 422),
        (members_of(MOST_MEMBERS + 1), "application/json", 400),
        (b'{"items":[%b1]}' % (b"1," * (MOST_VALUES - 2)), "application/json", 422),
        (b'{"items":[%b1]}' % (b"1," * (MOST_VALUES - 1)), "application/json", 413),
        (b'{"items":[%b1]}' % (b"[]," * (MOST_VALUES // 2 - 1)), "application/json", 422),
        (b'{"items":[%b1]}' % (b"[]," * (MOST_VALUES // 2)), "application/json", 413),
        (b'{"items":["%b\\\\"]}' % (b'\\"[{,' * MOST_VALUES), "application/json", 422),
        (b'{"items":["%b' % (b"[" * 2 * MOST_VALUES), "application/json", 400),
    ],
)
async def test_an_unreadable_body_is_refused(api: Api, data: bytes, kind: str, status: int) -> None:
    response = await api.client.post(
        "/v1/jobs", data=io.BytesIO(data), headers={"Content-Type": kind}
    )
    assert response.status == status
    body = await response.json()
    assert body["code"]
    assert body["message"]
    assert api.enqueued == []


async def test_few_requests_with_large_bodies_are_under_way_at_a_time(
    aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unbounded, two dozen of them would take some gibibyte."""
    monkeypatch.setattr(requests, "MOST_LARGE", 2)
    under_way, most, go_on = 0, 0, asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        size = len(await request.read())
        if size > LARGE_BYTES or "Content-Encoding" in request.headers:
            await go_on.wait()
        under_way -= 1
        return web.Response(text=str(size))

    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[few_large_bodies()])
    app.router.add_post("/", handle)
    client = await aiohttp_client(app)
    coded = {"Content-Encoding": "gzip"}
    large = [
        asyncio.create_task(client.post("/", data=data, headers=headers))
        for data, headers in (
            (bytes(LARGE_BYTES + 1), {}),
            (b"x", coded),
            (io.BytesIO(bytes(1 << 20)), {}),
            (b"x", coded),
        )
    ]
    async with asyncio.timeout(30):
        while under_way < 2:
            await asyncio.sleep(0.005)
        response = await client.post("/", data=bytes(LARGE_BYTES))
        assert (await response.text(), most) == (str(LARGE_BYTES), 3)
        most = 0
        go_on.set()
        answers = [await task for task in large]
    assert most <= 2
    assert [answer.status for answer in answers] == [200] * 4


async def test_a_body_of_unknown_length_is_bounded_too(api: Api) -> None:
    async def endless() -> Any:
        for _ in range(12):
            yield b" " * 1_000_000

    headers = {"Content-Type": "application/json"}
    response = await api.client.post("/v1/jobs", data=endless(), headers=headers)
    assert response.status == 413


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", zlib.compress(b"{}"), gzip.compress(b"{}") + b"more", gzip.compress(b"{}")[:-1]],
    ids=["nothing", "plain", "deflate", "more", "less"],
)
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_body_with_wrong_content_encoding_is_refused(
    api: Api, data: bytes, coding: str
) -> None:
    if coding == "deflate":
        data = gzip.compress(b"{}") if data == zlib.compress(b"{}") else data
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    response = await api.client.post("/v1/jobs", data=data, headers=headers)
    body = await response.json()
    assert (response.status, body["code"]) == (400, "bad_json")
    assert "Content-Encoding" in body["message"]


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_a_decompression_bomb_is_refused_before_it_is_expanded(
    api: Api, pack: Callable[[bytes], bytes]
) -> None:
    coding = "gzip" if pack is gzip.compress else "deflate"
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    for size, status in ((MAX_BODY_BYTES, 422), (MAX_BODY_BYTES + 1, 413), (64 << 20, 413)):
        data = pack(b"{}" + b" " * (size - 2))
        response = await api.client.post("/v1/jobs", data=io.BytesIO(data), headers=headers)
        assert response.status == status


async def test_a_stalled_body_is_400(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.01)
    never = asyncio.Event()

    async def beginning() -> Any:
        yield b'{"items":'
        await never.wait()

    headers = {"Content-Type": "application/json"}
    response = await api.client.post("/v1/jobs", data=beginning(), headers=headers)
    body = await response.json()
    assert (response.status, body["code"]) == (400, "bad_json")
    assert "within" in body["message"]


@pytest.mark.parametrize("coding", ["compress", "x-none", "gzip, gzip", "br", "zstd"])
async def test_an_unknown_content_encoding_is_refused_with_the_known_ones(
    api: Api, coding: str
) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    response = await api.client.post("/v1/jobs", data=b'{"items":[]}', headers=headers)
    assert (response.status, (await response.json())["code"]) == (415, "unknown_coding")
    assert response.headers["Accept-Encoding"] == "gzip, deflate, identity"


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data"])
async def test_another_content_type_is_refused_with_the_known_one(api: Api, kind: str) -> None:
    response = await api.client.post("/v1/jobs", data=b"{}", headers={"Content-Type": kind})
    assert (response.status, (await response.json())["code"]) == (415, "not_json")
    assert response.headers["Accept"] == "application/json"
    assert "Accept-Encoding" not in response.headers


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("identity", b"{}"),
        ("", b"{}"),
        ("Deflate", zlib.compress(b"{}")),
        ("deflate", zlib.compress(b"{}", wbits=-15)),
        ("gzip", gzip.compress(b"{}")),
    ],
    ids=["identity", "none", "zlib", "raw", "gzip"],
)
async def test_a_known_content_encoding_is_decoded(api: Api, coding: str, data: bytes) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    response = await api.client.post("/v1/jobs", data=data, headers=headers)
    assert response.status == 422


async def test_an_aborted_body_is_not_logged_as_server_error() -> None:
    payload = aiohttp.StreamReader(Mock(), 2**16, loop=asyncio.get_running_loop())
    payload.feed_data(b'{"items":[')
    headers = {"Content-Type": "application/json"}
    request = make_mocked_request("POST", "/v1/jobs", headers, payload=payload)
    payload.set_exception(ConnectionResetError("Connection lost"))
    with pytest.raises(ApiError) as refused:
        await read_object(request)
    assert refused.value.code == "bad_json"


async def test_an_unknown_expectation_is_refused_in_json(api: Api) -> None:
    headers = {"Expect": "miracles", "Content-Type": "application/json"}
    response = await api.client.post("/v1/jobs", data=b"{}", headers=headers)
    body = await response.json()
    assert (response.status, body["code"]) == (417, "expectation_failed")
    assert "miracles" not in body["message"]
    waits = {"Expect": "100-Continue", "Content-Type": "application/json"}
    assert (await api.client.post("/v1/jobs", data=b"{}", headers=waits)).status == 422


async def test_a_wrong_method_is_405_with_allow(api: Api) -> None:
    response = await api.client.put("/v1/jobs", json={})
    assert (response.status, (await response.json())["code"]) == (405, "method_not_allowed")
    assert response.headers["Allow"] == "GET,HEAD,POST"


@pytest.mark.parametrize("path", ["jobs/a%00", "jobs?user=%00", "jobs?%00=a", "sessions/%00"])
async def test_a_nul_character_is_refused_in_names(api: Api, path: str) -> None:
    response = await api.client.get(f"/v1/{path}")
    assert (response.status, (await response.json())["code"]) == (400, "bad_request")


async def test_an_unavailable_store_is_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(_request: web.Request) -> web.StreamResponse:
        raise StoreUnavailable("the database does not answer: it restarts")

    response = await errors_as_json(make_mocked_request("GET", "/v1/jobs"), handler)
    assert (response.status, response.headers["Retry-After"]) == (503, "2")
    (line,) = caplog.records
    assert line.__dict__["why"] == "the database does not answer: it restarts"
    assert line.exc_info is None

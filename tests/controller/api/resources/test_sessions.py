"""Tests ``/v1/sessions``: opened in order, ended for good, revoked before the response."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Sequence
from typing import Any, Literal

import pytest

from controller.sessions.service import SessionService
from controller.sessions.session_requests import SessionItem, SessionsRefused
from controller.site.product_list import Catalogue
from controller.store.sessions.revocations import active_revocations
from shared.reports import Activity
from tests.controller.api.conftest import Api, _at_once, _starting, _tell
from tests.controller.api.jobs import make_job, submit

ENDPOINTS = {
    "lab": {"kind": "web", "port": 8888, "base_path": "/x"},
    "desk": {"kind": "vnc", "port": 5900},
}


@pytest.fixture(autouse=True)
async def jobs(api: Api) -> None:
    await submit(api, make_job("j1", replicas=2, interactive=ENDPOINTS), make_job("j2"))
    api.enqueued.clear()


async def open_sessions(api: Api, *items: Any) -> tuple[int, dict[str, Any]]:
    response = await api.client.post("/v1/sessions", json={"items": list(items)})
    return response.status, await response.json()


async def open_with(api: Api, key: str, *items: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Idempotency-Key": key}
    response = await api.client.post("/v1/sessions", json={"items": list(items)}, headers=headers)
    return response.status, await response.json()


async def test_an_opening_repeated_with_its_idempotency_key_opens_once(api: Api) -> None:
    lab = {"job": "j1", "rank": 1, "endpoint": "lab"}
    shell = {"job": "j2", "rank": 0, "kind": "terminal", "clipboard": "in"}
    answers = await asyncio.gather(*(open_with(api, '"a-1"', lab, shell) for _ in range(4)))
    assert sorted(status for status, _ in answers) == [200, 200, 200, 201]
    sids = [one["sid"] for one in answers[0][1]["items"]]
    assert {str(response) for _, response in answers} == {str(answers[0][1])}
    # Ended sessions are returned as ended, even if the job accepts no new session.
    await api.client.delete(f"/v1/sessions/{sids[0]}")
    await api.client.delete("/v1/jobs/j1")
    status, response = await open_with(api, "a-1", lab, shell)
    assert (status, [one["sid"] for one in response["items"]]) == (200, sids)
    assert [one["state"] for one in response["items"]] == ["ended", "starting"]
    # A request with another key, or without a key, opens another session.
    for other in (await open_with(api, "a-2", shell), await open_sessions(api, shell)):
        assert other[0] == 201
        assert other[1]["items"][0]["sid"] not in sids


@pytest.mark.parametrize(
    "items",
    [
        [{"endpoint": "lab"}],
        [{"endpoint": "lab"}, {"endpoint": "desk"}, {"endpoint": "lab"}],
        [{"endpoint": "desk"}, {"endpoint": "lab"}],
        [{"endpoint": "lab", "rank": 1}, {"endpoint": "desk"}],
        [{"endpoint": "lab"}, {"endpoint": "desk", "clipboard": "none"}],
        [{"endpoint": "lab"}, {"kind": "vnc", "port": 5900}],
    ],
)
async def test_an_idempotency_key_belongs_to_one_call(
    api: Api, items: list[dict[str, Any]]
) -> None:
    first = [{"job": "j1", "endpoint": name} for name in ("lab", "desk")]
    assert (await open_with(api, "k", *first))[0] == 201
    status, refused = await open_with(api, "k", *({"job": "j1"} | one for one in items))
    assert (status, refused["code"]) == (409, "key_reused")


async def test_of_two_concurrent_calls_with_one_key_and_different_jobs_one_opens(api: Api) -> None:
    shells = [{"job": job, "kind": "terminal"} for job in ("j1", "j2")]
    answers = await asyncio.gather(*(open_with(api, "k", one) for one in shells))
    assert sorted(status for status, _ in answers) == [201, 409]


async def test_a_refused_call_may_be_repeated_with_its_key(api: Api) -> None:
    assert (await open_with(api, "k", {"job": "j3", "kind": "terminal"}))[0] == 422
    await submit(api, make_job("j3"))
    assert (await open_with(api, "k", {"job": "j3", "kind": "terminal"}))[0] == 201


async def open_one(api: Api, **item: Any) -> str:
    status, response = await open_sessions(api, {"job": "j1", "rank": 0} | item)
    assert status == 201, response
    sid: str = response["items"][0]["sid"]
    return sid


async def test_sessions_are_returned_in_the_requested_order(api: Api) -> None:
    status, response = await open_sessions(
        api,
        {"job": "j1", "rank": 1, "endpoint": "desk"},
        {"job": "j2", "rank": 0, "kind": "terminal"},
        {"job": "j1", "rank": 0, "endpoint": "lab"},
        {"job": "j2", "rank": 0, "kind": "web", "port": 6006},
    )
    assert status == 201
    shown = [(one["job"], one["rank"], one["kind"]) for one in response["items"]]
    assert shown == [("j1", 1, "vnc"), ("j2", 0, "terminal"), ("j1", 0, "web"), ("j2", 0, "web")]
    for one in response["items"]:
        assert one["hosts"] == [f"{one['sid']}.apps.example.com"]
        assert len(one["sid"]) == 26
    assert len({one["sid"] for one in response["items"]}) == 4
    assert set(api.enqueued) == {"j1", "j2"}


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"job": "never-was", "kind": "terminal"}, "items[0].job"),
        ({"job": "j1", "rank": 2, "endpoint": "lab"}, "items[0].rank"),
        ({"job": "j1", "rank": -1, "endpoint": "lab"}, "items[0].rank"),
        ({"job": "j1", "rank": True, "endpoint": "lab"}, "items[0].rank"),
        ({"job": "j1", "endpoint": "board"}, "items[0].endpoint"),
        ({"job": "j1", "endpoint": 5}, "items[0].endpoint"),
        ({"job": "j1", "endpoint": "tool:"}, "items[0].endpoint"),
        ({"job": "j1"}, "items[0]"),
        ({"job": "j1", "endpoint": "lab", "kind": "web"}, "items[0]"),
        ({"job": "j1", "kind": "web"}, "items[0]"),
        ({"job": "j1", "kind": "terminal", "port": 22}, "items[0]"),
        ({"job": "j1", "kind": "ssh", "port": 22}, "items[0].kind"),
        ({"job": "j1", "kind": "web", "port": 70000}, "items[0].port"),
        ({"job": "j1", "endpoint": "lab", "colour": 1}, "items[0].colour"),
    ],
)
async def test_if_one_session_cannot_be_opened_it_is_named_and_none_is_opened(
    api: Api, item: dict[str, Any], path: str
) -> None:
    status, response = await open_sessions(api, item, {"job": "j1", "endpoint": "lab"})
    assert status == 422
    assert [problem["path"] for problem in response["details"]["problems"]] == [path]
    assert api.enqueued == []


async def test_a_session_of_an_ending_job_cannot_be_opened(api: Api) -> None:
    await api.client.delete("/v1/jobs/j1")
    status, response = await open_sessions(api, {"job": "j1", "endpoint": "lab"})
    assert (status, response["details"]["problems"][0]["path"]) == (422, "items[0].job")


async def test_an_ended_session_cannot_be_reopened(api: Api) -> None:
    sid = await open_one(api, endpoint="lab")
    assert (await (await api.client.get(f"/v1/sessions/{sid}")).json())["state"] == "starting"
    for _ in range(2):
        response = await api.client.delete(f"/v1/sessions/{sid}")
        assert (await response.json())["state"] == "ended"
    assert (await (await api.client.get(f"/v1/sessions/{sid}")).json())["end_reason"] == "ended"


@pytest.mark.parametrize(
    ("whose", "member"),
    [({"jti": "t-1"}, "jti:t-1"), ({"sub": "ada:é"}, "sub:{sid}:ada:é"), ({}, "all:{sid}")],
)
async def test_a_revocation_is_stored_before_the_response(
    api: Api, whose: dict[str, str], member: str
) -> None:
    sid, before = await open_one(api, endpoint="lab"), time.time()
    response = await api.client.post(f"/v1/sessions/{sid}/revoke", json=whose)
    assert response.status == 200
    async with api.store.read() as transaction:
        (stored,) = await active_revocations(transaction, now=time.time())
    assert stored.member == member.format(sid=sid)
    assert before - 0.001 <= stored.at <= time.time()
    assert (await (await api.client.get(f"/v1/sessions/{sid}")).json())["state"] == "starting"


async def test_a_revocation_names_exactly_one_target(api: Api) -> None:
    sid = await open_one(api, endpoint="lab")
    for body in (
        {"jti": "a", "sub": "b"},
        {"jti": "a b"},
        {"sub": ""},
        {"sub": "a\n"},
        {"everybody": True},
    ):
        response = await api.client.post(f"/v1/sessions/{sid}/revoke", json=body)
        assert response.status == 422


async def test_an_unknown_session_is_404(api: Api) -> None:
    sid = "a" * 26
    for call in (
        api.client.get(f"/v1/sessions/{sid}"),
        api.client.delete(f"/v1/sessions/{sid}"),
        api.client.post(f"/v1/sessions/{sid}/revoke", json={}),
    ):
        assert (await call).status == 404


async def test_a_signing_key_is_revoked_for_every_session(api: Api) -> None:
    response = await api.client.post("/v1/keys/orchestrator%2F2026/revoke", json={})
    assert (response.status, await response.json()) == (200, {"kid": "orchestrator/2026"})
    async with api.store.read() as transaction:
        (stored,) = await active_revocations(transaction, now=time.time())
    assert (stored.member, stored.sid) == ("kid:orchestrator/2026", None)
    assert (await api.client.post(f"/v1/keys/{'k' * 256}/revoke", json={})).status == 404


async def test_a_session_kind_that_the_product_lacks_cannot_be_opened(api: Api) -> None:
    products = {"closed": {"cpu": 1, "memory": "1Gi", "features": {"terminal": False}}}
    catalogue = Catalogue.model_validate({"products": products, "default": "closed"})
    service = SessionService(
        store=api.store,
        base_domain="apps.example.com",
        clock=time.time,
        random=os.urandom,
        states_of=_starting,
        until_published=_at_once,
        enqueue=api.enqueued.append,
        tell=_tell,
        catalogue=catalogue,
    )
    with pytest.raises(SessionsRefused) as caught:
        await service.open([SessionItem(job="j1", rank=0, kind="terminal")])
    assert [(one.path, one.message) for one in caught.value.problems] == [
        ("items[0].kind", "the job's product does not offer terminal")
    ]
    (opened,) = (await service.open([SessionItem(job="j1", rank=0, endpoint="lab")])).views
    assert opened.kind == "web"


@pytest.mark.parametrize(
    ("declared", "asked", "allowed"),
    [
        ("both", None, "both"), ("both", "in", "in"), ("in", None, "in"), ("in", "both", "in"),
        ("in", "out", "none"), ("none", "both", "none"), ("out", "none", "none"),
    ],
)  # fmt: skip
async def test_an_opening_may_only_narrow_a_desktops_clipboard_policy(
    api: Api, declared: str, asked: str | None, allowed: str
) -> None:
    desk = {"kind": "vnc", "port": 5900, "clipboard": declared}
    await submit(api, make_job("j3", interactive={"desk": desk}))
    item = {"job": "j3", "rank": 0, "endpoint": "desk"} | ({"clipboard": asked} if asked else {})
    status, response = await open_sessions(api, item)
    assert (status, response["items"][0]["clipboard"]) == (201, allowed)


async def test_a_terminals_clipboard_policy_is_set_at_opening(api: Api) -> None:
    item = {"job": "j1", "rank": 0, "kind": "terminal", "clipboard": "none"}
    status, response = await open_sessions(api, item)
    assert (status, response["items"][0]["clipboard"]) == (201, "none")


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"kind": "web", "port": 1, "clipboard": "none"}, "items[0]"),
        ({"endpoint": "lab", "clipboard": "in"}, "items[0].clipboard"),
        ({"endpoint": "desk", "clipboard": "some"}, "items[0].clipboard"),
    ],
)
async def test_the_clipboard_of_a_web_session_cannot_be_restricted(
    api: Api, item: dict[str, Any], path: str
) -> None:
    status, response = await open_sessions(api, {"job": "j1", "rank": 0} | item)
    assert status == 422
    assert [one["path"] for one in response["details"]["problems"]] == [path]


@pytest.mark.parametrize(
    "endpoint",
    [
        {"kind": "web", "port": 1, "clipboard": "none"},
        {"kind": "vnc", "port": 1, "service_workers": True},
    ],
)
async def test_an_endpoint_accepts_only_restrictions_of_its_kind(
    api: Api, endpoint: dict[str, Any]
) -> None:
    job = make_job("j4", interactive={"one": endpoint})
    response = await api.client.post("/v1/jobs", json={"mode": "atomic", "items": [job]})
    assert response.status == 422


async def test_activity_reported_by_gateways_is_shown_and_otherwise_null(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = await open_one(api, kind="terminal")
    shown = await (await api.client.get(f"/v1/sessions/{sid}")).json()
    assert (shown["connected"], shown["last_input_at"], shown["bytes_in"]) == (None, None, None)

    async def reported(sids: Sequence[str]) -> dict[str, Activity]:
        some = Activity(at=20.0, last_input_at=10.0, bytes_in=3, bytes_out=4, subs=("ada", "bob"))
        return dict.fromkeys(sids, some)

    monkeypatch.setattr(api.sessions, "activities_of", reported)
    shown = await (await api.client.get(f"/v1/sessions/{sid}")).json()
    assert shown["connected"] == ["ada", "bob"]
    assert (shown["last_input_at"], shown["last_output_at"]) == (10.0, None)
    assert (shown["bytes_in"], shown["bytes_out"]) == (3, 4)
    # An ended session has no users, whatever a gateway still reports.
    await api.client.delete(f"/v1/sessions/{sid}")
    shown = await (await api.client.get(f"/v1/sessions/{sid}")).json()
    assert (shown["state"], shown["connected"], shown["bytes_in"]) == ("ended", [], 3)


async def listed(api: Api, query: str = "") -> list[str]:
    response = await api.client.get(f"/v1/sessions{query}")
    assert response.status == 200, await response.text()
    return [one["sid"] for one in (await response.json())["items"]]


async def test_sessions_are_listed_by_job_owner_and_state_with_connected_users(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(api, make_job("eves", owner={"user": "eve"}))
    first = await open_one(api, kind="terminal")
    second = await open_one(api, job="j2", kind="terminal")
    third = await open_one(api, job="eves", kind="terminal")

    async def reported(sids: Sequence[str]) -> dict[str, Activity]:
        return {
            sid: Activity(at=20.0, last_input_at=10.0, subs=("bob",)) for sid in {first} & {*sids}
        }

    async def states(sids: Collection[str]) -> dict[str, Literal["starting", "ready"]]:
        return {sid: "ready" if sid == second else "starting" for sid in sids}

    monkeypatch.setattr(api.sessions, "activities_of", reported)
    monkeypatch.setattr(api.sessions, "states_of", states)
    assert await listed(api) == [third, second, first]
    assert await listed(api, "?job=j2") == [second]
    assert await listed(api, "?user=ada") == [second, first]
    assert await listed(api, "?user=nobody") == []
    assert await listed(api, "?state=ready") == [second]
    await api.client.delete(f"/v1/sessions/{third}")
    assert await listed(api, "?state=ended") == [third]
    assert await listed(api, "?state=ended&state=ready") == [third, second]
    assert await listed(api, "?state=starting&state=ready") == [second, first]
    page = await (await api.client.get("/v1/sessions?limit=2&user=ada&state=starting")).json()
    assert (page["next"], len(page["items"])) == (None, 1)
    assert (page["items"][0]["connected"], page["items"][0]["last_input_at"]) == (["bob"], 10.0)
    assert page["items"][0] == await (await api.client.get(f"/v1/sessions/{first}")).json()
    page = await (await api.client.get("/v1/sessions?limit=2")).json()
    assert page["items"][1]["connected"] is None
    assert await listed(api, f"?limit=2&after={page['next']}") == [first]
    for bad in ("?state=open", "?after=x", "?limit=0", "?order=newest"):
        assert (await api.client.get(f"/v1/sessions{bad}")).status == 422

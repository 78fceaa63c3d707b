from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin_models import CompanionKind
from controller.kube.errors import Unavailable
from controller.leader import discovery as learning
from controller.leader.discovery import CompanionRights, keep_learning
from controller.store.database import Store
from controller.store.errors import LeadershipLost
from controller.store.instance import find_capabilities, raise_term
from controller.volcano.preflight import Capabilities
from tests.controller.samples import make_pipeline
from tests.controller.volcano.test_capabilities import KIND


class Server:
    """Returns the given responses in order, then none."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def openapi(self, path: str) -> Any:
        assert path == "apis/batch.volcano.sh/v1alpha1"
        if not self.answers:
            raise asyncio.CancelledError
        response = self.answers.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def document(*fields: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"properties": {name: {} for name in fields}}
    schema = {"x-kubernetes-group-version-kind": [KIND], "properties": {"spec": spec}}
    return {"components": {"schemas": {"job": schema}}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(learning, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(learning, "SOON_SECONDS", 0.0)


async def lead(store: Store) -> int:
    async with store.write() as transaction:
        return await raise_term(transaction)


async def stored(store: Store) -> Capabilities | None:
    async with store.read() as transaction:
        return await find_capabilities(transaction)


async def learn(store: Store, pipeline: Pipeline, term: int, *answers: Any) -> None:
    server: Any = Server(*answers)
    with pytest.raises(asyncio.CancelledError):
        await keep_learning(server, store.fenced(term), pipeline, lambda _: None)


async def test_discovered_features_are_kept_until_the_next_discovery(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, learned = make_pipeline(), list[Capabilities]()
    monkeypatch.setattr(pipeline, "learn", learned.append)
    no: Any = {}
    answers = (Unavailable("no"), no, document("a"), Unavailable("no"), document("b"))
    await learn(store, pipeline, await lead(store), *answers)
    # Every replica that reads the store refuses what the last response does not allow.
    assert [bool(one.lacks({"spec": {"b": 1}})) for one in learned] == [True, False]
    assert (await stored(store)) == learned[-1]


async def test_a_leader_without_server_uses_earlier_discovered_features(
    store: Store,
) -> None:
    await learn(store, make_pipeline(), await lead(store), document("a"))
    later = make_pipeline()
    await learn(store, later, await lead(store), Unavailable("no"))
    assert later.capabilities == await stored(store)
    assert later.capabilities.lacks({"spec": {"b": 1}})


async def test_a_lost_leader_stores_no_discovery(store: Store) -> None:
    term = await lead(store)
    await lead(store)
    server: Any = Server(document("a"))
    with pytest.raises(LeadershipLost):
        await keep_learning(server, store.fenced(term), make_pipeline(), lambda _: None)
    assert await stored(store) is None


async def test_a_lasting_outage_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away = [Unavailable("no")] * 5
    await learn(store, make_pipeline(), await lead(store), *away, document("a"), *away)
    assert [one for one in caplog.messages if "Volcano" in one] == [
        "cannot read Volcano's capabilities",
        "over: cannot read Volcano's capabilities",
        "cannot read Volcano's capabilities",
    ]


async def test_a_malformed_response_does_not_end_the_leader(store: Store) -> None:
    pipeline, failures = make_pipeline(), list[Exception]()
    server: Any = Server({"components": ["a"]}, document("a"))
    with pytest.raises(asyncio.CancelledError):
        await keep_learning(server, store.fenced(await lead(store)), pipeline, failures.append)
    assert [type(one) for one in failures] == [AttributeError]
    assert pipeline.capabilities.lacks({"spec": {"b": 1}})


DOWN = CompanionKind(api_version="billing.example.com/v1", kind="Booking", plural="bookings")
LACKS = CompanionKind(
    api_version="policy/v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)


class Rights:
    """A server whose aggregated API may be down, and that grants nothing."""

    down = True

    async def resources(self, api: str) -> dict[str, Any]:
        if api == DOWN.api_version and self.down:
            raise Unavailable("the server is currently unable to handle the request", status=503)
        kind = DOWN if api == DOWN.api_version else LACKS
        return {kind.plural: {"kind": kind.kind, "namespaced": True}}

    async def create(self, _kind: Any, _review: Any) -> dict[str, Any]:
        return {"status": {"allowed": False}}


async def test_an_aggregated_api_that_is_down_hides_no_other_missing_permission() -> None:
    server: Any = Rights()
    rights = CompanionRights(server, {DOWN: "bills", LACKS: "budgets"}, namespace=lambda: None)
    lacking = "the plugin budgets needs permission to list poddisruptionbudgets of policy/v1 in"
    await rights.look()
    assert [one.startswith(lacking) for one in rights.problems] == [True]
    server.down = False
    await rights.look()
    known = rights.problems
    assert len(known) == 2
    server.down = True
    await rights.look()
    assert rights.problems == known


async def test_a_malformed_permission_does_not_end_the_leader() -> None:
    server, failures = Rights(), list[Exception]()
    given: Any = server
    rights = CompanionRights(given, {LACKS: "budgets"}, namespace=lambda: None)
    responses: list[Any] = [{"status": ["no"]}]

    async def create(_kind: Any, _review: Any) -> Any:
        if not responses:
            raise asyncio.CancelledError
        return responses.pop()

    given.create = create
    with pytest.raises(asyncio.CancelledError):
        await rights.run(failures.append)
    assert [type(one) for one in failures] == [AttributeError]

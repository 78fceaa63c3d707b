"""Jobs that wait for others, as the API takes and refuses them."""

from __future__ import annotations

from typing import Any

from tests.controller.api.conftest import Api
from tests.controller.api.resources.test_batches import make_batch, make_template, post
from tests.controller.api.resources.test_jobs import ids, make_job, submit


def paths(said: dict[str, Any]) -> set[str]:
    return {one["path"] for one in said["details"]["problems"]}


async def test_a_chain_is_taken_in_one_call_and_refused_with_every_mistake(api: Api) -> None:
    chain = [make_job("c", after=["b"]), make_job("b", after=["a"]), make_job("a")]
    assert (await submit(api, *chain))[0] == 200
    assert (await submit(api, *chain))[1]["items"][0]["result"] == "unchanged"
    shown = await (await api.client.get("/v1/jobs/c")).json()
    assert shown["after"] == ["b"]
    circle = [make_job("x", after=["y"]), make_job("y", after=["a", "x"])]
    status, said = await submit(api, *circle, make_job("z", after=["a", "nobody"]))
    assert (status, paths(said)) == (422, {"items[0].after", "items[1].after", "items[2].after[1]"})
    status, said = await submit(api, make_job("e", owner={"user": "eve"}, after=["a"]))
    assert (status, paths(said)) == (422, {"items[0].after[0]"})
    assert await ids(api) == ["a", "b", "c"]


async def test_in_best_effort_what_waits_for_a_refused_job_is_refused(api: Api) -> None:
    _, said = await submit(
        api,
        make_job("a", replicas=0),
        make_job("b", after=["a"]),
        make_job("c", after=["b"]),
        make_job("d"),
        make_job("e", after=["d"]),
        mode="best_effort",
    )
    results = [one["result"] for one in said["items"]]
    assert results == ["rejected", "rejected", "rejected", "created", "created"]


async def test_items_of_a_batch_may_follow_each_other(api: Api) -> None:
    array = [{"first": "{{batch}}"}]
    assert (await post(api, make_batch("b0", count=1)))[0] == 201
    template = make_template(after=["{{first}}-0"])
    status, said = await post(api, make_batch(template=template, array=array))
    assert (status, paths(said)) == (422, {"items[0].after[0]"})
    status, _ = await post(api, make_batch(template=template, array=[{"first": "b0"}]))
    assert status == 201

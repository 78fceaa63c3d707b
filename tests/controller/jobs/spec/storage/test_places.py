"""Tests which owner has a storage place: if two owners' names map to one, the first gets it."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.field_types import parse_path
from controller.jobs.spec.model import Owner
from controller.jobs.spec.storage import find_place, loose_patterns, parse_volumes, remember_places
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.checking import Mode, SubmissionResult
from controller.plugins import PLUGINS
from controller.settings import read_settings
from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job
from shared.settings import Environment
from tests.controller.samples import (
    make_context,
    make_defaults,
    make_job,
    make_plugins,
    make_record,
)

pytestmark = pytest.mark.both_stores

RAW = (
    "home=home-{user}, scratch=home-{user}-scratch, team=home-{project}, "
    "mine=cephfs/{user}, all=cephfs/{user}/{project}, sets=datasets/public:ro"
)


async def submit(
    store: Store, *jobs: dict[str, Any], mode: Mode = "atomic"
) -> list[SubmissionResult]:
    settings = {"FUMAROLE_CONTROLLER_VOLUMES": RAW, "FUMAROLE_CONTROLLER_FAIR_SHARE": "off"}
    defaults = make_defaults(**settings)
    plugins = make_plugins(PLUGINS, make_context(defaults=defaults))
    submissions = Submissions(
        store=store,
        pipeline=Pipeline(plugins, instance="test", namespace="jobs"),
        vault=Vault([os.urandom(32)]),
        defaults=defaults,
        clock=time.time,
        random=os.urandom,
        enqueue=lambda _: None,
    )
    return await submissions.submit([make_job(**job) for job in jobs], mode)


def job_of(id_: str, output: str, **owner: str) -> dict[str, Any]:
    return {"id": id_, "owner": owner, "output": output}


BOB = job_of("j1", "/scratch/x", user="bob")
OTHER = job_of("j2", "/home/x", user="bob-scratch")


@pytest.mark.parametrize(("first", "second"), [(BOB, OTHER), (OTHER, BOB)])
async def test_of_two_owners_with_one_claim_name_the_first_keeps_it(
    store: Store, first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert [one.result for one in await submit(store, first)] == ["created"]
    (refused,) = await submit(store, second)
    assert refused.result == "rejected"
    (problem,) = refused.problems
    assert (problem.path, problem.message) == ("output", "is a place of another owner's files")
    assert [one.result for one in await submit(store, {**first, "id": "j9"})] == ["created"]


async def test_of_two_owners_in_one_call_the_first_keeps_the_claim_name(store: Store) -> None:
    results = await submit(store, BOB, OTHER, mode="best_effort")
    assert [one.result for one in results] == ["created", "rejected"]


async def test_a_refused_job_reserves_no_folder(store: Store) -> None:
    twice = {**BOB, "links": ["12345"]}
    assert [one.result for one in await submit(store, twice)] == ["rejected"]
    refused = await submit(store, BOB, {**OTHER, "links": ["12345"]})
    assert refused[0].result == "created"  # as far as it got: the call is atomic
    assert [one.result for one in await submit(store, OTHER)] == ["created"]


async def test_a_user_and_a_project_of_one_name_have_separate_folders(store: Store) -> None:
    assert (await submit(store, job_of("j1", "/home", user="sun")))[0].accepted
    refused = await submit(store, job_of("j2", "/team", user="ada", project="sun"))
    assert refused[0].result == "rejected"


async def test_folders_within_another_owners_folder_are_refused(store: Store) -> None:
    assert (await submit(store, job_of("j1", "/all", user="ada", project="sun")))[0].accepted
    assert (await submit(store, job_of("j2", "/mine", user="ada")))[0].accepted
    assert (await submit(store, job_of("j3", "/mine", user="ADA")))[0].accepted
    assert (await submit(store, job_of("j4", "/sets/x", user="eve")))[0].result == "rejected"
    inner = {"d": {"type": "directory", "path": "/sets/x"}}
    assert (await submit(store, {"id": "j5", "owner": {"user": "eve"}, "parameters": inner}))[
        0
    ].accepted


async def test_jobs_of_an_older_store_keep_their_folders(store: Store) -> None:
    async with store.write() as transaction:
        for at, job in ((2.0, OTHER), (1.0, BOB)):
            spec = {**make_record().spec, **job}
            record = make_record(id=job["id"], spec=spec, created_at=at)
            await insert_job(transaction, record, labels={})
    await remember_places(store, parse_volumes(RAW))
    await remember_places(store, parse_volumes(RAW))
    refused = await submit(store, {**OTHER, "id": "j3"})
    assert refused[0].result == "rejected"
    assert (await submit(store, {**BOB, "id": "j4"}))[0].accepted


def test_an_owner_name_cannot_equal_a_folder_of_another_volume() -> None:
    volumes = parse_volumes("home=c/{user}, team=c/projects/all/{project}, x=c/sets")
    for user in ("projects", "sets"):
        with pytest.raises(ValueError, match="folder of another volume"):
            find_place(parse_path("/home/a"), Owner(user=user), volumes)
    assert find_place(parse_path("/home/a"), Owner(user="ada"), volumes).folder == "ada"
    assert find_place(parse_path("/x/a"), Owner(user="ada"), volumes).holder == ()


def test_text_after_a_placeholder_is_warned_about() -> None:
    assert loose_patterns(parse_volumes(RAW)) == ["scratch"]
    environment = Environment({"FUMAROLE_CONTROLLER_VOLUMES": RAW})
    read_settings(environment)
    assert [one for one in environment.warnings if "scratch" in one]
    quiet = Environment({"FUMAROLE_CONTROLLER_VOLUMES": "a=home-{user}/x/{project}"})
    read_settings(quiet)
    assert not quiet.warnings

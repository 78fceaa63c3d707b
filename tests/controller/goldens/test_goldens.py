from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.spec.problems import JobRejected
from controller.plugins import PLUGINS
from controller.plugins.task import TaskPlugin
from deploy.local.cluster.apiserver.schema import unknown_fields, violations
from deploy.local.cluster.volcano.admission import job_denial
from deploy.local.cluster.volcano.definitions import make_definitions
from tests.controller.goldens.cases import CASES, WHOLE, Case
from tests.controller.goldens.render import (
    FILES,
    PAGES,
    example_of,
    parts_of,
    plan_of,
    text_of,
    with_examples,
)
from tests.controller.goldens.rules import broken_rules
from tests.controller.samples import make_context, make_job

QUEUES = {"default": {"status": {"state": "Open"}}, "batch": {"status": {"state": "Open"}}}
NAMES = [case.name for case in CASES]


async def made(case: Case) -> dict[str, Any]:
    return parts_of(case, await plan_of(case))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
async def test_rendered_manifests_match_the_stored_ones(case: Case) -> None:
    kept = (FILES / f"{case.name}.yaml").read_text()
    assert text_of(await made(case)) == kept, "changed on purpose? `make goldens`"


@pytest.mark.parametrize("case", CASES, ids=NAMES)
async def test_rendered_manifests_break_no_rule(case: Case) -> None:
    assert broken_rules(await made(case)) == []


@pytest.mark.parametrize("case", CASES, ids=NAMES)
async def test_rendered_jobs_pass_volcanos_admission_rules(case: Case) -> None:
    manifest = (await made(case))["VolcanoJob"]
    (definition,) = [one for one in make_definitions() if one["spec"]["names"]["kind"] == "Job"]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    assert list(unknown_fields(spec, manifest["spec"])) == []
    assert list(violations(spec, manifest["spec"])) == []
    queues = {**QUEUES, manifest["spec"]["queue"]: QUEUES["default"]}
    assert job_denial(manifest, queues) is None


def test_every_plugin_has_a_case_and_a_page() -> None:
    names = {plugin.name for plugin in PLUGINS}
    assert names == {case.name for case in CASES} - {WHOLE.name, "rank_services"}
    pages = {page.stem.replace("-", "_") for page in PAGES.glob("*.md")}
    assert names <= pages
    index = (PAGES / "README.md").read_text()
    assert {page.name for page in PAGES.glob("*.md") if f"({page.name})" not in index} == {
        "README.md"
    }


def test_no_golden_file_is_unused() -> None:
    assert {file.stem for file in FILES.iterdir()} == set(NAMES)


async def test_the_pages_show_the_rendered_manifests() -> None:
    examples = {case.name: example_of(case, await made(case)) for case in CASES}
    for page in PAGES.glob("*.md"):
        text = page.read_text()
        assert with_examples(text, examples) == text, f"{page.name} is old: `make goldens`"


async def test_the_plugin_in_the_documentation_works() -> None:
    page = (PAGES / "write-your-own.md").read_text()
    source = page.split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(source, found)
    context = make_context()
    plugins = [TaskPlugin(context), found["CostCentrePlugin"](context)]
    pipeline = Pipeline(plugins, instance="test", namespace="jobs")
    with pytest.raises(JobRejected, match="cost-centre: is missing"):
        await pipeline.plan(make_job())
    plan = await pipeline.plan(make_job(labels={"cost-centre": "4711"}))
    (task,) = plan.volcano_job.tasks
    assert task.template.labels["example.com/cost-centre"] == "4711"


def _of_job(parts: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = parts["VolcanoJob"]["spec"]
    return spec


def _pod(parts: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = _of_job(parts)["tasks"][0]["template"]["spec"]
    return spec


BREAKS: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("other than its limits",
     lambda p: _pod(p)["containers"][0]["resources"]["requests"].update(cpu="1m")),
    ("is not limited", lambda p: _pod(p)["containers"][0].pop("resources")),
    ("never forms", lambda p: _of_job(p).update(minAvailable=4)),
    ("taken for three", lambda p: _of_job(p).update(maxRetry=0)),
    ("nobody makes the Secret", lambda p: p.update(companions=[])),
    ("volume ranks is missing", lambda p: _pod(p).update(volumes=[])),
    ("selects none", lambda p: _of_job(p)["tasks"][0]["template"]["metadata"].update(labels={})
     or _of_job(p)["tasks"][1]["template"]["metadata"].update(labels={})),
    ("where everybody reads it", lambda p: _pod(p)["containers"][0].update(command=["canary"])),
    ("are one object", lambda p: p["companions"].append(p["companions"][0])),
    ("may be another job's", lambda p: p["companions"][0].update(name="j-j2")),
    ("says whose it is itself", lambda p: p["companions"][0].update(metadata={})),
    ("is no host name", lambda p: _of_job(p)["tasks"][0].update(name="A")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "change"), BREAKS, ids=[rule for rule, _ in BREAKS])
async def test_a_broken_rule_is_detected(
    rule: str, change: Callable[[dict[str, Any]], object]
) -> None:
    parts = copy.deepcopy(await made(WHOLE))
    change(parts)
    assert any(rule in one for one in broken_rules(parts)), broken_rules(parts)


@pytest.mark.parametrize(
    ("rule", "label"),
    [("leads to several pods", "volcano.sh/task-index"), ("another job's", "fumarole.dev/job")],
)
async def test_a_rank_service_with_a_wrong_selector_is_detected(rule: str, label: str) -> None:
    (case,) = [case for case in CASES if case.name == "rank_services"]
    parts = copy.deepcopy(await made(case))
    service = next(one for one in parts["companions"] if one["kind"] == "Service")
    del service["spec"]["selector"][label]
    assert any(rule in one for one in broken_rules(parts)), broken_rules(parts)

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.pipeline.plugin import JobFromServer
from controller.jobs.spec.endpoints import RESERVED, exposed_by, why_not_name
from controller.plugins.ingress import IngressPlugin
from controller.store.sessions.session_rows import make_sid
from tests.controller.plugins.plans import problems_of
from tests.controller.samples import NoLinks, make_context, make_job

LAB: dict[str, Any] = {"lab": {"kind": "web", "port": 8888}}


@pytest.mark.parametrize("name", ["my-demo", "demo5", "a1234", "12345a", "x" * 63])
def test_a_link_name_needs_five_characters_and_a_letter(name: str) -> None:
    assert why_not_name(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("demo", "should have from 5"),
        ("x" * 64, "should have from 5"),
        ("My-demo", "other characters"),
        ("my_demo", "other characters"),
        ("my.demo", "other characters"),
        ("d\u00e9monstration", "other characters"),
        ("\u0661\u0662\u0663\u0664a", "other characters"),
        ("-demo", "hyphen"),
        ("demo-", "hyphen"),
        ("12345", "no letter"),
        ("1-2-3", "no letter"),
        ("xn--dmo-bma", "encoded international"),
        ("mfrggzdfmztwq2lkobrwk3tuna", "identifier"),
        ("6f9619ff-8b86-4011-b42d-00c04fc964ff", "identifier"),
        ("6f9619ff8b864011b42d00c04fc964ff", "identifier"),
        ("fumarole", "reserved"),
        ("login", "reserved"),
    ],
)
def test_an_ambiguous_link_name_is_refused(name: str, why: str) -> None:
    assert why in (why_not_name(name) or "")


async def test_names_of_the_operator_and_the_orchestrator_are_reserved() -> None:
    settings = {
        "FUMAROLE_CONTROLLER_RESERVED_LINKS": "our-shop, News-Desk",
        "FUMAROLE_CONTROLLER_TOKEN_ISSUER": "https://Research.cloudlab.example.com",
    }
    links = ["our-shop", "news-desk", "research", "cloudlab", "my-demo"]
    found = await problems_of(settings=settings, interactive=LAB, links=links)
    assert found == {f"links[{index}]": "is reserved" for index in range(4)}


@given(st.binary(min_size=16, max_size=16))
def test_no_link_can_equal_a_session_host(random: bytes) -> None:
    assert why_not_name(make_sid(lambda _: random)) is not None


def test_every_reserved_word_is_otherwise_a_valid_link_name() -> None:
    assert all("reserved" in (why_not_name(word) or "") for word in RESERVED)


async def test_each_invalid_link_is_reported_with_its_path() -> None:
    found = await problems_of(interactive=LAB, links=["my-demo", "12345", "my-demo"])
    assert found == {"links[1]": "has no letter", "links[2]": "is listed twice"}


@pytest.mark.parametrize("interactive", [{}, {"desk": {"kind": "vnc", "port": 5900}}])
async def test_a_link_needs_a_web_endpoint(interactive: Any) -> None:
    assert set(await problems_of(interactive=interactive, links=["my-demo"])) == {"links"}


def test_links_lead_to_the_first_web_endpoint_in_the_first_rank_that_has_it() -> None:
    tasks = [{"name": "master"}, {"name": "worker", "replicas": 2}]
    desk = {"desk": {"kind": "vnc", "port": 5900}}
    board = {"board": {"kind": "web", "port": 6006, "task": "worker", "base_path": "/b"}}
    where = exposed_by(make_job(tasks=tasks, interactive=desk | board | LAB))
    assert where is not None
    assert (where.endpoint, where.rank, where.port, where.base_path) == ("board", 1, 6006, "/b")
    assert (found := exposed_by(make_job(interactive=LAB | board))) is not None
    assert (found.endpoint, found.rank) == ("lab", 0)


async def test_links_lead_to_each_attempt_and_are_released_on_clean_up() -> None:
    links = NoLinks()
    plugin = IngressPlugin(make_context(links=links))
    for names in ([], ["my-demo"]):
        job = make_job(interactive=LAB, links=names)
        seen = JobFromServer(
            job=job, namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1.0, pods=()
        )
        assert await plugin.on_job_start("j1", seen) is None
    await plugin.on_cleanup("j1")
    assert links.asked == [("expose", "j1"), ("release", "j1")]

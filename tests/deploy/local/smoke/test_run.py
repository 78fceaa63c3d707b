"""Tests the smoke run: its lines for working apps, and the failures that it must detect."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deploy.local.apps.catalogue import App
from deploy.local.smoke import desktop, run_smoke
from deploy.local.smoke.failure import SmokeFailed
from deploy.local.smoke.gateway import Link, LocalNames
from deploy.local.smoke.run import APP_SECONDS
from tests.deploy.local.smoke.site import Site, serving


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as site:
        yield site


async def smoke(site: Site, seconds: float = APP_SECONDS) -> tuple[bool, dict[str, str]]:
    lines: list[str] = []
    good = await run_smoke(site.url, lines.append, seconds=seconds)
    return good, {line.split()[1]: line for line in lines}


async def test_three_working_apps_are_reported_with_two_durations_each(site: Site) -> None:
    good, lines = await smoke(site)
    assert good, lines
    assert set(lines) == {"web", "terminal", "vnc"}
    for line in lines.values():
        assert line.startswith("  ✓")
        assert line.count(" s") >= 2
        assert "secret" not in line
    assert "6*7 = 42" in lines["web"]
    assert sorted(site.stopped) == ["job-desktop", "job-jupyterlab", "job-shell"]


SPOILED = [
    ("web", {"result": "41"}, "6*7 is 41"),
    ("web", {"kernel_closes": True}, "closed before it answered"),
    (
        "web",
        {"refusal": {"code": "app_unreachable", "message": "It cannot be reached."}},
        "answered 502 (app_unreachable: It cannot be reached.)",
    ),
    # The typed text does not contain 42, and a 42 within a line does not count as output.
    ("terminal", {"answer": b"echo $((6*7))\r\nbash: syntax error\r\n"}, "closed with 4410"),
    ("vnc", {"security": b"\x01\x02"}, "password"),
    ("vnc", {"security": b"\x00"}, "password"),
    ("vnc", {"pixels": b"\x00" * 16}, "1 colours"),
]


@pytest.mark.parametrize(("kind", "spoiled", "why"), SPOILED)
async def test_one_failing_app_fails_the_run(
    site: Site,
    kind: str,
    spoiled: dict[str, object],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desktop, "PAINTED_SECONDS", 0.5)
    for name, value in spoiled.items():
        setattr(site, name, value)
    good, lines = await smoke(site)
    assert not good
    assert lines[kind].startswith("  ✗")
    assert why in lines[kind]
    assert [k for k, line in lines.items() if line.startswith("  ✓")] == sorted(
        {"web", "terminal", "vnc"} - {kind}, key=list(lines).index
    ), lines
    assert len(site.stopped) == 3, "what was started is stopped all the same"


async def test_a_failing_app_is_explained_while_its_job_exists(site: Site) -> None:
    site.answer = b"bash: syntax error\r\n"
    asked: list[str] = []

    async def explain(job: str, app: App) -> list[str]:
        asked.append(job)
        assert job not in site.stopped
        return [f"the {app.kind} is not routed"]

    lines: list[str] = []
    assert not await run_smoke(site.url, lines.append, seconds=APP_SECONDS, explain=explain)
    (bad,) = [line for line in lines if "✗" in line]
    assert bad.splitlines()[1:] == ["      the terminal is not routed"]
    assert asked == ["job-shell"]
    assert len(site.stopped) == 3


async def test_a_line_that_contains_42_is_not_the_result(site: Site) -> None:
    site.answer = b"user@42 $ echo\r\n142\r\n 42 x\r\n"
    good, lines = await smoke(site, seconds=1.0)
    assert not good
    assert "not done after" in lines["terminal"]


async def test_an_ended_job_fails_the_run(site: Site) -> None:
    site.state = "FAILURE"
    good, lines = await smoke(site)
    assert not good
    assert all("the job is over: FAILURE, why" in line for line in lines.values())


async def test_a_late_published_session_is_awaited(site: Site) -> None:
    site.refuse_opening = [404, 503, 404]
    good, lines = await smoke(site)
    assert good, lines


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_a_refused_link_fails_the_run(site: Site, status: int) -> None:
    site.refuse_opening = [status] * 3
    good, lines = await smoke(site)
    assert not good
    assert all(f"opening was answered {status}" in line for line in lines.values())


async def test_a_token_visible_to_a_server_fails_the_run(site: Site) -> None:
    site.token_in_query = True
    good, lines = await smoke(site)
    assert not good
    assert all("fragment" in line and "secret" not in line for line in lines.values())


async def test_a_missing_orchestrator_is_reported_in_one_line(unused_tcp_port: int) -> None:
    lines: list[str] = []
    assert not await run_smoke(f"http://127.0.0.1:{unused_tcp_port}", lines.append)
    assert len(lines) == 1


def test_a_link_is_read_and_shows_no_token() -> None:
    link = Link.read("http://a.localhost:1/.fumarole/open#token=x.y.z&next=%2Flab%3Fa%3D1")
    assert (link.origin, link.path) == ("http://a.localhost:1", "/.fumarole/open")
    assert (link.token, link.next) == ("x.y.z", "/lab?a=1")
    assert "x.y.z" not in repr(link)
    with pytest.raises(SmokeFailed):
        Link.read("http://a.localhost:1/.fumarole/open?token=x.y.z")


async def test_names_below_localhost_resolve_to_loopback() -> None:
    names = LocalNames()
    assert [a["host"] for a in await names.resolve("x.localhost", 80)] == ["127.0.0.1"]
    assert [a["host"] for a in await names.resolve("localhost", 80)] == ["127.0.0.1"]
    assert [a["host"] for a in await names.resolve("127.0.0.7", 80)] == ["127.0.0.7"]
    await names.close()

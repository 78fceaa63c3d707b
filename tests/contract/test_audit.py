"""Tests the audit log: its records alone show who was in a session, and when."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.frames import HANDSHAKE, last_frame
from tests.contract.messages import request
from tests.contract.rig import Rig, Session, new_source, running_rig
from tests.contract.streams import Stream
from tests.contract.test_terminal import Hub, attached, hub, terminal  # noqa: F401  # a fixture
from tests.contract.test_vnc import VNC, Desktop, connected, shaken
from tests.contract.tokens import ISSUER, Ed25519Key, new_jti
from tests.contract.upstream import App, friendly, websocket

WAIT_SECONDS = 30.0
BOBS_SECONDS = 15
SLACK_SECONDS = 1.0
"""Between what a test sees and what a loaded machine's gateway writes down."""


def records(rig: Rig) -> list[dict[str, Any]]:
    """Return the audit log, in order."""
    lines = rig.process.log.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [one for one in found if one["logger"] == "fumarole.audit"]


async def until(rig: Rig, wanted: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Return the audit log once *wanted* accepts it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not wanted(found := records(rig)):
        assert time.monotonic() < deadline, found[-20:]
        await asyncio.sleep(0.05)
    return found


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def people_at(audit: list[dict[str, Any]], sid: str, at: float) -> set[tuple[str, str]]:
    """Return each user in a session at a time, and the kind of connection, by the records alone."""
    present: dict[str, tuple[str, str]] = {}
    for one in audit:
        if one.get("sid") != sid or one["event"] not in ("attached", "detached"):
            continue
        if one["event"] == "attached" and moment(one["time"]) <= at:
            present[one["attachment"]] = (one["subject"], one["connection"])
        if one["event"] == "detached" and moment(one["until"]) <= at:
            present.pop(one["attachment"], None)
    return set(present.values())


async def now_settled() -> float:
    """Return a time that lies clearly between the previous actions and the next ones."""
    await asyncio.sleep(SLACK_SECONDS)
    at = time.time()
    await asyncio.sleep(SLACK_SECONDS)
    return at


async def see(rig: Rig, session: Session, sub: str, kind: str, **claims: Any) -> Stream:
    """Return a connection on which *sub* is in the session."""
    if kind == "vnc":
        pipe = await connected(rig, session, sub=sub, **claims)
        await shaken(pipe)
        return pipe.stream
    if kind == "terminal":
        return (await attached(rig, session, sub=sub, **claims)).stream
    cookie = await rig.opened(session, sub=sub, **claims)
    if kind == "websocket":
        return await rig.tunnel(session, cookie)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=[("Cookie", cookie)]))
    await stream.read_until(b"\r\n\r\n")
    return stream


@pytest.mark.parametrize("workers", [1, 2])
async def test_audit_records_show_who_was_in_a_session_and_when(
    tmp_path: Path,
    serve: Serve,
    hub: Hub,  # noqa: F811  # the fixture
    workers: int,
) -> None:
    async with running_rig(tmp_path, {"WORKERS": str(workers), "DRAIN_SECONDS": "3"}) as rig:
        app = await serve(websocket())
        web, plain = await rig.session(app), await rig.session(await serve(friendly))
        shell = await terminal(rig, hub)
        desktop = await rig.session(await serve(Desktop()), **VNC)
        iat = int(time.time()) - 2
        desk = await see(rig, desktop, "ada", "vnc", iat=iat)
        # Eve is in the shell and is revoked; Ada stays there until the gateway ends.
        evil = new_jti()
        eve = await see(rig, shell, "eve", "terminal", jti=evil, iat=iat)
        await see(rig, shell, "ada", "terminal", iat=iat)
        tunnel = await see(rig, web, "ada", "websocket", iat=iat)
        page = await see(rig, plain, "ann", "http", iat=iat)
        # Bob is in the desktop too, and his grant expires.
        bob = await see(rig, desktop, "bob", "vnc", iat=int(time.time()), max_age=BOBS_SECONDS)
        first = await now_settled()
        await rig.bus.revoke(sid=shell.sid, jti=evil)
        assert (await last_frame(eve, WAIT_SECONDS)).code == 4401
        tunnel.close()
        page.close()
        assert (await last_frame(bob, BOBS_SECONDS + WAIT_SECONDS)).code == 4401
        await until(rig, lambda found: ends_of(found)["ann"] == ["closed"])
        second = await now_settled()
        desk.close()
        await until(rig, lambda found: "vnc" in {one["connection"] for one in ended(found, "ada")})
        rig.process.signal(signal.SIGTERM)
        assert await rig.process.wait(WAIT_SECONDS) == 0
        audit = records(rig)

    in_desktop = {("ada", "vnc"), ("bob", "vnc")}
    in_shell = {("ada", "terminal"), ("eve", "terminal")}
    assert people_at(audit, desktop.sid, first) == in_desktop
    assert people_at(audit, shell.sid, first) == in_shell
    assert ("ada", "http") in people_at(audit, web.sid, first)
    assert people_at(audit, plain.sid, first) == {("ann", "http")}
    assert people_at(audit, desktop.sid, second) == {("ada", "vnc")}
    assert people_at(audit, shell.sid, second) == {("ada", "terminal")}
    assert people_at(audit, web.sid, second) == set()
    assert people_at(audit, plain.sid, second) == set()
    for session in (desktop, shell, web, plain):
        assert people_at(audit, session.sid, time.time() + WAIT_SECONDS) == set()
    ends = ends_of(audit)
    assert (ends["bob"], ends["eve"], ends["ann"]) == (
        ["grant_ended"],
        ["grant_revoked"],
        ["closed"],
    )
    assert ends["ada"].count("gateway_draining") == 1
    opened = Counter((one["subject"], one["sid"]) for one in audit if one["event"] == "opened")
    assert opened == {
        ("ada", desktop.sid): 1,
        ("bob", desktop.sid): 1,
        ("eve", shell.sid): 1,
        ("ada", shell.sid): 1,
        ("ada", web.sid): 1,
        ("ann", plain.sid): 1,
    }
    sessions = {session.sid: session for session in (desktop, shell, web, plain)}
    # The other records come from the rig's own probes for known routes.
    for one in (one for one in audit if one["sid"] in sessions):
        assert one["issuer"] == ISSUER
        assert one["address"].startswith("127.")
        assert one["job"] == sessions[one["sid"]].route["job"]
        assert one["outcome"] == "success"


def ends_of(audit: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the reasons why each user's attachments ended, in order."""
    ends: dict[str, list[str]] = {name: [] for name in ("ada", "bob", "eve", "ann")}
    for name, reasons in ends.items():
        reasons += [one["reason"] for one in ended(audit, name)]
    return ends


def ended(audit: list[dict[str, Any]], sub: str) -> list[dict[str, Any]]:
    return [one for one in audit if one["event"] == "detached" and one["subject"] == sub]


async def test_every_opening_and_the_first_twenty_refusals_get_a_record_each(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path) as rig:
        session = await rig.session(await serve(friendly))
        source = new_source()
        for number in range(26):
            token = rig.token(session, sub=f"user-{number}")
            assert (await rig.post_open(session, token, source=source)).status == 303
        for _ in range(20):
            assert (await rig.get(session, source=source)).status == 401
        audit = await until(rig, lambda found: len(refusals(found, source)) >= 20)
        opened = [one["subject"] for one in audit if one["event"] == "opened"]
        assert opened == [f"user-{number}" for number in range(26)]
        refused = refusals(audit, source)
        assert [one["reason"] for one in refused] == ["no_credential"] * 20
        assert all(one["sid"] == session.sid for one in refused)
        assert all("subject" not in one for one in refused)


def refusals(audit: list[dict[str, Any]], address: str) -> list[dict[str, Any]]:
    return [one for one in audit if one["event"] == "refused" and one.get("address") == address]


async def test_a_flood_of_refusals_writes_a_bounded_number_of_lines(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path) as rig:
        session = await rig.session(await serve(friendly))
        source = new_source()
        stream = await rig.connect(source)
        for _ in range(60):
            stream.send(request("GET", "/", host=session.host))
            await stream.read_until(b'"}')
        refused = await metric(rig, "no_credential")
        assert refused >= 60
        assert len(refusals(records(rig), source)) == 20
        rig.process.signal(signal.SIGTERM)
        assert await rig.process.wait(WAIT_SECONDS) == 0
        *singly, counted = refusals(records(rig), source)
    assert len(singly) == 20
    assert counted["count"] == 40
    assert counted["reasons"] == {"no_credential": 40}


async def metric(rig: Rig, code: str) -> float:
    text = (await rig.process.ops_response("/metrics")).body.decode()
    name = f'fumarole_gateway_refusals_total{{code="{code}"}} '
    return sum(float(line.removeprefix(name)) for line in text.splitlines() if name in line)


async def test_a_refusal_record_names_only_a_user_proven_by_signature(
    rig: Rig, serve: Serve
) -> None:
    session, other = await rig.session(await serve(friendly)), await rig.session()
    cookie = await rig.opened(session)
    known, forged = new_source(), new_source()
    elsewhere = [("Cookie", cookie), ("Origin", "https://evil.example")]
    assert (await rig.get(session, fields=elsewhere, method="POST", source=known)).status == 403
    # One cookie is valid, but for another session; the other one only claims to be Ada's.
    assert (await rig.get(other, fields=[("Cookie", cookie)], source=known)).status == 403
    token = rig.token(session, Ed25519Key(rig.keys.ed25519.kid), sub="root")
    assert (await rig.post_open(session, token, source=forged)).status == 401
    spent = rig.token(session)
    assert (await rig.post_open(session, spent, source=known)).status == 303
    assert (await rig.post_open(session, spent, source=known)).status == 401
    audit = await until(rig, lambda found: len(refusals(found, known)) >= 3)
    recorded = [(one["subject"], one["reason"], one["operation"]) for one in refusals(audit, known)]
    assert recorded == [
        (session.sub, "other_origin", "request"),
        (session.sub, "other_session", "request"),
        (session.sub, "token_spent", "open"),
    ]
    (one,) = refusals(audit, forged)
    assert one["reason"] == "bad_credential"
    assert "subject" not in one
    assert "issuer" not in one
    assert "root" not in json.dumps(one)


async def test_no_secret_is_in_any_record(rig: Rig, serve: Serve) -> None:
    app: App = await serve(friendly)
    session = await rig.session(app)
    token, cookie = rig.token(session), await rig.opened(session)
    value = cookie.partition("=")[2]
    spent = rig.token(session)
    assert (await rig.post_open(session, spent)).status == 303
    secrets = [token, value, spent, "query-secret", "agent-secret", "body-secret"]
    places: list[list[tuple[str, str]]] = [
        [("Cookie", cookie)],
        [("Cookie", cookie + "x")],
        [("Cookie", f"{cookie}; {cookie}")],
        [("Fumarole-Token", token + "x")],
        [("Fumarole-Token", spent)],
        [("Authorization", f"Bearer {spent}")],
        [("Origin", f"https://{token[:40]}.example"), ("Cookie", cookie)],
        [("User-Agent", "agent-secret"), ("X-Forwarded-For", token)],
        [("Referer", f"https://x.example/?t={token}")],
    ]
    for fields in places:
        for method in ("GET", "POST"):
            target = f"/?token={token}&q=query-secret"
            await rig.get(session, target, fields, method=method)
            await rig.get(session, f"/.fumarole/{token}", fields, method=method)
        upgrade = [*HANDSHAKE, *fields]
        await rig.ask(request("GET", f"/{value}", host=session.host, fields=upgrade))
    for text in (token + "x", spent, "body-secret"):
        await rig.post_open(session, text, next=f"/?{token}")
    audit = await until(rig, lambda found: any(one.get("sid") == session.sid for one in found))
    mine = json.dumps(audit)
    assert "refused" in mine
    parts = [part for secret in secrets for part in secret.split(".") if len(part) >= 10]
    # The header holds only key id and algorithm, and all tokens have the same ones.
    header = token.split(".")[0]
    assert not [part for part in parts if part != header and part in mine]

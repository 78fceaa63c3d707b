"""Tests with canaries that no secret appears in a log, metric, page or error."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.contract.conftest import Serve
from tests.contract.messages import Response, request, response
from tests.contract.rig import Rig
from tests.contract.upstream import raw_response, websocket

CANARY = "canary-6f1d"


def canary(place: str) -> str:
    """Return a secret that the test recognises wherever it appears."""
    return f"{CANARY}-{place}"


async def walk(rig: Rig, serve: Serve) -> tuple[list[Response], list[str]]:
    """Use every secret in valid and invalid requests; return the responses and the secrets."""
    app = await serve(websocket())
    session, other = await rig.session(app), await rig.session(app)
    token, bearer, spare = (rig.token(session) for _ in range(3))
    opening = await rig.post_open(
        session, token, next=f"/{canary('next')}?x={canary('next-query')}"
    )
    cookie = rig.cookie_of(opening)
    own = rig.own(session, cookie)
    target = f"/x?token={canary('query')}"
    responses = [await rig.post_open(session, token), await rig.post_open(other, spare)]
    for accept in ("text/html", "*/*"):
        page = ("Accept", accept)
        for fields in (
            own,
            [("Fumarole-Token", bearer)],
            [("Authorization", f"Bearer {bearer}")],
            [*own, ("Authorization", f"Basic {canary('basic')}")],
            [("Cookie", f"{cookie}; session={canary('app-cookie')}")],
            [("Cookie", f"{cookie}; {cookie}")],
            [("Cookie", f"fumarole={canary('bad-cookie')}")],
            [("Fumarole-Token", canary("bad-token"))],
            [("Fumarole-Token", spare[:-4] + "AAAA")],
            [("Origin", f"https://{canary('origin')}.example"), ("Cookie", cookie)],
            [("Referer", f"https://x.example/{canary('referer')}"), *own],
        ):
            responses.append(await rig.get(session, target, [page, *fields]))
            responses.append(await rig.get(other, target, [page, *fields]))
    broken = await rig.session(target={"port": 1})
    responses.append(await rig.get(broken, target, rig.own(broken, await rig.opened(broken))))
    bad = await serve(raw_response(response("999 Bad", f"X-Secret: {canary('answer')}", body=b"x")))
    wrong, fields = await rig.entered(bad)
    responses.append(await rig.get(wrong, target, fields))
    stream, _ = await rig.upgrade(session, target, own)
    stream.reset()
    malformed = (
        f"GET {target} HTTP/1.1\r\nHost: {session.host}\r\nBad Field: {cookie}\r\n\r\n".encode(),
        f"GET {target} HTTP/9.9\r\nHost: {session.host}\r\nCookie: {cookie}\r\n\r\n".encode(),
        request("POST", target, host=session.host, fields=[*own, ("Transfer-Encoding", "x")]),
        f"{canary('start-line')}\r\n\r\n".encode(),
    )
    responses += [await rig.ask(raw) for raw in malformed]
    await rig.bus.revoke(sid=session.sid)
    await rig.settled()
    responses.append(await rig.get(session, target, own))
    secrets = [token, bearer, spare, cookie.partition("=")[2], CANARY]
    # A token's signed part names the user and may appear in logs; its signature may not.
    secrets += [text.rpartition(".")[2] for text in (token, bearer, spare)]
    return responses, secrets


async def test_no_secret_appears_in_responses_logs_or_metrics(rig: Rig, serve: Serve) -> None:
    responses, secrets = await walk(rig, serve)
    files = ("FUMAROLE_LINK_KEY_FILE", "FUMAROLE_GATEWAY_GRANT_KEY_FILE")
    for name in files:
        text = Path(rig.process.settings[name]).read_text().strip()
        secrets += [text, base64.b64decode(text).hex()]
    metrics = await rig.process.ops_response("/metrics")
    debug = await rig.process.ops_response("/debug/routes")
    outputs = {
        "log": rig.process.log.read_text(errors="replace"),
        "metrics": metrics.body.decode(),
        "debug": debug.body.decode(),
        "error": "\n".join(one.body.decode() for one in responses if one.status >= 400),
        "head": "\n".join(one.raw.decode("latin-1") for one in responses if one.status >= 400),
    }
    leaks = [
        (place, secret[:24])
        for place, text in outputs.items()
        for secret in secrets
        if secret in text
    ]
    assert leaks == []


async def test_no_token_like_text_is_logged(rig: Rig) -> None:
    """All earlier tests have put tokens everywhere; each token begins with these characters."""
    log = rig.process.log.read_text(errors="replace")
    lines = [line for line in log.splitlines() if "eyJ" in line or "fumarole=" in line]
    assert lines == []


async def test_metric_labels_have_bounded_cardinality(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve())
    for number in range(5):
        await rig.get(session, f"/path-{number}", own)
    metrics = (await rig.process.ops_response("/metrics")).body.decode()
    for value in (session.sid, session.sub, session.route["job"], "/path-1", "127.0."):
        assert value not in metrics, value


async def test_ops_endpoints_name_no_user_and_no_address(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve(), owner=canary("owner"))
    await rig.get(session, fields=own)
    host = session.host.partition(":")[0]
    seen = [
        await rig.process.ops_response(f"/debug/routes{more}") for more in ("", f"?host={host}")
    ]
    assert [one.status for one in seen] == [200, 200]
    assert session.sid in seen[1].body.decode()
    for value in (canary("owner"), session.sub, "127.0.0.1", own[1][1].partition("=")[2]):
        assert not any(value in one.body.decode() for one in seen), value


async def test_the_log_rate_is_bounded(rig: Rig) -> None:
    before = len(rig.process.log.read_bytes())
    session = rig.make_session()
    fields = [("User-Agent", "x" * 30000), ("Fumarole-Token", "y" * 20000)]
    for _ in range(20):
        await rig.get(session, "/" + "z" * 8000, fields)
    for _ in range(300):
        await rig.ask(b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: \x00\r\n\r\n")
    assert len(rig.process.log.read_bytes()) - before < 20 * 4096

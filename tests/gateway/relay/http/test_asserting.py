"""Signed assertions for apps: on every request, and never from the client."""

from __future__ import annotations

import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.core.access.assertions import RENEWED_SECONDS, AssertionKeys, Assertions
from shared.tokens import SessionClaims
from tests.gateway.relay.harness import (
    FROM_HERE,
    PORT,
    SID,
    answer,
    cookie,
    request,
    rig,
    upgrade,
)

ISSUER = "http://apps.localhost:8443"
SPOOFED = (
    "Fumarole-Assertion: root",
    "fumarole_assertion: root",
    "FUMAROLE-ASSERTION: root",
    "Fumarole.Assertion: root",
)


def signing() -> Assertions:
    return Assertions(AssertionKeys([ec.generate_private_key(ec.SECP256R1())]), issuer=ISSUER)


def asserted(head: bytes, assertions: Assertions) -> str | None:
    """Return the user in the only assertion of *head*, verified as an app verifies it."""
    lines = [line for line in head.split(b"\r\n") if b"assertion" in line.lower()]
    assert b"root" not in head
    if not lines:
        return None
    (line,) = lines
    assert line.startswith(b"Fumarole-Assertion: ")
    value = line.partition(b": ")[2].decode()
    keys = jwt.PyJWKSet.from_json(json.dumps(json.loads(assertions.jwks)))
    key = keys[jwt.get_unverified_header(value)["kid"]]
    # The tests' walls may be elsewhere in time.
    claims = jwt.decode(
        value,
        key,
        algorithms=["ES256"],
        audience=SID,
        issuer=ISSUER,
        options={"verify_exp": False, "verify_iat": False},
    )
    return str(claims["sub"])


async def test_the_assertion_replaces_the_clients_field_in_requests_and_upgrades() -> None:
    assertions = signing()
    async with rig(assertions=assertions) as r:
        for raw in (
            request("/", *SPOOFED),
            request("/", "Connection: Fumarole-Assertion"),
            upgrade("/ws", *SPOOFED),
        ):
            _, _, head = await r.joined(raw)
            assert asserted(head, assertions) == "ada"
    assert assertions.signed == 1


@pytest.mark.parametrize("raw", [request("/", *SPOOFED), upgrade("/ws", *SPOOFED)])
async def test_the_clients_assertion_is_removed_even_without_signing_key(raw: bytes) -> None:
    async with rig() as r:
        _, _, head = await r.joined(raw)
        assert b"assertion" not in head.lower()
        assert b"root" not in head


async def test_each_user_of_a_connection_has_an_assertion() -> None:
    assertions = signing()
    async with rig(assertions=assertions) as r:
        browser, app, head = await r.joined(request())
        assert asserted(head, assertions) == "ada"
        app.send(answer())
        await browser.answer()
        browser.send(request("/eve", credential=f"Cookie: {cookie(sub='eve', jti='t2')}"))
        other = await r.app.connection()
        assert asserted(await other.head(), assertions) == "eve"


async def test_requests_with_bearer_carry_an_assertion() -> None:
    assertions = signing()
    async with rig(assertions=assertions) as r:
        now = time.time()
        r.gate.tokens["good"] = SessionClaims(
            sub="grace", name=None, iat=int(now), exp=int(now) + 60, jti="b1", sid=SID,
            job="j1", rank=0, kind="web", mode="control", max_age=100, kid="k1", issued_at=now,
        )  # fmt: skip
        bearer = request("/", "Fumarole-Token: good", credential=None)
        browser, app, head = await r.joined(bearer)
        assert asserted(head, assertions) == "grace"
        app.send(answer())
        await browser.answer()
        browser.send(bearer)
        assert asserted(await app.head(), assertions) == "grace"
    assert assertions.signed == 1


async def test_a_public_host_carries_no_assertion() -> None:
    assertions = signing()
    public = {"hosts": [f"{SID}.apps.localhost", "demo.example.org"], "public": True}
    async with rig(assertions=assertions, route_changes=public) as r:
        raw = request("/", *SPOOFED, host=f"demo.example.org:{PORT}")
        _, _, head = await r.joined(raw)
        assert asserted(head, assertions) is None
    assert assertions.signed == 0


async def test_a_connection_reuses_an_assertion_for_a_minute() -> None:
    """Requests with equal and different field sections on one persistent connection."""
    assertions, clock = signing(), [time.time()]
    async with rig(assertions=assertions, wall=lambda: clock[0]) as r:
        browser, app, head = await r.joined(request("/0"))
        seen = [head]
        for number, after in enumerate((0, 10, RENEWED_SECONDS - 11, 2, 1, -30), 1):
            app.send(answer())
            await browser.answer()
            clock[0] += after
            more = (FROM_HERE,) if number % 2 else ()
            browser.send(request(f"/{number}", *more))
            seen.append(await app.head())
        lines = [next(x for x in h.split(b"\r\n") if b"Assertion" in x) for h in seen]
        assert all(asserted(head, assertions) == "ada" for head in seen)
        assert r.app.count == 1
    assert len(set(lines[:4])) == 1
    assert lines[4] == lines[5] != lines[3]
    assert lines[6] != lines[5]  # the clock was set back
    assert assertions.signed == 3

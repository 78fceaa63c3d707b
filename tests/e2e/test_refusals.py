"""Tests that only an exactly valid token grants access; the link alone does not."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from deploy.local.orchestrator.keys import SigningKey, ensure_key
from deploy.local.smoke.gateway import Link, client, open_link
from deploy.local.smoke.orchestrator import User
from deploy.local.system import LocalSystem
from shared.jose.jws import encode_base64url
from tests.e2e.sessions import PATIENCE_SECONDS, open_session, signed_in
from tests.shared.samples import Signer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


@dataclass
class Target:
    """A notebook and a valid link to it; it need not run for a request to be refused."""

    user: User
    job: str
    link: Link
    key: SigningKey

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of the valid token."""
        claims: dict[str, Any] = jwt.decode(self.link.token, options={"verify_signature": False})
        return claims

    def token(self, **changes: Any) -> str:
        """Return a fresh token with these claims changed."""
        now = int(time.time())
        fresh = {"jti": f"own-{time.time_ns()}", "iat": now, "exp": now + 60}
        headers = {"kid": self.key.kid}
        claims = self.claims | fresh | changes
        return jwt.encode(claims, self.key.private, algorithm="EdDSA", headers=headers)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def target(system: LocalSystem) -> AsyncIterator[Target]:
    async with signed_in(system.address) as user:
        job = await user.start("jupyterlab")
        async with client() as http, asyncio.timeout(PATIENCE_SECONDS):
            while (opened := await open_link(http, await user.link(job))) is None:
                await asyncio.sleep(0.1)
            if system.cluster is not None:  # in another cluster the app need not become ready
                await opened.until_ready()
        link = Link.read(await user.link(job))
        yield Target(user, job, link, ensure_key(system.folder / "orchestrator"))
        await user.stop(job)


async def opening(link: Link, token: str) -> int:
    async with client() as http:
        form = {"token": token, "next": "/"}
        async with http.post(link.origin + link.path, data=form, allow_redirects=False) as response:
            return response.status


async def test_the_link_without_a_token_is_401_for_everything(target: Target) -> None:
    async with client() as http:
        for path in ("/", "/lab", "/api/kernels", "/.fumarole/connect", "/.fumarole/state"):
            for method in ("GET", "POST", "OPTIONS", "DELETE"):
                async with http.request(method, target.link.origin + path) as response:
                    assert response.status == 401, (method, path)
                    assert "jupyter" not in (await response.text()).lower()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(
                target.link.origin + "/api/events/subscribe", headers={"Origin": target.link.origin}
            )
        assert refused.value.status == 401


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"sid": "a" * 26}, 403),
        ({"rank": 1}, 403),
        ({"kind": "terminal"}, 403),
        ({"job": "another"}, 403),
        ({"mode": "view"}, 403),
        ({"aud": "fumarole-controller"}, 401),
        ({"iss": "http://elsewhere.localhost"}, 401),
        ({"iat": int(time.time()) - 300, "exp": int(time.time()) - 200}, 401),
        ({"exp": int(time.time()) + 7200}, 401),
        ({"rank": True}, 401),
    ],
)
async def test_a_token_for_another_purpose_is_refused(
    target: Target, changes: dict[str, Any], status: int
) -> None:
    assert await opening(target.link, target.token(**changes)) == status


async def test_a_token_opens_once(target: Target) -> None:
    token = target.token()
    assert await opening(target.link, token) == 303
    assert await opening(target.link, token) == 401


@pytest.mark.usefixtures("notebooks")
async def test_a_used_token_is_refused_everywhere(target: Target) -> None:
    async with client() as http:
        await open_session(http, target.user, target.job)
    token = target.token()
    assert await opening(target.link, token) == 303
    async with client() as http:
        for header in ({"Fumarole-Token": token}, {"Authorization": f"Bearer {token}"}):
            async with http.get(target.link.origin + "/api", headers=header) as response:
                assert response.status == 401


async def test_only_one_of_many_concurrent_attempts_opens(target: Target) -> None:
    token = target.token()
    statuses = await asyncio.gather(*(opening(target.link, token) for _ in range(10)))
    assert sorted(statuses) == [303] + [401] * 9


def forged(target: Target, header: dict[str, Any], secret: bytes | None) -> str:
    parts = [json.dumps({"kid": target.key.kid} | header).encode()]
    parts += [json.dumps(target.claims | {"jti": "forged"}).encode()]
    text = ".".join(encode_base64url(part) for part in parts)
    mac = hmac.digest(secret, text.encode(), "sha256") if secret is not None else b""
    return f"{text}.{encode_base64url(mac)}"


async def test_forged_tokens_are_refused(target: Target) -> None:
    public = target.key.private.public_key()
    secrets = [
        public.public_bytes(Encoding.Raw, PublicFormat.Raw),
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ]
    tokens = [forged(target, {"alg": "HS256"}, secret) for secret in secrets]
    tokens += [forged(target, {"alg": "none"}, None), forged(target, {"alg": "None"}, b"")]
    tokens += [Signer(target.key.kid, "EdDSA").sign(target.claims)]
    for token in tokens:
        assert await opening(target.link, token) == 401


@pytest.mark.usefixtures("notebooks")
async def test_a_bearer_cannot_open_and_stays_a_bearer(target: Target) -> None:
    token = target.token()
    async with client() as http:
        await open_session(http, target.user, target.job)
    async with client() as http:
        for _ in range(3):
            headers = {"Authorization": f"Bearer {token}"}
            async with http.get(target.link.origin + "/api", headers=headers) as response:
                assert response.status == 200
    assert await opening(target.link, token) == 401


async def test_no_secret_is_in_any_log(system: LocalSystem, target: Target) -> None:
    token = target.token()
    assert await opening(target.link, token) == 303
    logs = [path for path in system.folder.rglob("*.log") if path.is_file()]
    assert logs
    secrets = [token, target.link.token, (system.folder / "link-key").read_text()]
    secrets += [(system.folder / "grant-key").read_text()]
    for path in logs:
        text = path.read_text(errors="replace")
        for secret in secrets:
            assert secret not in text, path
        assert "fumarole=" not in text, path

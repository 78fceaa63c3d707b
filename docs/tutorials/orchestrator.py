"""A whole orchestrator: it submits a job, follows it, and sends its user into the app.

``orchestrator.py [job.json]``: the job whose first endpoint is opened; a notebook without it.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

ISSUER = os.environ.get("ISSUER", "http://localhost:8600")
CONTROLLER = os.environ.get("CONTROLLER", "http://127.0.0.1:8481")
GATEWAY_PORT = os.environ.get("GATEWAY_PORT", "8488")
USER = "ada"
FOREVER = ClientTimeout(total=None)

KEY = Ed25519PrivateKey.generate()  # A real one keeps its key: a new one ends all sessions.
KID = secrets.token_hex(8)

NOTEBOOK: dict[str, Any] = {
    "image": "quay.io/jupyter/base-notebook:2025-03-14",
    "resources": {"cpu": 1, "memory": "1Gi"},
    "time_allocation_seconds": 3600,
    "interactive": {"lab": {"kind": "web", "port": 8888}},
    "invocation": {
        "command": [
            "jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser", "--allow-root",
            "--IdentityProvider.token=", "--ServerApp.allow_remote_access=True",
        ]
    },
}  # fmt: skip
JOB: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else NOTEBOOK
ENDPOINT = next(iter(JOB["interactive"]))


def sign(claims: dict[str, object]) -> str:
    """Return a token that is good for a minute."""
    now = int(time.time())
    times = {"iss": ISSUER, "iat": now, "exp": now + 60}
    return jwt.encode(claims | times, KEY, algorithm="EdDSA", headers={"kid": KID})


async def jwks(request: web.Request) -> web.Response:
    """Publish the key's public half: controller and gateway verify every token with it."""
    public = OKPAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    return web.json_response({"keys": [public | {"kid": KID, "alg": "EdDSA", "use": "sig"}]})


async def call(method: str, path: str, body: object = None) -> dict[str, Any]:
    """Call the controller as this orchestrator."""
    token = sign({"aud": "fumarole-controller", "sub": "orchestrator"})
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        ClientSession(CONTROLLER, raise_for_status=True) as http,
        http.request(method, path, json=body, headers=headers) as answer,
    ):
        return dict(await answer.json())


async def home(request: web.Request) -> web.Response:
    """Offer the one app. A real orchestrator asks first who is there."""
    form = '<form method="post" action="/start"><button>Start it</button></form>'
    return web.Response(text=f"<!doctype html><title>Mine</title>{form}", content_type="text/html")


async def start(request: web.Request) -> web.Response:
    """Submit a job, open a session to it, and send the browser there at once.

    The gateway shows how the job starts, and enters by itself.
    """
    job = f"mine-{secrets.token_hex(4)}"
    await call("POST", "/v1/jobs", {"items": [JOB | {"id": job, "owner": {"user": USER}}]})
    wanted = {"job": job, "rank": 0, "endpoint": ENDPOINT}
    made = await call("POST", "/v1/sessions", {"items": [wanted]})
    session = made["items"][0]
    claims = {key: session[key] for key in ("sid", "job", "rank", "kind")}
    unique = {"jti": secrets.token_urlsafe(16)}
    token = sign({"aud": "fumarole-gateway", "sub": USER} | claims | unique)
    # Behind the #, which no server and no log sees.
    host = session["hosts"][0]
    raise web.HTTPSeeOther(f"http://{host}:{GATEWAY_PORT}/.fumarole/open#token={token}&next=/")


async def follow(after: int) -> AsyncIterator[int]:
    """Print what becomes of every job from update *after* on; yield each one's number."""
    token = sign({"aud": "fumarole-controller", "sub": "orchestrator"})
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    async with (
        ClientSession(CONTROLLER, headers=headers) as http,
        http.get("/v1/updates", params={"after": after}, timeout=FOREVER) as stream,
    ):
        if stream.status == 410:  # Some are gone. A real one looks at all of its jobs now.
            yield int((await stream.json())["details"]["through"])
            return
        stream.raise_for_status()
        async for line in stream.content:
            if line.startswith(b"data: "):
                update = json.loads(line[6:])
                if "through" in update:  # The same, within the stream.
                    yield int(update["through"])
                    return
                print(update["job"], update["state"], update["message"] or "", flush=True)
                yield update["id"]


async def following(app: web.Application) -> AsyncIterator[None]:
    """Follow for as long as this process runs."""

    async def run() -> None:
        after = 0  # A real one keeps it with what it has made of the update.
        while True:
            with suppress(ClientError):  # The controller is not there yet, or not for a moment.
                async for number in follow(after):
                    after = number
            await asyncio.sleep(1)

    task = asyncio.create_task(run())
    yield
    task.cancel()


def main() -> None:
    """Serve until Ctrl-C."""
    app = web.Application()
    app.cleanup_ctx.append(following)
    app.add_routes(
        [
            web.get("/", home),
            web.post("/start", start),
            web.get("/.well-known/jwks.json", jwks),
        ]
    )
    port = int(ISSUER.rpartition(":")[2])
    web.run_app(app, host="127.0.0.1", port=port, print=lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()

"""A whole orchestrator: it submits a job, follows it, and sends its user into the app.

``orchestrator.py [job.json]`` starts this job and opens its first endpoint. Without a file, the
job is a notebook.
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

KEY = Ed25519PrivateKey.generate()  # A real one keeps its key, or its old tokens fail.
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
    """Publish the public key, with which controller and gateway verify every token."""
    public = OKPAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    return web.json_response({"keys": [public | {"kid": KID, "alg": "EdDSA", "use": "sig"}]})


async def call(method: str, path: str, body: object = None) -> dict[str, Any]:
    """Call the controller as this orchestrator."""
    token = sign({"aud": "fumarole-controller", "sub": "orchestrator"})
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        ClientSession(CONTROLLER, raise_for_status=True) as http,
        http.request(method, path, json=body, headers=headers) as response,
    ):
        return dict(await response.json())


async def home(request: web.Request) -> web.Response:
    """Offer the one app. A real orchestrator signs its users in first."""
    form = '<form method="post" action="/start"><button>Start it</button></form>'
    return web.Response(text=f"<!doctype html><title>Mine</title>{form}", content_type="text/html")


async def start(request: web.Request) -> web.Response:
    """Submit a job, open a session to it, and send the browser there at once.

    The gateway shows how the job starts, and then enters the app by itself.
    """
    job = f"mine-{secrets.token_hex(4)}"
    await call("POST", "/v1/jobs", {"items": [JOB | {"id": job, "owner": {"user": USER}}]})
    wanted = {"job": job, "rank": 0, "endpoint": ENDPOINT}
    made = await call("POST", "/v1/sessions", {"items": [wanted]})
    session = made["items"][0]
    claims = {key: session[key] for key in ("sid", "job", "rank", "kind")}
    unique = {"jti": secrets.token_urlsafe(16)}
    token = sign({"aud": "fumarole-gateway", "sub": USER} | claims | unique)
    # Behind the #: browsers send that part to no server, so no log holds the token.
    host = session["hosts"][0]
    raise web.HTTPSeeOther(f"http://{host}:{GATEWAY_PORT}/.fumarole/open#token={token}&next=/")


async def follow(after: int) -> AsyncIterator[int]:
    """Print every update of jobs after number *after*; yield the number of each."""
    token = sign({"aud": "fumarole-controller", "sub": "orchestrator"})
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    async with (
        ClientSession(CONTROLLER, headers=headers) as http,
        http.get("/v1/updates", params={"after": after}, timeout=FOREVER) as stream,
    ):
        if stream.status == 410:  # Some are gone. A real one now reads all of its jobs.
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
    """Follow the updates for as long as this process runs."""

    async def run() -> None:
        after = 0  # A real one stores it together with what it did with the update.
        while True:
            with suppress(ClientError):  # The controller does not run yet, or not at the moment.
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

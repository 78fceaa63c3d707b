"""Runs a gateway in a process of its own, with everything that it needs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import warm
from tests.gateway.http import Answer, Connection, http
from tests.gateway.signing import ISSUER, Signer

START_SECONDS = 90.0
ROOT = Path(__file__).resolve().parents[2]


class GatewayProcess:
    """``python -m gateway``, ended with the test; its log is kept in *folder*."""

    def __init__(self, folder: Path, redis_url: str, **settings: str) -> None:
        self.folder = folder
        self.program: Sequence[str | Path] = (sys.executable, "-m", "gateway")
        self.place = ROOT
        self.spawn: Callable[..., subprocess.Popen[bytes]] = warm.popen
        self.signer = Signer()
        self.keys = folder / "jwks.json"
        self.signer.publish(self.keys)
        self.link_key = self._key("link")
        self._key("grant")
        self._address_file = folder / "address.json"
        self._process: subprocess.Popen[bytes] | None = None
        self.public = ("", 0)
        self.ops = ("", 0)
        self.public_port = 18080
        self.settings = {
            "FUMAROLE_INSTANCE": "test",
            "FUMAROLE_REDIS_URL": redis_url,
            "FUMAROLE_LINK_KEY_FILE": str(folder / "link"),
            "FUMAROLE_GATEWAY_LISTEN": "127.0.0.1:0",
            "FUMAROLE_GATEWAY_OPS_LISTEN": "127.0.0.1:0",
            "FUMAROLE_GATEWAY_PUBLIC_URL": f"http://apps.localhost:{self.public_port}",
            "FUMAROLE_GATEWAY_TOKEN_ISSUER": ISSUER,
            "FUMAROLE_GATEWAY_TOKEN_JWKS": str(self.keys),
            "FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(folder / "grant"),
            "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": "127.0.0.0/8",
            "FUMAROLE_GATEWAY_ADDRESS_FILE": str(self._address_file),
            "FUMAROLE_GATEWAY_DRAIN_SECONDS": "2",
            **settings,
        }

    def _key(self, name: str) -> bytes:
        path = self.folder / name
        if not path.exists():
            path.write_bytes(base64.b64encode(os.urandom(32)))
        return base64.b64decode(path.read_bytes())

    async def start(self, *, ready: bool = True) -> None:
        """Start the gateway; wait until it listens and is ready."""
        self._address_file.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FUMAROLE_")}
        with (self.folder / "log").open("ab") as log:
            # Not asyncio's: tests with a loop of their own may share a gateway.
            self._process = self.spawn(
                self.program,
                env=environment | self.settings,
                cwd=self.place,
                stderr=log,
            )
        async with asyncio.timeout(START_SECONDS):
            while not self._address_file.exists():
                assert self._process.poll() is None, self.log()
                await asyncio.sleep(0.02)
            addresses = json.loads(self._address_file.read_text())
            self.public = _split(addresses["public"])
            self.ops = _split(addresses["ops"])
            while ready and (await self.ask_ops("/readyz")).status != 200:
                await asyncio.sleep(0.02)

    async def wait(self, seconds: float = 10.0) -> int:
        """Wait for the exit, and return the exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log(self) -> str:
        """Return the text of the log."""
        return (self.folder / "log").read_text()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    # Requests to the gateway

    def host(self, sid: str) -> str:
        """Return the host of a session as browsers send it."""
        return f"{sid}.apps.localhost:{self.public_port}"

    def origin(self, sid: str) -> str:
        """Return the origin of a session's pages."""
        return f"http://{self.host(sid)}"

    async def ask_ops(self, path: str) -> Answer:
        """Send a request to the ops listener."""
        return await http(self.ops, "GET", path, {"Host": "ops"})

    async def ask(
        self,
        sid: str,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Request *path* on the host of *sid*."""
        return await http(
            self.public, method, path, {"Host": self.host(sid), **(headers or {})}, body
        )

    async def open(self, sid: str, **claims: Any) -> str:
        """Open *sid* as a program would; return the cookie's name and value."""
        response = await self.post_token(sid, self.signer.token(sid, **claims))
        assert response.status == 303, response
        return response.headers["set-cookie"].partition(";")[0]

    async def post_token(
        self, sid: str, token: str, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Answer:
        """Post *token* as JSON."""
        body = json.dumps({"token": token, **fields}).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        return await self.ask(sid, "POST", "/.fumarole/open", sent, body)

    async def connect(self) -> Connection:
        """Return a raw connection to the gateway."""
        return await Connection.open(self.public)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)

"""Probes, as a kubelet runs them: one loop for each, which reports success and failure."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.cluster.kubelet.sandboxes import Sandbox, SandboxFailed

Object = dict[str, Any]
Exec = Callable[[list[str]], Awaitable[int]]
_HEAD_BYTES: Final = 16 * 1024


@dataclass(slots=True)
class Verdict:
    """Counts results until enough equal ones came in a row. No I/O."""

    success_threshold: int
    failure_threshold: int
    _last: bool = False
    _run: int = 0

    def take(self, outcome: bool) -> bool | None:
        """Return the verdict that *outcome* completes, or None as long as it is open."""
        self._run = self._run + 1 if outcome == self._last else 1
        self._last = outcome
        needed = self.success_threshold if outcome else self.failure_threshold
        return outcome if self._run >= needed else None


@dataclass(frozen=True, slots=True)
class Where:
    """The targets of a probe: a Pod's sandbox, its address, named ports, and exec."""

    sandbox: Sandbox
    address: str
    ports: dict[str, int]
    execute: Exec


async def follow_probe(probe: Object, where: Where, report: Callable[[bool, str], None]) -> None:
    """Run *probe* at its interval; report every verdict with its reason, until cancelled."""
    verdict = Verdict(probe.get("successThreshold", 1), probe.get("failureThreshold", 3))
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    while True:
        failure = await ask(probe, where)
        decided = verdict.take(failure is None)
        if decided is not None:
            report(decided, failure or "")
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def ask(probe: Object, where: Where) -> str | None:
    """Return why the probe failed, or None."""
    try:
        async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
            if action := probe.get("httpGet"):
                return await _ask_http(action, where)
            if action := probe.get("tcpSocket"):
                connection = await where.sandbox.connect(where.address, _port(action, where))
                connection.close()
                return None
            if action := probe.get("exec"):
                code = await where.execute(action.get("command") or [])
                return None if code == 0 else f"command exited with {code}"
            return "a probe of this kind is not asked by the embedded kubelet"
    except TimeoutError:
        return "timeout"
    except (OSError, SandboxFailed, ValueError) as error:
        return str(error)


async def _ask_http(action: Object, where: Where) -> str | None:
    connection = await where.sandbox.connect(where.address, _port(action, where))
    tls: ssl.SSLContext | None = None
    if action.get("scheme", "HTTP") == "HTTPS":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # kubelets do not verify either
    reader, writer = await asyncio.open_connection(
        sock=connection, ssl=tls, server_hostname="" if tls else None, limit=_HEAD_BYTES
    )
    try:
        writer.write(_request(action, where).encode())
        await writer.drain()
        status = int((await reader.readline()).split()[1])
    except (IndexError, asyncio.LimitOverrunError) as error:
        raise ValueError("malformed HTTP response") from error
    finally:
        writer.transport.abort()
    return None if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _request(action: Object, where: Where) -> str:
    fields = {
        "Host": f"{action.get('host') or where.address}:{_port(action, where)}",
        "User-Agent": "kube-probe/1.36",
        "Accept": "*/*",
        "Connection": "close",
    }
    for header in action.get("httpHeaders") or []:
        fields[header["name"]] = header["value"]
    lines = [f"GET {action.get('path') or '/'} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join((*lines, "", ""))


def _port(action: Object, where: Where) -> int:
    port = action["port"]
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    if port not in where.ports:
        raise ValueError(f"couldn't find port: {port}")
    return where.ports[port]

"""``python -m benchmarks.beside_peers PEER``: what one attacker costs others behind the peers.

Runs the attackers of :mod:`benchmarks.attackers` that need no session of the gateway against a
peer, with the same honest sessions, cores and priorities. The result shows what is attainable.
Peers check no credential. Prints a table: how much of its core the peer used beside the attacker,
then the honest sessions' p95 without the attacker, p95 beside it, and slowest response, in
milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from benchmarks.attackers import (
    PAUSE_SECONDS,
    ROUNDS,
    SECONDS,
    SESSIONS,
    Cost,
    measure,
    median_of,
    yield_processor,
)
from benchmarks.install import Programs, install
from benchmarks.programs import cores, free_port, off_the_proxies_core, running, until_listening
from tests.contract.rig import Rig, Session
from tests.contract.upstream import App
from tests.pressure.attackers import ATTACKERS
from tests.pressure.gateway_under_test import HonestProcess, LocalHost, PressureRig, WiredProcess

ROOT: Final = Path(__file__).parents[1]
PEERS_FOLDER: Final = ROOT / ".bench"
NAMES: Final = (
    "pipelined requests",
    "1-byte chunks up",
    "1-byte chunks down",
    "empty frames up",
    "empty frames down",
    "connections that come and go",
    "heads byte by byte",
)
HONEST: Final = "honest.localhost:4180"
ATTACKED: Final = "attacked.localhost:4180"
_NGINX: Final = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; multi_accept on; }}
http {{
    access_log off; keepalive_requests 100000000; client_max_body_size 0;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi; client_body_buffer_size 256k;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream honest {{ server 127.0.0.1:{honest}; keepalive 64; }}
    upstream attacked {{ server 127.0.0.1:{attacked}; keepalive 64; }}
    map $http_host $app {{ default honest; "attacked.localhost:4180" attacked; }}
    server {{
        listen 127.0.0.1:{port} backlog=8192;
        location / {{
            proxy_pass http://$app; proxy_http_version 1.1; proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_request_buffering off; proxy_max_temp_file_size 0;
            proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;
        }}
    }}
}}
"""
_HAPROXY: Final = """
global
    nbthread 1
    tune.bufsize 65536
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
    option http-keep-alive
frontend web
    bind 127.0.0.1:{port} backlog 8192
    use_backend attacked if {{ hdr(host) attacked.localhost:4180 }}
    default_backend honest
backend honest
    http-reuse always
    server app 127.0.0.1:{honest}
backend attacked
    http-reuse always
    server app 127.0.0.1:{attacked}
"""
_CLUSTER: Final = """
  - name: {name}
    type: STATIC
    connect_timeout: 5s
    per_connection_buffer_limit_bytes: 262144
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}
"""
_TYPES: Final = "type.googleapis.com/envoy.extensions.filters"
_MANAGER: Final = f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER: Final = f"{_TYPES}.http.router.v3.Router"
_ENVOY: Final = """
static_resources:
  listeners:
  - name: web
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    tcp_backlog_size: 8192
    per_connection_buffer_limit_bytes: 262144
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {manager}
          stat_prefix: web
          stream_idle_timeout: 0s
          upgrade_configs: [{{ upgrade_type: websocket }}]
          route_config:
            virtual_hosts:
            - name: attacked
              domains: ["attacked.localhost:4180"]
              routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: attacked, timeout: 0s }} }}]
            - name: honest
              domains: ["*"]
              routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: honest, timeout: 0s }} }}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{ "@type": {router} }}
  clusters:{clusters}
"""


class OnePort(LocalHost):
    """This host. Each app listens at the one port to which the peer forwards."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def listen(self, where: str, window: int | None = None) -> socket.socket:
        """Listen at the port, which the previous app may just have left."""
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if window is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        made.bind(("127.0.0.1", self._port))
        made.listen(256)
        made.setblocking(False)
        return made


class NobodysRig:
    """The rig that attackers need, without sessions."""

    async def session(self, app: App | None = None, **_: Any) -> Session:
        """Return the address of the attacker's app."""
        return Session({"sid": "none"}, ATTACKED, f"http://{ATTACKED}")

    async def opened(self, *_: Any, **__: Any) -> str:
        """Return a cookie of the length of the gateway's, which no peer reads."""
        return "session=" + "c0ffee" * 40

    def own(self, _: Session, cookie: str) -> list[tuple[str, str]]:
        """Return the fields of a request of a session's own page."""
        return [("Cookie", cookie), ("Origin", f"http://{ATTACKED}")]

    async def entered(self, app: App, **_: Any) -> tuple[Session, list[tuple[str, str]]]:
        """Return the session of *app* and its fields."""
        session = await self.session(app)
        return session, self.own(session, await self.opened())

    def close_streams(self) -> None:
        """Close nothing: there are no routes."""


class PeerRig(PressureRig):
    """A peer with browsers and apps around it."""

    async def metrics(self) -> dict[str, float]:
        """Return nothing: peers have no histogram of turns."""
        return {}


def _command(name: str, programs: Programs, folder: Path, ports: dict[str, int]) -> list[str]:
    program, config = programs.found[name], folder / f"{name}.conf"
    if name == "nginx":
        config.write_text(_NGINX.format(folder=folder, **ports))
        return [program, "-c", str(config), "-p", str(folder), "-e", str(folder / "error.log")]
    if name == "haproxy":
        config.write_text(_HAPROXY.format(**ports))
        return [program, "-db", "-f", str(config)]
    config = config.with_suffix(".yaml")
    clusters = [_CLUSTER.format(name=each, port=ports[each]) for each in ("honest", "attacked")]
    types = {"manager": _MANAGER, "router": _ROUTER}
    config.write_text(_ENVOY.format(port=ports["port"], clusters="".join(clusters), **types))
    return [program, "-c", str(config), "--concurrency", "1", "--disable-hot-restart"]


@asynccontextmanager
async def running_peer(
    name: str, programs: Programs, folder: Path
) -> AsyncIterator[tuple[PressureRig, HonestProcess]]:
    """Run the peer *name* on the proxies' core, and honest sessions behind it."""
    honest = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.pressure.honest", cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    others = HonestProcess(honest)
    try:
        ports = {"honest": int(await others.line()), "attacked": free_port(), "port": free_port()}
        log = folder / "log"
        command = _command(name, programs, folder, ports)
        async with running(command, core=cores()[0], log=log) as process:
            await until_listening(process, ports["port"], log)
            rig = NobodysRig()
            public = ("127.0.0.1", ports["port"])
            wired = SimpleNamespace(
                place=OnePort(ports["attacked"]),
                public=public,
                context=None,
                pid=_worker_of(process.pid),
            )
            session = {
                "host": HONEST,
                "origin": f"http://{HONEST}",
                "cookie": await rig.opened(),
                "work": "get",
            }
            shared = {"address": public, "tls": False, "pause": PAUSE_SECONDS}
            others.tell({"all": shared, "sessions": [session] * SESSIONS})
            yield PeerRig(cast(Rig, rig), cast(WiredProcess, wired)), others
    finally:
        honest.kill()
        await honest.wait()


def _worker_of(pid: int) -> int:
    """Return the process that does the work of *pid*: for nginx it is a child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


async def measure_peer(name: str, *, rounds: int, seconds: float) -> list[Cost]:
    """Return the cost of each attacker for others behind the peer *name*."""
    found: dict[str, list[Cost]] = {attacker: [] for attacker in NAMES}
    programs = install(PEERS_FOLDER)
    with off_the_proxies_core(), tempfile.TemporaryDirectory(prefix="fumarole-beside-") as folder:
        async with running_peer(name, programs, Path(folder)) as (ground, others):
            yield_processor()
            for _ in range(rounds):
                for attacker in NAMES:
                    cost = await measure(ground, others, attacker, ATTACKERS[attacker], seconds)
                    found[attacker].append(cost)
    return [median_of(costs) for costs in found.values()]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.beside_peers", description=__doc__)
    parser.add_argument("peer", choices=("nginx", "haproxy", "envoy"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    measuring = measure_peer(chosen.peer, rounds=chosen.rounds, seconds=chosen.seconds)
    for cost in asyncio.run(measuring):
        figures = f"{cost.core:4.0%} {cost.quiet_p95:6.2f} {cost.p95:6.2f} {cost.slowest:6.1f}"
        print(f"{cost.attacker:30} {figures} wrong {cost.wrong}")


if __name__ == "__main__":
    main()

"""Decides the folders, ports and keys of this machine, and the settings of each program.

The programs know each other only by these settings. They are the settings that operators use.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, assert_never

from deploy.local.cluster_use import ClusterUse
from deploy.local.ports import Ports
from deploy.local.redis import RedisSetup, write_redis_setup

Name = Literal["redis", "orchestrator", "controller", "hub", "gateway"]

PROGRAMS: Final[tuple[Name, ...]] = ("redis", "orchestrator", "controller", "hub", "gateway")


@dataclass(frozen=True, slots=True)
class Layout:
    """Folders, ports, keys and configuration, made once by :func:`make_layout`."""

    folder: Path
    ports: Ports
    redis: RedisSetup
    cluster: ClusterUse
    own_orchestrator: str | None = None
    """The origin of an own orchestrator; None: the reference orchestrator runs."""

    @property
    def page_url(self) -> str:
        """The URL of the orchestrator's page, which is the issuer of all tokens."""
        return self.own_orchestrator or f"http://localhost:{self.ports['page']}"

    @property
    def api_url(self) -> str:
        """The URL of the controller's API."""
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def gateway_url(self) -> str:
        """The gateway's public URL. The host of each session is below its host."""
        return f"http://localhost:{self.ports['public']}"

    def log_of(self, name: Name) -> Path:
        """Return the path of a program's log."""
        return self.folder / "log" / f"{name}.log"

    def ops_url(self, name: Name) -> str:
        """Return the base URL of a program's ops listener."""
        return f"http://127.0.0.1:{self.ports[f'{name} ops']}"

    def command_of(self, name: Name) -> tuple[str, ...]:
        """Return a program's command."""
        match name:
            case "redis":
                return self.redis.command
            case "orchestrator":
                return (sys.executable, "-m", "deploy.local.orchestrator")
            case "controller" | "hub":
                return (sys.executable, "-m", "controller")
            case "gateway":
                return (sys.executable, "-m", "gateway")
            case _:
                assert_never(name)

    def settings_of(self, name: Name) -> dict[str, str]:
        """Return a program's environment."""
        match name:
            case "redis":
                return {}
            case "orchestrator":
                return self._orchestrator()
            case "controller":
                return self._controller(name, "api,reconciler")
            case "hub":
                return self._controller(name, "hub")
            case "gateway":
                return self._gateway()
            case _:
                assert_never(name)

    def _orchestrator(self) -> dict[str, str]:
        tools = dict(self.cluster.settings).get("FUMAROLE_CONTROLLER_TOOLS_FILE")
        return {
            "ORCHESTRATOR_LISTEN": f"127.0.0.1:{self.ports['page']}",
            "ORCHESTRATOR_STATE": str(self.folder / "orchestrator"),
            "ORCHESTRATOR_ISSUER": self.page_url,
            "ORCHESTRATOR_CONTROLLER": self.api_url,
            "ORCHESTRATOR_GATEWAY": self.gateway_url,
            "ORCHESTRATOR_TOOLS_FILE": tools or "",
        }

    def _controller(self, name: Name, roles: str) -> dict[str, str]:
        hub = f"127.0.0.1:{self.ports['hub']}"
        return self._common(name, "CONTROLLER") | {
            "FUMAROLE_CONTROLLER_ROLES": roles,
            "FUMAROLE_CONTROLLER_LISTEN": f"127.0.0.1:{self.ports['api']}",
            "FUMAROLE_CONTROLLER_HUB_LISTEN": hub,
            "FUMAROLE_CONTROLLER_HUB_ADVERTISE": hub,
            "FUMAROLE_CONTROLLER_STATE_FOLDER": str(self.folder / "controller"),
            "FUMAROLE_CONTROLLER_NAMESPACE": self.cluster.namespace,
            "KUBECONFIG": str(self.cluster.kubeconfig),
            **dict(self.cluster.settings),
        }

    def _gateway(self) -> dict[str, str]:
        ours = {"FUMAROLE_GATEWAY_ORCHESTRATOR_URL": f"{self.page_url}/#{{job}}"}
        return self._common("gateway", "GATEWAY") | {
            **({} if self.own_orchestrator else ours),
            "FUMAROLE_GATEWAY_LISTEN": f"127.0.0.1:{self.ports['public']}",
            "FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(self.folder / "grant-key"),
            # The hub is on this machine too, at an address of its own.
            "FUMAROLE_GATEWAY_UPSTREAM_NETWORKS": f"127.0.0.1/32,{self.cluster.pod_networks}",
            "FUMAROLE_GATEWAY_DRAIN_SECONDS": "2",
        }

    def _common(self, name: Name, prefix: str) -> dict[str, str]:
        return {
            "FUMAROLE_INSTANCE": self.cluster.instance,
            "FUMAROLE_REDIS_URL": self.redis.urls["gateway" if name == "gateway" else "controller"],
            "FUMAROLE_LINK_KEY_FILE": str(self.folder / "link-key"),
            "FUMAROLE_LOG_FORMAT": "text",
            f"FUMAROLE_{prefix}_PUBLIC_URL": self.gateway_url,
            f"FUMAROLE_{prefix}_TOKEN_ISSUER": self.page_url,
            f"FUMAROLE_{prefix}_TOKEN_JWKS": f"{self.page_url}/.well-known/jwks.json",
            f"FUMAROLE_{prefix}_OPS_LISTEN": self.ops_url(name).removeprefix("http://"),
        }


def make_layout(
    folder: Path, ports: Ports, cluster: ClusterUse, *, own_orchestrator: str | None = None
) -> Layout:
    """Make folders, keys and Redis' configuration in *folder*, which only its owner may enter.

    Raises:
        NoRedis: If this machine has no Redis.
    """
    for name in ("log", "redis", "controller", "orchestrator"):
        (folder / name).mkdir(mode=0o700)
    for name in ("link-key", "grant-key"):
        key = base64.b64encode(secrets.token_bytes(32))
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(key)
    redis = write_redis_setup(folder / "redis", cluster.instance)
    return Layout(folder, ports, redis, cluster, own_orchestrator)

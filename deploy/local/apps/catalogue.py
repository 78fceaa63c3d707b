"""The apps of the demo: each as a job for ``POST /v1/jobs``, with the endpoint that a user opens.

JupyterLab and the shell are public images that any kubelet runs. The embedded kubelet runs programs
of this machine in their place. The desktop is only such a program: no image of it is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class App:
    """One app.

    ``job`` is a job without ``id`` and ``owner``. ``opens`` is the item of ``POST /v1/sessions``
    without ``job`` and ``rank``. ``start_path`` is the path in the app at which a browser begins.
    ``process_only`` means that only the embedded kubelet can run its image.
    """

    name: str
    title: str
    about: str
    kind: Literal["web", "vnc", "terminal"]
    job: Mapping[str, Any]
    opens: Mapping[str, Any]
    start_path: str = "/"
    process_only: bool = False


_LAB = (
    "jupyter",
    "lab",
    "--ip=0.0.0.0",
    "--port=8888",
    "--no-browser",
    # In the embedded cluster, root of a container is nobody outside of it.
    "--allow-root",
    # The app needs no password: the gateway admits only users with a grant, and only the gateway
    # reaches the port.
    "--IdentityProvider.token=",
    "--ServerApp.allow_remote_access=True",
    "--LabApp.extension_manager=readonly",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=",
)

APPS: Mapping[str, App] = MappingProxyType(
    {
        app.name: app
        for app in (
            App(
                name="jupyterlab",
                title="JupyterLab",
                about="A notebook server with a Python kernel.",
                kind="web",
                job={
                    "image": "quay.io/jupyter/base-notebook:2025-03-14",
                    "resources": {"cpu": 1, "memory": "1Gi"},
                    "invocation": {"command": list(_LAB)},
                    "interactive": {"lab": {"kind": "web", "port": 8888}},
                },
                opens={"endpoint": "lab"},
                start_path="/lab",
            ),
            App(
                name="shell",
                title="Shell",
                about="A terminal inside a running job.",
                kind="terminal",
                job={
                    "image": "debian:12-slim",
                    "resources": {"cpu": 0.5, "memory": "256Mi"},
                    # A signal interrupts `wait`, so the shell ends at once when it is asked to.
                    "invocation": {
                        "command": [
                            "bash",
                            "-c",
                            "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done",
                        ]
                    },
                },
                opens={"kind": "terminal"},
            ),
            App(
                name="desktop",
                title="Desktop",
                about="A screen to draw and type on, over VNC.",
                kind="vnc",
                job={
                    "image": "desktop",
                    "resources": {"cpu": 1, "memory": "512Mi"},
                    "interactive": {"desk": {"kind": "vnc", "port": 5900}},
                },
                opens={"endpoint": "desk"},
                process_only=True,
            ),
        )
    }
)

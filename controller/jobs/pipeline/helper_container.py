"""Containers of ours that run in a job's pods before the job's own program. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from controller.settings import JobDefaults
from controller.volcano.manifest import Container, Mount, Variable, escape


def make_helper(
    name: str,
    script: str,
    arguments: Sequence[str],
    *,
    defaults: JobDefaults,
    mounts: Sequence[Mount],
    environment: Sequence[Variable] = (),
) -> Container:
    """Return a container that runs *script* with *arguments*, limited, and without rights.

    The script is ours and the same for all jobs; whatever a job says is an argument, which no
    shell reads as anything else. What it has to tell it writes to ``/dev/termination-log``.
    """
    pods = defaults.pods
    # Files that only their owner may see are seen by a helper that runs as their owner.
    user = pods.helper_user if defaults.run_as_user is None else defaults.run_as_user
    return Container(
        name=name,
        image=pods.helper_image,
        resources={"cpu": pods.helper_cpu, "memory": pods.helper_memory},
        command=["sh", "-c", escape(script), name, *map(escape, arguments)],
        environment=list(environment),
        mounts=list(mounts),
        security_context={
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsUser": user,
        },
        more={"terminationMessagePolicy": "FallbackToLogsOnError"},
    )

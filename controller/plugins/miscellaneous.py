"""Settings of every pod: no restarts, no credentials, few privileges, a working directory."""

from __future__ import annotations

from typing import ClassVar, Final

from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.spec.model import Job
from controller.volcano.manifest import Container, Json, Mount, Task, Volume

KUBERNETES_GRACE_SECONDS: Final = 30

_VOLUME: Final = "work"


class MiscellaneousPlugin(JobPlugin):
    """Makes pods fit the ``restricted`` Pod Security Standard of Kubernetes.

    What is the same for all jobs (user, working directory) comes from the settings.
    """

    name: ClassVar[str] = "miscellaneous"
    fields: ClassVar[frozenset[str]] = frozenset({"stop_grace_seconds"})
    # After the plugins that mount: it adds the working directory if none of them has.
    after: ClassVar[tuple[str, ...]] = ("task", "*")
    before: ClassVar[tuple[str, ...]] = ("minikube", "proxy")

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        """Change every task."""
        pods = self.context.jobs.pods
        grace = self._grace(job, builder)
        for task in builder.volcano_job.tasks:
            self._restrict(task)
            if grace is not None:
                task.template.more["terminationGracePeriodSeconds"] = grace
        for container in builder.containers():
            container.security_context = self._rights()
            if pods.change_working_directory:
                container.working_directory = self.context.jobs.working_directory
        for task in builder.volcano_job.tasks:
            self._ensure_place_to_work(task)

    def _grace(self, job: Job, builder: JobBuilder) -> int | None:
        """Return the termination grace period; None: Kubernetes' 30 s."""
        most = self.context.jobs.most_stop_grace_seconds
        if job.stop_grace_seconds is None:
            return most if most < KUBERNETES_GRACE_SECONDS else None
        if job.stop_grace_seconds > most:
            builder.refuse("stop_grace_seconds", f"at most {most} here")
        return job.stop_grace_seconds

    def _rights(self) -> Json:
        pods = self.context.jobs.pods
        rights: Json = {"allowPrivilegeEscalation": pods.allow_privilege_escalation}
        if not pods.keep_capabilities:
            rights["capabilities"] = {"drop": ["ALL"]}
        return rights

    def _restrict(self, task: Task) -> None:
        defaults = self.context.jobs
        task.template.more |= {
            # The job's policies decide what follows a failure.
            "restartPolicy": "Never",
            # A program that users reach must not reach the API server.
            "automountServiceAccountToken": defaults.pods.service_account_token,
            "enableServiceLinks": False,
        }
        context = task.template.security_context
        context["runAsNonRoot"] = defaults.run_as_non_root
        if defaults.pods.seccomp:
            context["seccompProfile"] = {"type": "RuntimeDefault"}
        if defaults.run_as_user is not None:
            context["runAsUser"] = defaults.run_as_user
            context["fsGroup"] = defaults.run_as_user
            # Otherwise each mount of a large claim first changes the group of all files.
            context["fsGroupChangePolicy"] = "OnRootMismatch"

    def _ensure_place_to_work(self, task: Task) -> None:
        # The container runtime would create a missing working directory as root, not writable.
        path = self.context.jobs.working_directory
        container = task.template.containers[0]
        if path == "/" or _is_mounted(container, path):
            return
        task.template.volumes.append(Volume(name=_VOLUME, source={"emptyDir": {}}))
        container.mounts.append(Mount(volume=_VOLUME, path=path))


def _is_mounted(container: Container, path: str) -> bool:
    return any(mount.path == path for mount in container.mounts)

"""Brings jobs into the states in which they are recorded.

It is a part of `record`; reopening a recording does not use it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import sqlalchemy as sa

from controller.kube.client import Kube
from controller.kube.kinds import CONFIG_MAPS, NAMESPACES, PODS, VCJOBS
from controller.store import tables
from controller.store.database import Store
from tests.controller.running import Controller, eventually

ENDS = "trap 'exit 0' TERM; "
WAITS: Final = ["sh", "-c", f"{ENDS}sleep 3600 & wait"]
SERVES: Final = ["sh", "-c", f"{ENDS}python3 -m http.server 8000 & wait"]
# A container's first process ignores signals without a handler.
STUBBORN: Final = ["sleep", "3600"]
SITE: Final = {"site": {"kind": "web", "port": 8000}}

TROUBLE: Final = "start:between-start,complete:between-complete"
"""The hooks of the plugin that fail while the recording is made."""

SESSIONS: Final[dict[str, dict[str, Any]]] = {
    "site": {"job": "web", "endpoint": "site"},
    "shared": {"job": "web", "endpoint": "site"},
    "desk": {"job": "web", "endpoint": "desk"},
    "shell": {"job": "web", "kind": "terminal"},
    "early": {"job": "queued", "endpoint": "site"},
    "asleep": {"job": "suspended", "endpoint": "site"},
    "closed": {"job": "web", "endpoint": "site"},
    "over": {"job": "succeeded", "endpoint": "site"},
}
"""The sessions by what they are for."""


class Scenario:
    """A leading controller, an administrator of its cluster, and the jobs' intended states."""

    def __init__(self, controller: Controller, admin: Kube, store: Store) -> None:
        self.controller = controller
        self.admin = admin
        self.store = store
        self.sids: dict[str, str] = {}

    async def play(self) -> None:
        """Bring every job into its state; the last ones stay there for only some 20 seconds."""
        await self.those_that_ended()
        await self.those_that_run()
        await self.sessions()
        await self.those_that_wait()
        await self.those_in_between()

    async def submit(self, job_id: str, **fields: Any) -> None:
        labels = {"cost-centre": f"c-{job_id}", "recorded": "yes"}
        fields.setdefault("invocation", {"command": WAITS})
        await self.controller.submit(job_id, labels=labels, **fields)

    async def until(self, job_id: str, **wanted: Any) -> None:
        """Wait until the job's row has these values."""

        async def look() -> bool:
            row = await self.row(job_id)
            return all(row[name] == value for name, value in wanted.items())

        try:
            await eventually(look, seconds=60)
        except AssertionError:
            row = await self.row(job_id)
            raise AssertionError(f"{job_id} is {row}\n{self.controller.tail()}") from None

    async def row(self, job_id: str) -> dict[str, Any]:
        async with self.store.read() as transaction:
            query = sa.select(tables.jobs).where(tables.jobs.c.id == job_id)
            return dict((await transaction.execute(query)).one()._mapping)

    async def phase(self, job_id: str, phase: str) -> None:
        """Wait until Volcano reports this phase of the job."""
        place = (await self.row(job_id))["namespace"]

        async def look() -> bool:
            found = await self.admin.get(VCJOBS, f"j-{job_id}", place)
            return bool(found.get("status", {}).get("state", {}).get("phase") == phase)

        await eventually(look, seconds=60, what=f"{job_id} is not {phase}")

    async def evict(self, job_id: str) -> None:
        """Evict a pod as a kubelet does when its node runs low on a resource."""
        place = (await self.row(job_id))["namespace"]
        status = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on disk"}
        name = f"j-{job_id}-job-0"
        await self.admin.merge(PODS, name, {"status": status}, place, subresource="status")

    async def call(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        return await self.controller.call(method, path, body, expect=expect)

    # Forgotten jobs

    async def forgotten(self) -> None:
        """End a job of which only the tombstone and the usage will be known."""
        # A store without any job would adopt the cluster's objects.
        policies = [{"event": "PodFailed", "action": "AbortJob"}]
        await self.submit("pair", replicas=2, policies=policies)
        await self.submit("forgotten", invocation={"command": ["true"]})
        await self.until("forgotten", state="SUCCESS")

    # Scenes

    async def those_that_ended(self) -> None:
        await self.submit(
            "succeeded", invocation={"command": ["sh", "-c", "sleep 2"]}, interactive=SITE
        )
        self.sids["over"] = await self.controller.open("succeeded", endpoint="site")
        await self.submit("failed", invocation={"command": ["sh", "-c", "exit 3"]})
        await self.submit("expired", time_allocation_seconds=1)
        await self.submit("unfunded", owner={"user": "ada", "project": "sun"})
        await self.submit("released", links=["recorded-old-link"], interactive=SITE,
                          invocation={"command": SERVES})  # fmt: skip
        for one in ("unfunded", "released"):
            await self.until(one, state="RUNNING")
        await self.call("POST", "/v1/usage/ack", {"through": 0, "exhausted": [{"job": "unfunded"}]})
        await self.call("DELETE", "/v1/jobs/released", expect=202)
        for one, state in {"succeeded": "SUCCESS", "failed": "FAILURE", "expired": "EXPIRED",
                           "unfunded": "FAILURE", "released": "SUCCESS"}.items():  # fmt: skip
            await self.until(one, state=state)

    async def those_that_run(self) -> None:
        password = {"pass": {"type": "secret", "value": "swordfish"}}
        await self.submit(
            "web", invocation={"command": SERVES}, links=["recorded-demo"],
            parameters=password | {"greeting": {"type": "text", "value": "hello"}},
            interactive=SITE | {"desk": {"kind": "vnc", "port": 5900,
                                         "password": {"parameter": "pass"}}},
            time_allocation_seconds=36000,
        )  # fmt: skip
        await self.until("web", state="RUNNING")
        peer = {"web": {"type": "peer", "job": "web", "hostname": "web"}}
        await self.submit("caller", parameters=peer)
        await self.submit("tasks", tasks=[{"name": "head"}, {"name": "worker", "replicas": 2,
                          "policies": [{"exit_code": 3, "action": "RestartTask"}]}],
                          max_retry=2)  # fmt: skip
        for one in ("resumed", "suspended", "resuming"):
            await self.submit(one, **({"interactive": SITE} if one == "suspended" else {}))
        for one in ("caller", "pair", "tasks", "resumed", "suspended", "resuming"):
            await self.until(one, state="RUNNING")
        for one in ("resumed", "suspended", "resuming"):
            await self.call("POST", f"/v1/jobs/{one}/suspend", expect=202)
        for one in ("resumed", "suspended", "resuming"):
            await self.until(one, state="SUSPENDED")
        await self.call("POST", "/v1/jobs/resumed/resume", expect=202)
        await self.until("resumed", state="RUNNING", attempt=2)
        await self.call("POST", "/v1/jobs/web/extend", {"seconds": 600})

    async def sessions(self) -> None:
        # More than the only node has: it waits in Volcano's queue.
        large = {"cpu": 63.9, "memory": "64Mi"}
        await self.submit("queued", resources=large, interactive=SITE)
        await self.until("queued", reason="queued")
        for name, wanted in SESSIONS.items():
            if name not in self.sids:
                self.sids[name] = await self.controller.open(wanted["job"], **wanted)
        revoke = f"/v1/sessions/{self.sids['shared']}/revoke"
        await self.call("POST", revoke, {"jti": "recorded-jti"})
        await self.call("POST", revoke, {"sub": "mallory"})
        await self.call("POST", f"/v1/sessions/{self.sids['desk']}/revoke", {})
        await self.call("POST", "/v1/keys/recorded-leaked-key/revoke", {})
        await self.call("DELETE", f"/v1/sessions/{self.sids['closed']}")
        ledger = await self.call("GET", "/v1/usage?after=0")
        half = ledger["items"][len(ledger["items"]) // 2]["id"]
        await self.call("POST", "/v1/usage/ack", {"through": half})

    async def those_that_wait(self) -> None:
        await self.call("POST", "/v1/maintenance", {"action": "pause", "message": "an upgrade"})
        await self.submit("kept")
        await self.call("POST", "/v1/jobs/kept/suspend", expect=202)
        await self.until("kept", state="SUSPENDED", uid=None)
        await self.call("POST", "/v1/maintenance", {"action": "resume"})
        peer = {"kept": {"type": "peer", "job": "kept", "hostname": "kept", "ports": [9000]}}
        secret = {"token": {"type": "secret", "value": "open sesame"}}
        await self.submit("prepared", parameters=peer | secret)
        await self.until("prepared", reason="preparing", uid=None)

    async def those_in_between(self) -> None:
        stubborn: dict[str, Any] = {"invocation": {"command": STUBBORN}}
        restart = [{"event": "PodFailed", "action": "RestartJob"}]
        await self.submit("restarting", replicas=2, policies=restart, max_retry=3, **stubborn)
        await self.submit("evicted")
        await self.submit("between-start")
        await self.submit("between-complete")
        for one in ("suspending", "canceling"):
            await self.submit(one, **stubborn)
        await self.submit("expiring", time_allocation_seconds=12, **stubborn)
        for one in ("restarting", "evicted", "between-start", "between-complete", "suspending",
                    "canceling", "expiring"):  # fmt: skip
            await self.until(one, state="RUNNING")
        await self.call("DELETE", "/v1/jobs/between-complete", expect=202)
        await self.call("POST", "/v1/maintenance", {"action": "pause", "message": "an upgrade"})
        await self.evict("evicted")
        await self.until("evicted", attempt=2, uid=None, reason="paused")
        await self.call("POST", "/v1/jobs/resuming/resume", expect=202)
        await self.until("resuming", attempt=2, uid=None, reason="paused")
        secret = {"token": {"type": "secret", "value": "open sesame"}}
        await self.submit("accepted", parameters=secret, links=["recorded-later"],
                          interactive=SITE, invocation={"command": SERVES})  # fmt: skip
        await self.until("accepted", reason="paused")
        # From here on no program ends when asked to; each is killed 30 s later.
        await self.call("POST", "/v1/jobs/suspending/suspend", expect=202)
        await self.until("suspending", stopping=True)
        await self.phase("suspending", "Aborting")
        await self.call("DELETE", "/v1/jobs/canceling", expect=202)
        await self.until("canceling", state="CANCELING", outcome="SUCCESS")
        status = {"phase": "Failed"}
        place = (await self.row("restarting"))["namespace"]
        await self.admin.merge(
            PODS, "j-restarting-job-0", {"status": status}, place, subresource="status"
        )
        await self.phase("restarting", "Restarting")
        await self.until("expiring", outcome="EXPIRED")
        await asyncio.sleep(1.5)


async def make_foreign_objects(admin: Kube) -> None:
    """Create foreign objects, which must stay unchanged whatever happens."""
    await admin.create(NAMESPACES, {"metadata": {"name": "strangers"}})
    task = {
        "name": "job", "replicas": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "job", "image": "busybox", "command": ["sleep", "3600"]}]}},
    }  # fmt: skip
    labels = {"fumarole.dev/instance": "another", "fumarole.dev/job": "web"}
    for name, marked in (("j-web", labels), ("plain", {})):
        vcjob = {
            "metadata": {"name": name, "namespace": "strangers", "labels": marked},
            "spec": {"minAvailable": 1, "schedulerName": "volcano", "tasks": [task]},
        }
        await admin.create(VCJOBS, vcjob, "strangers")
    for name, marked in (("j-web.cost-centre", labels), ("settings", {})):
        config = {"metadata": {"name": name, "namespace": "strangers", "labels": marked},
                  "data": {"theirs": "yes"}}  # fmt: skip
        await admin.create(CONFIG_MAPS, config, "strangers")

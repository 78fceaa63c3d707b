"""The desired routes, from sessions, their jobs, the pods, and the live hubs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

import msgspec

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.history.job_record import read_known
from controller.jobs.history.pod_records import pod_at
from controller.jobs.spec.accepted import Vault
from controller.jobs.tools.plans import tool_at
from controller.sessions.routes import Reach, choose_hub, may_have_shell, route_of, service_at
from controller.sessions.statuses import status_of
from controller.store.database import FencedStore
from controller.store.errors import StoreError
from controller.store.instance import Hub
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.tools import ToolKey, runs_of, tools_at
from controller.store.sessions.session_rows import Session, assign_shell
from controller.volcano.observed import ObservedPod
from shared.routes.route import Route

MOST_RUNS: Final = 10_000
"""The most tool runs whose job is remembered, so that a pod's end is published at once."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desired:
    """A desired route, and its secret, which its ``repr`` leaves out.

    ``pods_of`` is the job, or the tool run, whose pod the route leads to.
    """

    route: Route
    password: str | None
    pods_of: str

    def __repr__(self) -> str:
        return f"Desired({self.route.sid})"


@dataclass(slots=True, eq=False, repr=False)
class DesiredRoutes:
    """Computes the desired routes, as the leader."""

    store: FencedStore
    """Holds the assignment of terminals to hubs."""
    _: KW_ONLY
    informer: InformerCache
    """The pods; it must be complete."""
    vault: Vault
    """Opens the passwords of desktops."""
    base_domain: str
    """The domain of the sessions' hosts."""
    rank_services: bool
    """Whether ports are reached only at the addresses of the ranks' Services."""
    positions: Mapping[str, int]
    """Queue positions of jobs, as far as they are known."""
    _job_of_run: dict[str, str] = field(default_factory=dict, init=False)

    def job_of(self, job_id: str) -> str:
        """Return the job whose sessions are affected by a change of the pods of *job_id*.

        It is another job if *job_id* is the run of a tool.
        """
        return self._job_of_run.get(job_id, job_id)

    async def of(
        self,
        sessions: Iterable[Session],
        records: Mapping[str, JobRecord],
        hubs: Mapping[str, Hub],
    ) -> dict[str, Desired]:
        """Return the desired routes of these sessions, by sid.

        A terminal is assigned to a hub in the store before its route is published.

        Raises:
            LeadershipLost: If another controller leads.
            StoreUnavailable: If the store does not respond.
        """
        desired: dict[str, Desired] = {}
        sessions = list(sessions)
        runs = await self._runs(sessions)
        for session in sessions:
            record = records.get(session.job_id)
            if record is not None:
                run = runs.get(_tool_of(session))
                made = await self._contained(session, record, run, hubs)
                if made is not None:
                    desired[session.sid] = made
        return desired

    async def _runs(self, sessions: Sequence[Session]) -> dict[ToolKey, JobRecord]:
        """Return the last run of each tool that one of the sessions leads to."""
        places = {_tool_of(one) for one in sessions if tool_at(one.endpoint) is not None}
        if not places:
            return {}
        async with self.store.read() as transaction:
            tools = await tools_at(transaction, places)
            found = await runs_of(transaction, tools.values())
        runs = {place: found[one.run] for place, one in tools.items() if one.run in found}
        self._job_of_run |= {run.id: place[0] for place, run in runs.items() if not run.is_final}
        while len(self._job_of_run) > MOST_RUNS:
            # The job's own reconcile publishes its tools' routes too, a little later.
            del self._job_of_run[next(iter(self._job_of_run))]
        return runs

    async def _contained(
        self,
        session: Session,
        record: JobRecord,
        run: JobRecord | None,
        hubs: Mapping[str, Hub],
    ) -> Desired | None:
        try:
            if tool_at(session.endpoint) is not None:
                return self._of_tool(session, record, run)
            return await self._of(session, record, hubs)
        except StoreError:
            raise
        except Exception:  # one broken row must not prevent all other routes
            log.exception("cannot compute the target of a session", extra={"sid": session.sid})
        try:
            # Not removed: a removal is final, and the session is live.
            return self._without_pod(session, record)
        except Exception:
            log.exception("cannot compute the route of a session", extra={"sid": session.sid})
            return None

    def _without_pod(self, session: Session, record: JobRecord) -> Desired | None:
        route = route_of(session, record=record, pod=None, hub=None, base_domain=self.base_domain)
        return None if route is None else Desired(route, None, record.id)

    def holds(self, desired: Desired) -> bool:
        """Return whether the route's pod, if it has one, still exists in the informer."""
        route = desired.route
        if route.target is None:
            return True
        # A terminal's target id has the hub before the pod.
        uid = (route.target.id or "").rpartition("/")[2]
        for pod in self.informer.pods.of_job(desired.pods_of):
            if pod.uid == uid:
                # A pod that is not ready may lack only another endpoint.
                return not pod.deleting and (pod.running or route.kind == "terminal")
        return False

    async def _of(
        self, session: Session, record: JobRecord, hubs: Mapping[str, Hub]
    ) -> Desired | None:
        job = read_known(record)
        pods = self.informer.pods.of_job(record.id)
        pod = pod_at(session.rank, job=job, record=record, pods=pods)
        hub = hubs.get(session.hub_id or "")
        if session.kind == "terminal" and pod is not None and may_have_shell(pod):
            assigned = await self._assigned(session, pod, hubs)
            if assigned is None:
                return None
            session, hub = assigned
        probed = job.probed_endpoint(pod.task) if pod is not None else None
        route = route_of(
            session,
            record=record,
            pod=pod,
            hub=hub,
            base_domain=self.base_domain,
            by=self._reach(session, record),
            probed_port=probed.port if probed is not None else None,
        )
        if route is None:
            return None
        ready = route.state == "ready"
        status = status_of(session, job=job, record=record, pod=pod, ready=ready)
        if status.phase == "queued":
            position = self.positions.get(record.id)
            status = msgspec.structs.replace(status, position=position)
        endpoint = job.interactive.get(session.endpoint or "")
        framed = endpoint is not None and endpoint.frame
        route = msgspec.structs.replace(route, status=status, frame=framed)
        name = endpoint.password.parameter if endpoint and endpoint.password else None
        return Desired(route, self._secret(record, name) if name else None, record.id)

    def _of_tool(
        self, session: Session, record: JobRecord, run: JobRecord | None
    ) -> Desired | None:
        """Return the route to the tool's pod; without one, the route says why."""
        if run is None or run.is_final or run.desired == "ended":
            # Another run may follow: the session stays until the tool is removed.
            waits = replace(
                record, reason="tool", message="the tool is not running", state="IN_QUEUE"
            )
            return self._without_pod(session, waits if record.state == "RUNNING" else record)
        job = read_known(run)
        pod = pod_at(0, job=job, record=run, pods=self.informer.pods.of_job(run.id))
        shown = replace(record, state=run.state, reason=run.reason, message=run.message)
        route = route_of(
            session,
            record=shown if not record.is_final else record,
            pod=pod,
            hub=None,
            base_domain=self.base_domain,
            by=self._reach(replace(session, rank=0), run),
            probed_port=session.port,
        )
        if route is None:
            return None
        status = status_of(session, job=job, record=run, pod=pod, ready=route.state == "ready")
        return Desired(msgspec.structs.replace(route, status=status), None, run.id)

    def _reach(self, session: Session, record: JobRecord) -> Reach:
        if not self.rank_services:
            return "pod"
        services = self.informer.services.of_job(record.id)
        return service_at(session.rank, record=record, services=services)

    async def _assigned(
        self, session: Session, pod: ObservedPod, hubs: Mapping[str, Hub]
    ) -> tuple[Session, Hub | None] | None:
        """Return the terminal with a live hub, assigned in the store before it is published.

        None if the session has ended meanwhile.
        """
        hub = hubs.get(session.hub_id or "")
        if hub is not None and session.pod_uid == pod.uid:
            return session, hub
        if not hubs:
            return session, None
        hub = hub or choose_hub(session.sid, hubs)
        async with self.store.write() as transaction:
            goes_on = await assign_shell(
                transaction, session.sid, hub_id=hub.id, pod=pod.name, pod_uid=pod.uid
            )
        if not goes_on:
            return None
        return replace(session, hub_id=hub.id, pod=pod.name, pod_uid=pod.uid), hub

    def _secret(self, record: JobRecord, name: str) -> str | None:
        if record.sealed is None:
            return None
        try:
            return self.vault.open(record.id, record.sealed).get(name)
        except StoreError as error:
            log.warning(
                "cannot open the sealed password", extra={"job": record.id, "why": str(error)}
            )
            return None


def _tool_of(session: Session) -> ToolKey:
    """Return the key of the tool that the session leads to, if it leads to one."""
    return session.job_id, tool_at(session.endpoint) or "", session.rank

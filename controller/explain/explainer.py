"""Checks every step on the way into a session once, with deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.explain.judgements import (
    Explanation,
    FindingView,
    RankEvidence,
    conclude,
    failed,
    judge_gateways,
    judge_grant,
    judge_hub,
    judge_job,
    judge_pod,
    judge_port,
    judge_probe,
    judge_route,
    judge_token,
    passed,
    refused_token,
)
from controller.explain.probe import Probed, probe
from controller.jobs.history.job_record import read_known
from controller.jobs.history.pod_records import pod_at
from controller.jobs.spec.model import Job
from controller.jobs.tools.plans import tool_at
from controller.kube.client import Kube
from controller.kube.errors import KubeError, NotFound
from controller.kube.kinds import PODS, SERVICES
from controller.loop_turn import LoopTurn
from controller.store.database import Store
from controller.store.instance import ALIVE_SECONDS, Heartbeat, read_heartbeats
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import PodRecord, pod_records_of
from controller.store.jobs.tools import runs_of, tools_at
from controller.store.sessions.revocations import revoked_at_members
from controller.store.sessions.session_rows import Session, find_session, live_sessions_of
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL, rank_service_name
from controller.volcano.observed import ObservedPod
from controller.volcano.parsing import read_pod, read_service
from shared.bus import BusInspector, BusStanding
from shared.errors import BusUnavailable, TokenRefused, UnreadableRoute
from shared.events import GrantRevoked
from shared.jose.jwks import KeySource
from shared.jose.jws import strict_json_object
from shared.reports import REPORT_SECONDS, GatewayReport
from shared.routes.route import RouteReader, Target
from shared.tokens import SessionClaims, peek, verify_session_token

READ_SECONDS: Final = 3.0
"""Deadline for reading Redis, and for reading the cluster."""
AT_ONCE: Final = 4
"""Concurrent explanations in one process; others wait."""
_SOON_SECONDS: Final = REPORT_SECONDS + 0.5
"""A gateway that keeps up has reported again within this time."""
_NEXT_HEARTBEAT_SECONDS: Final = 3.0
"""A hub that is alive has stored another heartbeat within this time."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """The store's facts about a job, and about one of its sessions."""

    record: JobRecord
    session: Session | None
    runs: Sequence[PodRecord]
    heartbeats: Sequence[Heartbeat]


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Explainer:
    """Explains sessions and jobs; both methods raise StoreUnavailable."""

    store: Store
    inspector: BusInspector
    kube: Kube
    keys: KeySource
    issuer: str
    """The ``iss`` of its tokens."""
    instance: str
    """This installation's name."""
    clock: Callable[[], float]
    """Unix seconds."""
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), init=False)
    _routes: RouteReader = field(default_factory=RouteReader, init=False)

    async def job(self, job_id: str) -> Explanation:
        """Explain a job by its newest live session, or by its pods if it has none."""
        async with self._turn:
            async with self.store.read() as transaction:
                live = await live_sessions_of(transaction, [job_id])
            if live:
                newest = max(live, key=lambda one: (one.created_at, one.sid))
                return await self._session(newest.sid, [], None)
            facts = await self._facts(job_id, None)
            if facts is None:
                unknown = self._unknown("job_unknown", f"The job {job_id[:64]} does not exist")
                return conclude([unknown], job=job_id, sid=None)
            findings = [judge_job(facts.record, None, now=self.clock())]
            if not facts.record.is_final:
                findings += await self._pods(facts)
            return conclude(findings, job=job_id, sid=None)

    async def session(self, sid: str | None, *, token: str | None = None) -> Explanation:
        """Explain a session, and whether *token* opens it; the default for *sid* is the token's."""
        async with self._turn:
            findings: list[FindingView] = []
            claims = None
            if token is not None:
                try:
                    named = peek(token)
                    sid = sid or named.sid
                    known = await self.keys.keys_for(named.kid)
                    claims = verify_session_token(
                        named, keys=known, issuer=self.issuer, now=self.clock()
                    )
                except TokenRefused as refused:
                    findings.append(self._refused(token, refused))
            if sid is None:
                return conclude(findings, job=None, sid=None)
            return await self._session(sid, findings, claims)

    def _refused(self, token: str, refused: TokenRefused) -> FindingView:
        now, ahead = self.clock(), None
        if refused.reason == "early":
            # The times are checked after the signature, so that they can be trusted.
            payload = strict_json_object(peek(token).parts.payload)
            ahead = max(payload["iat"], payload.get("nbf", 0)) - now
        return refused_token(refused, ahead=ahead, now=now)

    def _unknown(self, cause: str, seen: str) -> FindingView:
        return failed("job", cause, seen, self.clock())

    async def _session(
        self, sid: str, findings: list[FindingView], claims: SessionClaims | None
    ) -> Explanation:
        standing, error = await self._standing(sid, claims)
        async with self.store.read() as transaction:
            session = await find_session(transaction, sid)
        if claims is not None:
            used = standing.used if standing is not None else None
            now = self.clock()
            findings.append(judge_token(claims, sid=sid, session=session, used=used, now=now))
            findings.append(await self._grant(claims))
        facts = await self._facts(session.job_id, session) if session is not None else None
        if facts is None or session is None:
            findings.append(
                self._unknown("session_unknown", f"The session {sid[:64]} does not exist")
            )
            return conclude(findings, job=None, sid=sid)
        findings.append(judge_job(facts.record, session, now=self.clock()))
        if findings[-1].ok:
            findings += await self._from_route(session, facts, standing, error)
        return conclude(findings, job=session.job_id, sid=sid)

    async def _from_route(
        self, session: Session, facts: _Facts, standing: BusStanding | None, error: str
    ) -> list[FindingView]:
        tool = tool_at(session.endpoint)
        if tool is None:
            return await self._from_route_to_app(session, facts, standing, error)
        place = session.job_id, tool, session.rank
        async with self.store.read() as transaction:
            runs = await runs_of(transaction, (await tools_at(transaction, [place])).values())
        run = next(iter(runs.values()), None)
        beside = await self._facts(run.id, session) if run is not None else None
        if beside is None or beside.record.is_final:
            state, _ = self._read_route(session.sid, standing)
            seen = f"The tool {tool} is not running at rank {session.rank}"
            waits = failed("pod", "preparing", seen, self.clock())
            return [judge_route(standing, state, error, now=self.clock()), waits]
        # Its pod is checked like a job's.
        return await self._from_route_to_app(replace(session, rank=0), beside, standing, error)

    async def _grant(self, claims: SessionClaims) -> FindingView:
        members = [
            GrantRevoked.member_of(kid=claims.kid),
            GrantRevoked.member_of(jti=claims.jti),
            GrantRevoked.member_of(sid=claims.sid, sub=claims.sub),
            GrantRevoked.member_of(sid=claims.sid),
        ]
        async with self.store.read() as transaction:
            revoked = await revoked_at_members(transaction, members)
        return judge_grant(claims, revoked, now=self.clock())

    async def _facts(self, job_id: str, session: Session | None) -> _Facts | None:
        async with self.store.read() as transaction:
            record = await find_job(transaction, job_id)
            if record is None:
                return None
            runs = await pod_records_of(transaction, job_id)
            heartbeats = await read_heartbeats(transaction)
        return _Facts(record, session, runs, heartbeats)

    # Redis

    async def _standing(
        self, sid: str, claims: SessionClaims | None
    ) -> tuple[BusStanding | None, str]:
        jti = claims.jti if claims is not None else None
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self.inspector.standing(sid, jti=jti), ""
        except (BusUnavailable, TimeoutError) as error:
            return None, str(error) or "it does not respond in time"

    async def _reports(self) -> dict[str, GatewayReport] | None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self.inspector.gateways()
        except (BusUnavailable, TimeoutError):
            return None

    async def _gateways(
        self, standing: BusStanding
    ) -> tuple[FindingView, dict[str, GatewayReport]]:
        reports = await self._reports()
        found = judge_gateways(standing, reports or {}, now=self.clock())
        if found.cause == "gateway_behind":
            # The last change is not in any report yet.
            await asyncio.sleep(_SOON_SECONDS)
            reports = await self._reports()
            found = judge_gateways(standing, reports or {}, now=self.clock())
        return found, reports or {}

    # From the route to the app

    async def _from_route_to_app(
        self, session: Session, facts: _Facts, standing: BusStanding | None, error: str
    ) -> list[FindingView]:
        state, target = self._read_route(session.sid, standing)
        findings = [judge_route(standing, state, error, now=self.clock())]
        reports: dict[str, GatewayReport] = {}
        if standing is not None:
            found, reports = await self._gateways(standing)
            findings.append(found)
        try:
            pods = await self._list_pods(facts.record)
        except (KubeError, TimeoutError) as problem:
            return [*findings, self._no_cluster(problem)]
        job = read_known(facts.record)
        place = _place(job, facts, pods, session.rank, session.port)
        terminal = session.kind == "terminal"
        findings.append(judge_pod(facts.record, place, terminal=terminal, now=self.clock()))
        if terminal:
            return [*findings, await self._hub(session, facts.heartbeats, target)]
        if not findings[-1].ok:
            return findings
        failures = [
            (name, report.failing[session.sid])
            for name, report in reports.items()
            if session.sid in report.failing
        ]
        probed = await self._probe(session, facts.record, place, target)
        findings.append(judge_port(probed, place, failures, now=self.clock()))
        if probed is not None and probed.connected == "open" and session.kind == "web":
            findings.append(judge_probe(probed, failures, now=self.clock()))
        return findings

    def _read_route(
        self, sid: str, standing: BusStanding | None
    ) -> tuple[str | None, Target | None]:
        if standing is None or standing.route is None or standing.head is None:
            return None, None
        try:
            route = self._routes.read(sid, standing.route, epoch=standing.head.epoch)
        except UnreadableRoute:
            return None, None
        return route.state, route.target

    async def _hub(
        self, session: Session, heartbeats: Sequence[Heartbeat], target: Target | None
    ) -> FindingView:
        """Return whether the hub that the route leads to responds, or else whether one is alive."""
        own = (one.hub for one in heartbeats if one.hub.id == session.hub_id)
        hub = next(own, None)
        if hub and target and (target.host, target.port) == (hub.host, hub.port):
            return judge_hub(await probe(hub.host, hub.port), hub.id, now=self.clock())
        if await self._any_hub_alive(heartbeats):
            return passed("port", "no shell is assigned yet", self.clock(), ok=None)
        return failed("port", "hub_gone", "No terminal hub is alive", self.clock())

    async def _any_hub_alive(self, heartbeats: Sequence[Heartbeat]) -> bool:
        now = self.clock()
        if any(abs(now - one.seen_at) < ALIVE_SECONDS for one in heartbeats):
            return True
        if not heartbeats:
            return False
        # The hubs' clocks may differ from this one's: only the next heartbeat tells.
        await asyncio.sleep(_NEXT_HEARTBEAT_SECONDS)
        async with self.store.read() as transaction:
            return bool({*await read_heartbeats(transaction)} - {*heartbeats})

    async def _probe(
        self, session: Session, record: JobRecord, place: RankEvidence, target: Target | None
    ) -> Probed | None:
        """Connect to the route's target if it is the pod's address according to the API server.

        Redis alone must not make the controller connect to an arbitrary address.
        """
        if target is None or target.port != session.port or place.pod is None:
            return None
        if target.host != place.pod.address and target.host != await self._service(
            record, session.rank
        ):
            return None
        path = session.base_path if session.kind == "web" and target.scheme == "http" else None
        name = f"{target.host}:{target.port}"
        return await probe(target.host, target.port, path=path, name=name)

    async def _service(self, record: JobRecord, rank: int) -> str | None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                given = await self.kube.get(
                    SERVICES, rank_service_name(record.id, rank), record.namespace
                )
        except (KubeError, TimeoutError):
            return None
        service = read_service(given)
        return service.address if record.uid in service.owners else None

    # The cluster

    async def _list_pods(self, record: JobRecord) -> list[ObservedPod]:
        labels = f"{INSTANCE_LABEL}={self.instance},{JOB_LABEL}={record.id}"
        async with asyncio.timeout(READ_SECONDS):
            try:
                found = await self.kube.list(PODS, record.namespace, labels=labels)
            except NotFound:
                return []
        return [read_pod(one) for one in found]

    async def _pods(self, facts: _Facts) -> list[FindingView]:
        """Return the finding of the first rank that fails; else that of the first rank."""
        try:
            pods = await self._list_pods(facts.record)
        except (KubeError, TimeoutError) as error:
            return [self._no_cluster(error)]
        job = read_known(facts.record)
        found, turn = list[FindingView](), LoopTurn()
        for rank in range(job.ranks):
            place = _place(job, facts, pods, rank, None)
            found.append(judge_pod(facts.record, place, terminal=False, now=self.clock()))
            if not found[-1].ok:
                return [found[-1]]
            probed = job.probed_endpoint(job.task_of(rank) or "")
            if probed is not None and place.pod is not None and not place.pod.answers:
                place = replace(place, port=probed.port)
                return [found[-1], judge_port(None, place, (), now=self.clock())]
            await turn.rest()
        return found[:1]

    def _no_cluster(self, error: Exception) -> FindingView:
        why = str(error) or "it does not respond in time"
        seen = f"The API server is unavailable ({why})"
        return failed("pod", "cluster_unavailable", seen, self.clock())


def _place(
    job: Job, facts: _Facts, pods: Sequence[ObservedPod], rank: int, port: int | None
) -> RankEvidence:
    task = next((one for one in job.effective_tasks if one.name == job.task_of(rank)), None)
    pod = pod_at(rank, job=job, record=facts.record, pods=pods)
    uid = pod.uid if pod is not None else None
    earlier = [one for one in facts.runs if one.rank == rank and one.pod_uid != uid]
    image = task.image if task is not None else ""
    return RankEvidence(rank=rank, image=image or "", pod=pod, earlier=earlier, port=port)

"""Assembles the parts of one gateway process. :mod:`gateway.serving` starts and ends it.

::

    Redis ──▶ Follower ──▶ ConnectionRegistry ──▶ ends connections
                │
    browser ──▶ DataPath ──▶ apps, Bridges ──▶ desktops and terminals
                 └─────────▶ pages (aiohttp)

With several workers, :mod:`gateway.workers` runs one of these in each worker process.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, Self

from aiohttp import web

from gateway.assertion_keys import AssertionKeyFile
from gateway.bus.follower import Follower
from gateway.bus.head_policy import HeadPolicy
from gateway.bus.metrics import describe
from gateway.bus.own_thread import ReaderWithOwnThread
from gateway.core.access.access_right import BUS_LOST
from gateway.core.access.assertions import Assertions
from gateway.core.access.explain import Conditions, explain
from gateway.core.access.grants import GrantKeys
from gateway.core.bus_state import BusClock
from gateway.core.http.heads import MAX_FIELDS, MAX_HEAD_BYTES
from gateway.core.limits.overload import Overload, Step
from gateway.core.limits.rates import Rate, RefusalRate
from gateway.credentials.session_tokens import BearerTokens, SessionTokens, SignatureChecks
from gateway.credentials.sign_outs import SignOuts
from gateway.live import ConnectionRegistry
from gateway.observers.audit_log import AuditLog
from gateway.observers.reporter import Activities, RecentFailures, Reporter
from gateway.overload import OverloadWatch, ResidentMemory, make_trim, memory_limit, worker_bound
from gateway.pages.app import make_pages
from gateway.pages.assets import Assets, Inside, Linked
from gateway.pages.documents import Documents
from gateway.pages.errors import PageErrors
from gateway.pages.open import OpenPage
from gateway.pages.responses import Responses
from gateway.pages.session import SessionPages
from gateway.pages.sign_out import SignOutPage
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.bridge.terminal import TerminalBridge
from gateway.relay.bridge.vnc import VncBridge
from gateway.relay.context import BridgeFactory, UpgradeRequest
from gateway.relay.dial import Dialler, make_upstream_tls
from gateway.relay.gateway import DataPath
from gateway.relay.meters import Meters
from gateway.settings import Settings
from gateway.tls import Certificates, ReloadedFiles
from shared.bus import Keys, ReportWriter, SignOutWriter, connect
from shared.jose.jwks import KeySource
from shared.jose.jws import verified_payload
from shared.link import AttachTokens, Seal
from shared.networks import Bounds
from shared.routes.route import Kind, RouteReader
from shared.routes.signed_table import TableVerifier
from shared.version import VERSION

_PROCESS_BYTES: Final = 6
_OPENS_OF_SESSION_PER_MINUTE: Final = 3
"""For one address: enough for a person who follows a link and tries again."""
_SIGN_OUTS_PER_MINUTE: Final = 20
"""For one user of one session: each sign-out makes work for the controller."""
_PAGES_SECONDS: Final = 1.0
_MIN_HEAD_AGE_SECONDS: Final = 5.0
"""A signed head is renewed every second; up to this age the controller is not silent."""


class Gateway:
    """All parts of one process that serves browsers; make and enter it inside the running loop.

    Args:
        tell_workers: Called with session and token id of each sign-out, for the other workers.
    """

    def __init__(
        self,
        settings: Settings,
        assets: Assets,
        *,
        tell_workers: Callable[[str, str], None] = lambda _sid, _jti: None,
    ) -> None:
        self.settings = settings
        self.draining = False
        self.meters = Meters()
        self.refusals = RefusalRate(
            settings.limits.address_refusals_per_second, clock=time.monotonic
        )
        self.overload = Overload(
            worker_bound(
                settings.limits.worker_memory_bytes,
                workers=settings.workers,
                limit=memory_limit(),
            )
        )
        self._rates: list[Rate] = []
        """The rate limits of the pages."""
        loop = asyncio.get_running_loop()
        self.reader = ReaderWithOwnThread(
            lambda: connect(settings.redis_url), Keys(settings.instance)
        )
        redis, names = self.reader.redis, Keys(settings.instance)
        self.follower = self._make_follower()
        limits = settings.limits
        self.sign_outs = SignOuts(
            follower=self.follower,
            writer=SignOutWriter(redis, names),
            tell_workers=tell_workers,
        )
        process = secrets.token_hex(_PROCESS_BYTES)
        self.audit = AuditLog(issuer=settings.token_issuer, process=process, wall=time.time)
        self.activities = Activities()
        self.failures = RecentFailures(wall=time.time)
        self.reporter = Reporter(
            writer=ReportWriter(redis, names, process),
            follower=self.follower,
            activities=self.activities,
            failures=self.failures,
            version=VERSION,
            wall=time.time,
        )
        self.live = ConnectionRegistry(
            table=lambda: self.follower.table,
            wall=time.time,
            loop=loop,
            max_per_session=limits.session_connections,
            max_per_user=limits.user_connections,
            max_per_address=limits.address_connections,
            trusted=settings.site.trusted_proxies,
            observers=(self.audit.attachments, self.activities),
        )
        self.checks = SignatureChecks(
            of_address=limits.address_checks_per_second,
            of_all=limits.checks_per_second,
            queued=limits.checks_queued,
            clock=time.monotonic,
        )
        self._measure_limits()
        self._measure_reports()
        self.keys = KeySource(settings.token_jwks, clock=time.monotonic)
        self.tokens = SessionTokens(
            keys=self.keys,
            issuer=settings.token_issuer,
            reader=self.reader,
            follower=self.follower,
            wall=time.time,
            checks=self.checks,
        )
        self.grants = GrantKeys(settings.grant_keys)
        self.assertion_keys = _assertion_keys(settings)
        documents = Documents(Linked(assets))
        self.errors = PageErrors(
            Inside(assets),
            frame_ancestors=settings.site.frame_ancestors,
            home=settings.home,
            orchestrator=settings.orchestrator_url,
        )
        self.pages = web.AppRunner(
            self._make_pages(assets, documents),
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,  # a page ends when its browser disconnects
            shutdown_timeout=_PAGES_SECONDS,
            auto_decompress=False,  # the limit of 16 KiB counts raw bytes; no form is compressed
            # The gateway has checked the head. aiohttp's default of 8 KiB a field is too low for
            # cookies.
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=2 * MAX_FIELDS,
        )
        self.certificates = _certificates(settings)
        self.dialler = Dialler(
            networks=settings.upstream_networks,
            refused=settings.refused_networks,
            loop=loop,
            dial_seconds=limits.dial_seconds,
            trust=make_upstream_tls(settings.upstream_ca_file),
        )
        self.path = self._make_data_path(loop)
        self.memory = ResidentMemory()
        self.shedding = OverloadWatch(
            overload=self.overload,
            data_path=self.path,
            measure=self.memory.read,
            trim=make_trim(),
            tidy=self._tidy,
            routes=lambda: len(self.follower.table or ()),
        )

    async def __aenter__(self) -> Self:
        """Be ready for connections."""
        await self.pages.setup()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Reset open connections, and close everything."""
        try:
            await self.path.close()
            self.audit.close()
        finally:
            await self.pages.cleanup()
            self.checks.close()
            self.memory.close()
            await self.reader.aclose()

    def _make_follower(self) -> Follower:
        settings, keys = self.settings, self.settings.route_keys
        policy = HeadPolicy(
            None if keys is None else TableVerifier(keys, instance=settings.instance),
            wall=time.time,
            monotonic=time.monotonic,
            max_age_seconds=max(_MIN_HEAD_AGE_SECONDS, settings.controller_grace_seconds),
        )
        clock = BusClock(
            bus_grace_seconds=settings.bus_grace_seconds,
            controller_grace_seconds=settings.controller_grace_seconds,
        )
        return Follower(
            self.reader,
            RouteReader(None if keys is None else lambda token: verified_payload(token, keys)),
            clock=clock,
            monotonic=time.monotonic,
            wall=time.time,
            random=random.random,
            on_change=lambda sids: self.live.review(sids),
            on_closed=lambda: self.live.end_all(BUS_LOST),
            policy=policy,
        )

    def _measure_limits(self) -> None:
        limits, checks, meters = self.settings.limits, self.checks, self.meters
        meters.gauge(
            "connections_limit",
            "Maximum number of open connections; 0 for no limit.",
            lambda: limits.connections,
        )
        meters.counter(
            "checks_queued", "Signature checks that waited for a thread.", lambda: checks.queued
        )
        meters.counter(
            "checks_refused",
            "Signature checks refused because the queue was full.",
            lambda: checks.refused,
        )

    def _measure_reports(self) -> None:
        reporter, sign_outs, meters = self.reporter, self.sign_outs, self.meters
        meters.counter("sign_outs", "Grants that users have ended.", lambda: sign_outs.ended)
        meters.gauge(
            "sign_outs_pending",
            "Sign-outs that could not be sent to the controller yet.",
            lambda: sign_outs.pending,
        )
        meters.counter(
            "activities_written",
            "Activities of sessions written to Redis.",
            lambda: reporter.written,
        )
        meters.counter(
            "reports_skipped",
            "Rounds of reports that could not be written to Redis completely.",
            lambda: reporter.skipped,
        )
        meters.gauge(
            "activities_waiting",
            "Activities of sessions queued to be written to Redis.",
            lambda: reporter.waiting,
        )

    @property
    def reloaded_files(self) -> list[ReloadedFiles]:
        """The files that are reloaded when they change."""
        return [files for files in (self.certificates, self.assertion_keys) if files is not None]

    @property
    def assertions(self) -> Assertions | None:
        """The signer of identity assertions for apps; None if that is off."""
        return None if self.assertion_keys is None else self.assertion_keys.assertions

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of new connections; None without TLS."""
        return None if self.certificates is None else self.certificates.context

    def _rate(self, per_minute: int) -> Rate:
        made = Rate(per_minute, 60.0, clock=time.monotonic)
        self._rates.append(made)
        return made

    def _tidy(self) -> None:
        self.refusals.tidy()
        self.checks.tidy()
        for rate in self._rates:
            rate.tidy()

    def _make_pages(self, assets: Assets, documents: Documents) -> web.Application:
        settings = self.settings
        limits = settings.limits
        responses = Responses(
            documents=documents,
            errors=self.errors,
            site=settings.site,
            meters=self.meters,
            refusals=self.refusals,
            audit=self.audit,
            home=settings.home,
        )
        open_page = OpenPage(
            open_origins=settings.open_origins,
            tokens=self.tokens,
            grants=self.grants,
            responses=responses,
            parts=Inside(assets, ("open.js",)),
            of_address=self._rate(limits.address_opens_per_minute),
            of_session=self._rate(_OPENS_OF_SESSION_PER_MINUTE),
            of_user=self._rate(limits.user_opens_per_minute),
        )
        assertions = self.assertions
        session = SessionPages(
            responses=responses,
            assets=assets,
            wall=time.time,
            public_keys=None if assertions is None else lambda: assertions.jwks,
            orchestrator=settings.orchestrator_url,
            end_notice_seconds=settings.end_notice_seconds,
            waiting=self.activities.waiting,
        )
        sign_out = SignOutPage(
            responses=responses,
            sign_outs=self.sign_outs,
            of_address=self._rate(limits.address_opens_per_minute),
            of_user=self._rate(_SIGN_OUTS_PER_MINUTE),
        )
        return make_pages(open_page, session, sign_out, responses)

    def _make_data_path(self, loop: asyncio.AbstractEventLoop) -> DataPath:
        return DataPath(
            loop=loop,
            site=self.settings.site,
            holder=self.follower,
            grants=self.grants,
            bearer=BearerTokens(self.tokens),
            live=self.live,
            background_tasks=BackgroundTasks(),
            dialler=self.dialler,
            make_page=self._make_page,
            bridges=self._make_bridges(),
            assertions=self.assertions,
            errors=self.errors,
            limits=self.settings.limits,
            meters=self.meters,
            refusals=self.refusals,
            overload=self.overload,
            audit=self.audit,
            failures=self.failures,
            end_notice_seconds=self.settings.end_notice_seconds,
        )

    def _make_page(self) -> asyncio.Protocol:
        """Return a fresh aiohttp protocol for one request."""
        server = self.pages.server
        if server is None:
            raise RuntimeError("the gateway was not entered")
        return server()

    def _make_bridges(self) -> dict[Kind, BridgeFactory]:
        seal = Seal(*self.settings.link_keys)
        attach = AttachTokens(self.settings.link_keys[0])

        def terminal(request: UpgradeRequest) -> TerminalBridge:
            return TerminalBridge(
                request, tokens=attach, wall=time.time, nonce=secrets.token_urlsafe
            )

        return {"vnc": lambda request: VncBridge(request, seal), "terminal": terminal}

    def describe(self, host: str | None) -> dict[str, Any]:
        """Return a description of the table, and of *host* in it, without secrets."""
        description = describe(self.follower)
        if host is not None:
            bounds = Bounds(self.settings.upstream_networks, self.settings.refused_networks)
            conditions = Conditions(
                bus=self.follower.bus,
                dialling=self.follower.dialling,
                bounds=bounds,
                now=time.time(),
                failing=self.failures.recent(),
            )
            description["host"] = explain(host, self.follower.table, conditions)
        return description

    def reasons(self) -> list[str]:
        """Return why this process is not ready; nothing if it is."""
        reasons = ["draining"] if self.draining else []
        if self.path.connection_quota.full:
            reasons.append("the limit of connections is reached")
        if self.overload.step is Step.REQUESTS:
            reasons.append("short of memory")
        if self.follower.table is None:
            reasons.append("no route table could be read yet")
        elif not self.follower.serving:
            reasons.append("the bus has been lost for longer than its grace")
        if not self.follower.serving and self.follower.last_error is not None:
            reasons.append(self.follower.last_error)
        if self.follower.unserved_reason is not None:
            reasons.append(self.follower.unserved_reason)
        if not self.keys.keys:
            reasons.append("no key of the token issuer could be read yet")
        return reasons

    def degraded(self) -> list[str]:
        """Return the part of its work that this process cannot do although it is ready."""
        return list(self.reporter.problems)


def _certificates(settings: Settings) -> Certificates | None:
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    return Certificates(settings.tls_cert_file, settings.tls_key_file)


def _assertion_keys(settings: Settings) -> AssertionKeyFile | None:
    if settings.assertion_key_file is None:
        return None
    site = settings.site
    return AssertionKeyFile(settings.assertion_key_file, issuer=site.origin_of(site.base))

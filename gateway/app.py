"""The gateway, assembled: what each part is given, and in which order they start and end.

::

    Redis ──▶ Feed ──▶ Live ──▶ ends connections
               │
    browser ──▶ DataPath ──▶ apps, Bridges ──▶ desktops and terminals
                 └─────────▶ pages (aiohttp)

With one process the feed is a follower. With several, :mod:`gateway.workers` puts one supervisor
with the follower above as many of these, and each has a feed from there.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aiohttp import web

from gateway.bearer import Bearers
from gateway.checking import Checks
from gateway.core.bus_state import BusClock
from gateway.core.grants import GrantKeys
from gateway.core.passage import BUS_LOST
from gateway.core.rates import Rate
from gateway.feed import Changed, Feed
from gateway.follower import Follower
from gateway.live import Live
from gateway.measures import FeedMeters, make_debug_route
from gateway.pages.answers import Answers
from gateway.pages.app import make_pages
from gateway.pages.assets import Assets
from gateway.pages.documents import Documents
from gateway.pages.errors import PageErrors
from gateway.pages.open import OpenPage
from gateway.pages.session import SessionPages
from gateway.relay.bridge import Bridge, BridgeFactory, UpgradeRequest
from gateway.relay.dial import Dialler, make_trust
from gateway.relay.draining import drain
from gateway.relay.errands import Errands
from gateway.relay.gateway import DataPath, Parts
from gateway.relay.listening import Listener, bind
from gateway.relay.sockets import BridgeParts
from gateway.relay.terminal import TerminalBridge
from gateway.relay.vnc import VncBridge
from gateway.session_tokens import SessionTokens
from gateway.settings import Address, Settings, make_tls_context
from shared.bus import BusReader, Keys, connect
from shared.events import Event
from shared.jwks import KeySource
from shared.jws import verified_payload
from shared.link import AttachTokens, Seal
from shared.metrics import listening, make_ops_app, make_registry
from shared.process import join_address, write_address_file
from shared.routes import Kind, RouteReader

log = logging.getLogger(__name__)

_PAGES_SECONDS: Final = 1.0


def make_bus_clock(settings: Settings) -> BusClock:
    """Return what remembers how the bus stands."""
    return BusClock(
        bus_grace_seconds=settings.bus_grace_seconds,
        controller_grace_seconds=settings.controller_grace_seconds,
    )


def make_follower(
    settings: Settings,
    reader: BusReader,
    *,
    clock: BusClock,
    on_change: Changed,
    on_closed: Callable[[], None],
    on_event: Callable[[Event], None] | None = None,
) -> Follower:
    """Return the feed that reads Redis."""
    keys = settings.route_keys
    return Follower(
        reader,
        RouteReader(None if keys is None else lambda token: verified_payload(token, keys)),
        clock=clock,
        monotonic=time.monotonic,
        wall=time.time,
        random=random.random,
        on_change=on_change,
        on_closed=on_closed,
        on_event=on_event,
    )


MakeFeed = Callable[[BusReader, Changed, Callable[[], None]], Feed]
"""Given a reader, and whom to tell of changes and that the bus is closed."""


class Gateway:
    """All parts of one process that serves browsers; make it inside the running loop."""

    def __init__(self, settings: Settings, assets: Assets, make_feed: MakeFeed) -> None:
        self.settings = settings
        self.draining = False
        self.path: DataPath | None = None
        loop = asyncio.get_running_loop()
        self.redis = connect(settings.redis_url)
        reader = BusReader(self.redis, Keys(settings.instance))
        self.feed = make_feed(reader, self._changed, self._closed)
        limits = settings.limits
        self.live = Live(
            table=lambda: self.feed.table,
            wall=time.time,
            loop=loop,
            most_of_session=limits.session_connections,
            most_of_user=limits.user_connections,
        )
        self.checks = Checks(
            of_address=limits.address_checks_per_second,
            of_all=limits.checks_per_second,
            queued=limits.checks_queued,
            clock=time.monotonic,
        )
        self.keys = KeySource(settings.token_jwks, clock=time.monotonic)
        self.tokens = SessionTokens(
            keys=self.keys,
            issuer=settings.token_issuer,
            reader=reader,
            feed=self.feed,
            wall=time.time,
            checks=self.checks,
        )
        self.grants = GrantKeys(settings.grant_keys)
        documents = Documents(assets)
        self.errors = PageErrors(
            documents,
            frame_ancestors=settings.site.frame_ancestors,
            home=_home(settings),
        )
        self.pages = self._make_pages(assets, documents)
        self.dialler = Dialler(
            networks=settings.upstream_networks,
            refused=settings.refused_networks,
            loop=loop,
            dial_seconds=limits.dial_seconds,
            trust=make_trust(settings.upstream_ca_file),
        )

    def _changed(self, sids: Iterable[str] | None) -> None:
        self.live.review(sids)

    def _closed(self) -> None:
        self.live.end_all(BUS_LOST)

    def _make_pages(self, assets: Assets, documents: Documents) -> web.Application:
        settings = self.settings
        limits = settings.limits
        answers = Answers(documents, self.errors, frame_ancestors=settings.site.frame_ancestors)
        open_page = OpenPage(
            site=settings.site,
            open_origins=settings.open_origins,
            tokens=self.tokens,
            feed=self.feed,
            grants=self.grants,
            answers=answers,
            wall=time.time,
            of_address=Rate(limits.address_opens_per_minute, 60.0, clock=time.monotonic),
            of_user=Rate(limits.user_opens_per_minute, 60.0, clock=time.monotonic),
        )
        session = SessionPages(answers=answers, assets=assets, wall=time.time)
        return make_pages(open_page, session, answers)

    def make_data_path(self, pages: web.Server) -> DataPath:
        """Return the data path that hands its own requests to *pages*."""
        self.path = DataPath(
            Parts(
                loop=asyncio.get_running_loop(),
                site=self.settings.site,
                world=self.feed,
                grants=self.grants,
                bearer=Bearers(self.tokens, wall=time.time),
                live=self.live,
                errands=Errands(),
                dialler=self.dialler,
                pages=pages,
                bridges=self._make_bridges(),
                errors=self.errors,
                limits=self.settings.limits,
            )
        )
        return self.path

    def _make_bridges(self) -> dict[Kind, BridgeFactory]:
        parts = BridgeParts(
            dialler=self.dialler,
            world=self.feed,
            errors=self.errors,
            limits=self.settings.limits,
        )
        seal = Seal(self.settings.link_key)
        attach = AttachTokens(self.settings.link_key)

        def terminal(request: UpgradeRequest) -> Bridge:
            return TerminalBridge(
                request, parts, tokens=attach, wall=time.time, nonce=secrets.token_urlsafe
            )

        return {"vnc": lambda request: VncBridge(request, parts, seal), "terminal": terminal}

    def reasons(self) -> list[str]:
        """Return why nothing should be sent here: for readiness."""
        reasons = ["draining"] if self.draining else []
        if self.path is not None and self.path.places.full:
            reasons.append("no place for another connection")
        if self.feed.table is None:
            reasons.append("no route table could be read yet")
        elif not self.feed.serving:
            reasons.append("the bus has been lost for longer than its grace")
        if not self.keys.keys:
            reasons.append("no key of the token issuer could be had yet")
        return reasons


def _home(settings: Settings) -> str | None:
    """Return where links come from: the issuer's origin, when it is a web site's."""
    issuer = settings.token_issuer
    return next((one for one in settings.open_origins if issuer.startswith(one)), None)


async def serve(settings: Settings, assets: Assets, *, stop: asyncio.Event) -> None:
    """Serve until *stop* is set, then drain and return.

    Raises:
        OSError: If an address cannot be taken.
    """

    def follow(reader: BusReader, on_change: Changed, on_closed: Callable[[], None]) -> Feed:
        clock = make_bus_clock(settings)
        return make_follower(
            settings, reader, clock=clock, on_change=on_change, on_closed=on_closed
        )

    gateway = Gateway(settings, assets, follow)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(gateway.redis.aclose)
        stack.callback(gateway.checks.close)
        # The addresses first: who cannot take them has nothing to follow the bus for.
        path, listener = await stack.enter_async_context(_listening(gateway))
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(gateway.feed.run()),
                tasks.create_task(gateway.keys.keep_fresh()),
            ]
            await stop.wait()
            gateway.draining = True
            listener.close()
            await drain(path, seconds=settings.drain_seconds, random=random.random)
            for task in background:
                task.cancel()


@asynccontextmanager
async def _listening(gateway: Gateway) -> AsyncIterator[tuple[DataPath, Listener]]:
    settings = gateway.settings
    # Cancelled with its browser, so that a page does not go on for nobody.
    runner = web.AppRunner(
        gateway.pages,
        handle_signals=False,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_PAGES_SECONDS,
    )
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("aiohttp made no server")
        path = gateway.make_data_path(runner.server)
        registry = make_registry()
        registry.register(path.meters)
        registry.register(FeedMeters(gateway.feed))
        ops = make_ops_app(registry, gateway.reasons, [make_debug_route(gateway.feed)])
        async with listening(ops, settings.ops_listen) as ops_address:
            listener = _listen(path, settings)
            try:
                _announce(settings, listener, ops_address)
                yield path, listener
            finally:
                listener.close()
                await path.close()
    finally:
        await runner.cleanup()


def _listen(path: DataPath, settings: Settings) -> Listener:
    tls = None
    if settings.tls_cert_file is not None and settings.tls_key_file is not None:
        tls = make_tls_context(settings.tls_cert_file, settings.tls_key_file)
    return Listener(path, [bind(*settings.listen)], tls=lambda: tls)


def _announce(settings: Settings, listener: Listener, ops: Address) -> None:
    addresses = {"public": join_address(*listener.address), "ops": join_address(*ops)}
    log.info("listening", extra=addresses)
    write_address_file(settings.address_file, addresses)

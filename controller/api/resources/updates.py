"""``/v1/updates``: everything that becomes of any job, in order, to be read from any point on."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field

from controller.api.error_responses import ApiError
from controller.api.operations import EVENTS, JSON, offered
from controller.api.parts import ApiParts
from controller.api.requests import (
    DEFAULT_LIMIT,
    EVENT_NUMBER,
    Limit,
    Number,
    Query,
    last_event_id,
)
from controller.api.response_models import Update, UpdatePage
from controller.api.server_sent_events import KEEP_ALIVE_SECONDS, EventStream
from controller.store.errors import StoreUnavailable
from controller.store.outbox import update_rows as updates
from controller.store.outbox.update_rows import Forgotten, last_update, updates_after

LOOK_SECONDS: Final = 1.0
"""Without news: they may be lost, and other processes on one SQLite file tell none."""
TOGETHER_SECONDS: Final = 0.05
"""So that a burst is read in pages, and not one by one by every follower."""
PAGE: Final = 500


class UpdatesQuery(Query):
    """From where on; without it, what happens from now on. ``limit`` is of pages alone.

    A page is for clients that cannot choose by ``Accept``: OpenAPI has generated ones not set it.
    """

    after: Number | None = None
    limit: Limit = DEFAULT_LIMIT
    follow: bool = Field(True, description="`false`: one page, whatever `Accept` says.")


@offered(
    "GET",
    "/v1/updates",
    "followUpdates",
    "Follow what becomes of jobs",
    headers={"Last-Event-ID": EVENT_NUMBER},
    media=(EVENTS, JSON),
    errors=("forgotten", "too_many_streams"),
)
async def follow(
    api: ApiParts, request: web.Request, wanted: UpdatesQuery
) -> Annotated[web.StreamResponse | UpdatePage, UpdatePage]:
    """Send each update once, in order; a client that asks for JSON gets one page."""
    after = last_event_id(request, wanted.after)
    if not wanted.follow or _wants_page(request.headers.get("Accept", "")):
        return await _page(api, after or 0, wanted.limit)
    # Looked for before the answer begins: what is wrong with it has a status of its own.
    after = await _where(api, after)
    return await api.streams.run(request, EVENTS, partial(_send, api, after=after))


async def _page(api: ApiParts, after: int, limit: int) -> UpdatePage:
    found = await _after(api, after, limit)
    return UpdatePage(items=shown(found), next=found[-1].id if found else after)


async def _where(api: ApiParts, after: int | None) -> int:
    if after is None:
        async with api.store.read() as transaction:
            return await last_update(transaction)
    await _after(api, after, 1)
    return after


async def _after(api: ApiParts, number: int, limit: int) -> list[updates.UpdateRow]:
    async with api.store.read() as transaction:
        try:
            return await updates_after(transaction, number, limit=limit)
        except Forgotten as gone:
            raise _forgotten(gone) from None


async def _send(api: ApiParts, stream: EventStream, *, after: int) -> None:
    """Send what comes after *after* until the reader is gone.

    A page is read only when the one before was taken: a reader that is slow keeps no more
    than that in memory, and one that takes nothing is cut off.
    """
    quiet_since = time.monotonic()
    while True:
        news = api.news.next
        try:
            found = await _after(api, after, PAGE)
        except StoreUnavailable:
            return  # it connects again, and goes on where it was
        except ApiError as error:
            await stream.event("forgotten", error.details)
            return
        for one in shown(found):
            await stream.event("update", one.model_dump(mode="json"), number=one.id)
            after, quiet_since = one.id, time.monotonic()
        if not found:
            if time.monotonic() - quiet_since >= KEEP_ALIVE_SECONDS:
                await stream.keep_alive()
                quiet_since = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, KEEP_ALIVE_SECONDS)):
                    await news.wait()
        await asyncio.sleep(TOGETHER_SECONDS if len(found) < PAGE else 0)


def _wants_page(accept: str) -> bool:
    """Say whether JSON is preferred to events, which whoever takes anything gets.

    Of two media types with the same weight it is the first one (RFC 9110, section 12.5.1).
    """
    preferred = dict[str, tuple[float, int]]()
    for place, part in enumerate(accept.lower().split(",")):
        media, *parameters = (one.strip() for one in part.split(";"))
        if (weight := _weight(parameters)) > 0:
            preferred.setdefault(media, (-weight, place))
    page = preferred.get(JSON)
    return page is not None and page < preferred.get(EVENTS, (inf, 0))


def _weight(parameters: Sequence[str]) -> float:
    text = next((one[2:] for one in parameters if one.startswith("q=")), "1")
    return float(text) if re.fullmatch(r"[01](\.[0-9]{0,3})?", text, re.ASCII) else 1.0


def shown(found: Sequence[updates.UpdateRow]) -> list[Update]:
    """Return updates as the API shows them."""
    return [Update.model_validate(one) for one in found]


def render_update(one: updates.UpdateRow) -> bytes:
    """Return an update as an item of a page is: JSON."""
    return json.dumps(
        Update.model_validate(one).model_dump(mode="json"), separators=(",", ":")
    ).encode()


def _forgotten(gone: Forgotten) -> ApiError:
    message = "Some of these updates are not known: look at the jobs, and follow from there."
    return ApiError("forgotten", message, {"through": gone.through})

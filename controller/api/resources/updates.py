"""``/v1/updates``: the updates of all jobs in order, readable from any position."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field

from controller.api.error_responses import ApiError
from controller.api.operations import EVENTS, JSON, operation
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
from controller.api.server_sent_events import (
    KEEP_ALIVE_SECONDS,
    EventStream,
    StreamSource,
    encode_event,
)
from controller.store.errors import StoreUnavailable
from controller.store.outbox import update_rows as updates
from controller.store.outbox.update_rows import Forgotten, read_counter, updates_after

POLL_SECONDS: Final = 1.0
"""Poll interval: notifications may be lost, and SQLite has none between processes."""
COALESCE_SECONDS: Final = 0.05
"""Followers pause for this time after an update, so that a burst is read in pages."""
PAGE: Final = 500
IN_A_TURN: Final = 50
"""The updates that a stream encodes in its turn, in 2 ms."""


class UpdatesQuery(Query):
    """The position to begin after; by default the present. ``limit`` applies to pages only.

    ``follow`` is for clients that cannot set ``Accept``, as those generated from OpenAPI.
    """

    after: Number | None = None
    limit: Limit = DEFAULT_LIMIT
    follow: bool = Field(True, description="`false`: return one page, whatever `Accept` says.")


@operation(
    "GET",
    "/v1/updates",
    "followUpdates",
    "Follow the updates of all jobs",
    headers={"Last-Event-ID": EVENT_NUMBER},
    media=(EVENTS, JSON),
    errors=("forgotten", "too_many_streams"),
)
async def follow(
    api: ApiParts, request: web.Request, query: UpdatesQuery
) -> Annotated[web.StreamResponse | UpdatePage, UpdatePage]:
    """Send each update once, in order; a client that prefers JSON gets one page."""
    after = last_event_id(request, query.after)
    if not query.follow or _wants_page(request.headers.get("Accept", "")):
        return await _page(api, after or 0, query.limit)
    # Checked before the response begins, while an error can still have its own status.
    after = await _where(api, after)
    source = StreamSource(partial(_send, api, after=after))
    return await api.streams.run(request, EVENTS, nullcontext(source))


async def _page(api: ApiParts, after: int, limit: int) -> UpdatePage:
    found = await _after(api, after, limit)
    return UpdatePage(items=shown(found), next=found[-1].id if found else after)


async def _where(api: ApiParts, after: int | None) -> int:
    if after is None:
        async with api.store.read() as transaction:
            return await read_counter(transaction, "updates")
    await _after(api, after, 1)
    return after


async def _after(api: ApiParts, number: int, limit: int) -> list[updates.UpdateRow]:
    async with api.store.read() as transaction:
        try:
            return await updates_after(transaction, number, limit=limit)
        except Forgotten as gone:
            raise _forgotten(gone) from None


async def _send(api: ApiParts, stream: EventStream, *, after: int) -> None:
    """Send the updates after *after* until the reader disconnects.

    The next page is read only when the reader has accepted the previous one. A slow reader
    therefore costs one page of memory, and a stalled one is disconnected.
    """
    quiet_since = time.monotonic()
    while True:
        following = api.notifications.next
        try:
            found = await _after(api, after, PAGE)
        except StoreUnavailable:
            return  # the client reconnects and resumes
        except ApiError as error:
            await stream.event("forgotten", error.details)
            return
        for begin in range(0, len(found), IN_A_TURN):
            async with stream.turn():
                events = [
                    encode_event("update", one.model_dump(mode="json"), place=str(one.id))
                    for one in shown(found[begin : begin + IN_A_TURN])
                ]
            await stream.write(b"".join(events))
            after, quiet_since = found[begin : begin + IN_A_TURN][-1].id, time.monotonic()
        if not found:
            if time.monotonic() - quiet_since >= KEEP_ALIVE_SECONDS:
                await stream.keep_alive()
                quiet_since = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(POLL_SECONDS, KEEP_ALIVE_SECONDS)):
                    await following.wait()
        await asyncio.sleep(COALESCE_SECONDS if len(found) < PAGE else 0)


def _wants_page(accept: str) -> bool:
    """Return whether the client prefers JSON to events; ``*/*`` gets events.

    Of two media types with equal weight the first one is preferred (RFC 9110, section 12.5.1).
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
    """Return an update as JSON, in the form of an item of a page."""
    return json.dumps(
        Update.model_validate(one).model_dump(mode="json"), separators=(",", ":")
    ).encode()


def _forgotten(gone: Forgotten) -> ApiError:
    message = "Some of these updates have been deleted; list the jobs, and follow from there."
    return ApiError("forgotten", message, {"through": gone.through})

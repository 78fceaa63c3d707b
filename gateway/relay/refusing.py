"""Refusals as bytes: rendered for whoever asked, as far as that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.answers import write_answer

if TYPE_CHECKING:
    from gateway.core.answers import Refusal
    from gateway.core.fields import Fields
    from gateway.core.heads import StartLine
    from gateway.core.oversize import Oversized
    from gateway.relay.gateway import Parts


def refusal_bytes(
    parts: Parts, refusal: Refusal, asked: tuple[StartLine, Fields] | None, *, close: bool
) -> bytes:
    """Return the answer to *asked*; None stands for a request that could not be read."""
    accept = asked[1].accept if asked is not None else b""
    page = parts.errors.render(refusal, accept)
    head_only = asked is not None and asked[0].method == b"HEAD"
    return write_answer(refusal, page, close=close, head_only=head_only, date=parts.date.field())


def oversized_bytes(parts: Parts, refusal: Refusal, seen: Oversized) -> bytes:
    """Return the answer to a head that is too large, which expires the cookies that made it so."""
    page = parts.errors.render(refusal, seen.accept)
    expired = seen.expiring(secure=parts.site.scheme == "https")
    return write_answer(
        refusal, page._replace(fields=page.fields + expired), close=True, date=parts.date.field()
    )

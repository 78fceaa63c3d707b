"""Where a request that our cookie authenticates may come from: docs/session-token.md, "Where from".

Sibling sessions are same-site to a browser, so that ``SameSite`` does not part them; this does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
_SAFE: Final = frozenset({b"GET", b"HEAD"})
_FRAMES: Final = frozenset({b"iframe", b"frame"})


class Provenance(NamedTuple):
    """What a browser says about where a request comes from; None where it says nothing."""

    origin: bytes | None
    site: bytes | None
    mode: bytes | None
    dest: bytes | None


def comes_from_here(
    said: Provenance, *, method: bytes, upgrade: bool, own_origin: bytes, framed: bool
) -> bool:
    """Say whether a request may use the cookie.

    Args:
        said: The request's own words.
        method: Its method.
        upgrade: Whether it asks for a WebSocket, which only the exact ``Origin`` gets.
        own_origin: Scheme, host and port that browsers see.
        framed: Whether other origins may frame sessions.
    """
    if upgrade:
        return said.origin == own_origin
    if _is_navigation(said, method, framed):
        return True
    if said.origin is not None:
        return said.origin == own_origin
    if said.site is not None:
        return said.site in _OWN_SITES
    return method in _SAFE


def _is_navigation(said: Provenance, method: bytes, framed: bool) -> bool:
    if method != b"GET" or said.mode != b"navigate":
        return False
    return said.dest == b"document" or (framed and said.dest in _FRAMES)

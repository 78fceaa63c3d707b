"""The 101 of an app: whether it is the response to an upgrade, and what the browser gets of it.

Apps say the same in each but for the proof that they have read the key. So a head is remembered
with its proof cut out; the next one is looked for with the proof that it has to hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gateway.core.http.upgrade import deflate_only

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields
    from gateway.core.http.response_heads import ResponseHead

MOST_SWITCHES: Final = 256
MOST_BYTES: Final = 1024
"""Heads that are remembered, and how long each may be."""

_LINE: Final = b"HTTP/1.1 101 Switching Protocols\r\n"
_TO_PROOF: Final = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "


class Switch(msgspec.Struct, eq=False, gc=False):
    """What the browser gets of a 101: ``opening``, a date if it has none, and the rest."""

    opening: bytes
    ending: bytes
    dated: bool
    extensions: bytes | None
    protocol: bytes | None
    at: int = 0
    """Where the proof was cut out of the head that is remembered."""

    def write(self, accept: bytes, date: bytes) -> bytes:
        """Return the head in canonical form, with the proof *accept* and the field *date*."""
        told = b"" if self.dated else date
        return b"".join((self.opening, told, _TO_PROOF, accept, self.ending))


def read_switch(head: ResponseHead, asked: Fields, accept: bytes) -> Switch | None:
    """Return what a 101 says; None where it is none to what was *asked* (RFC 6455, section 4.1).

    Args:
        head: That of a 101.
        asked: A proper upgrade.
        accept: What proves that the key in it was read.
    """
    fields = head.fields
    proper = (
        head.minor == 1
        and fields.websocket
        and not fields.chunked
        and fields.length <= 0
        and fields.socket_accept == accept
    )
    lines = [b"\r\n"]
    if fields.socket_extensions is not None:
        lines.append(b"Sec-WebSocket-Extensions: %b\r\n" % fields.socket_extensions)
    if fields.socket_protocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: %b\r\n" % fields.socket_protocol)
    switch = Switch(
        opening=_LINE + fields.crossing,
        ending=b"".join((*lines, b"\r\n")),
        dated=fields.dated,
        extensions=fields.socket_extensions,
        protocol=fields.socket_protocol,
    )
    return switch if proper and _was_offered(switch, asked) else None


class KnownSwitches:
    """Remembers heads of 101s, within bounds; the oldest is forgotten first."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Switch] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes, asked: Fields, accept: bytes) -> tuple[Switch, int] | None:
        """Return what the head says that *data* begins with, and where it ends.

        None where no other was the same but for the proof, which has to be *accept*, or where it
        chose what was not *asked* for.
        """
        end = data.find(b"\r\n\r\n", 0, MOST_BYTES) + 4
        at = data.find(accept, 0, end)
        if at < 0:
            return None
        switch = self._known.get(data[:at] + data[at + len(accept) : end])
        if switch is None or switch.at != at or not _was_offered(switch, asked):
            return None
        return switch, end

    def keep(self, raw: bytes, switch: Switch, accept: bytes) -> None:
        """Remember *switch*, which the head *raw* says, and whose proof is *accept*."""
        if len(raw) > MOST_BYTES or raw.count(accept) != 1:
            return
        if len(self._known) >= MOST_SWITCHES:
            del self._known[next(iter(self._known))]
        switch.at = raw.find(accept)
        self._known[raw.replace(accept, b"")] = switch


def _was_offered(switch: Switch, asked: Fields) -> bool:
    """Say whether the extension and the protocol that an app chose were *asked* for, if any."""
    if not deflate_only(switch.extensions, offered=asked.socket_extensions):
        return False
    if switch.protocol is None:
        return True
    offered = (asked.socket_protocols or b"").split(b",")
    return switch.protocol in [protocol.strip(b" \t") for protocol in offered]

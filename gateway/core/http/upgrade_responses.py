"""The 101 of an app: whether it accepts the upgrade, and the 101 that the browser gets.

An app's 101 responses differ only in ``Sec-WebSocket-Accept``. A head is cached without that value;
the next head is looked up with the value that it must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gateway.core.http.upgrade import is_offered_deflate

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields
    from gateway.core.http.response_heads import ResponseHead

MAX_RESPONSES: Final = 256
MAX_BYTES: Final = 1024
"""How many heads are cached, and how long each may be."""

_LINE: Final = b"HTTP/1.1 101 Switching Protocols\r\n"
_TO_ACCEPT: Final = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "


class UpgradeResponse(msgspec.Struct, eq=False, gc=False):
    """The 101 that the browser gets: ``prefix``, a date if it has none, ``suffix``."""

    prefix: bytes
    suffix: bytes
    has_date: bool
    extensions: bytes | None
    protocol: bytes | None
    at: int = 0
    """Where the accept value was cut out of the cached head."""

    def write(self, accept: bytes, date: bytes) -> bytes:
        """Return the head in canonical form, with the value *accept* and the field *date*."""
        date_field = b"" if self.has_date else date
        return b"".join((self.prefix, date_field, _TO_ACCEPT, accept, self.suffix))


def read_upgrade_response(
    head: ResponseHead, request: Fields, accept: bytes
) -> UpgradeResponse | None:
    """Return the parsed 101; None if it does not accept *request* (RFC 6455, section 4.1).

    Args:
        head: The head of a 101.
        request: The fields of a valid upgrade.
        accept: The ``Sec-WebSocket-Accept`` that it must have.
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
    response = UpgradeResponse(
        prefix=_LINE + fields.end_to_end,
        suffix=b"".join((*lines, b"\r\n")),
        has_date=fields.has_date,
        extensions=fields.socket_extensions,
        protocol=fields.socket_protocol,
    )
    return response if proper and _was_offered(response, request) else None


class UpgradeResponseCache:
    """Caches the heads of 101 responses, within limits; the oldest is evicted first."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, UpgradeResponse] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(
        self, data: bytes, request: Fields, accept: bytes
    ) -> tuple[UpgradeResponse, int] | None:
        """Return the cached response to the head at the start of *data*, and where the head ends.

        None if no cached head differs in *accept* alone, or if the app selected what *request* did
        not offer.
        """
        end = data.find(b"\r\n\r\n", 0, MAX_BYTES) + 4
        at = data.find(accept, 0, end)
        if at < 0:
            return None
        response = self._known.get(data[:at] + data[at + len(accept) : end])
        if response is None or response.at != at or not _was_offered(response, request):
            return None
        return response, end

    def put(self, raw: bytes, response: UpgradeResponse, accept: bytes) -> None:
        """Cache *response*, which was parsed from the head *raw* with the value *accept*."""
        if len(raw) > MAX_BYTES or raw.count(accept) != 1:
            return
        if len(self._known) >= MAX_RESPONSES:
            del self._known[next(iter(self._known))]
        response.at = raw.find(accept)
        self._known[raw.replace(accept, b"")] = response


def _was_offered(response: UpgradeResponse, request: Fields) -> bool:
    """Return whether *request* offered the extension and the subprotocol that the app selected."""
    if not is_offered_deflate(response.extensions, offered=request.socket_extensions):
        return False
    if response.protocol is None:
        return True
    offered = (request.socket_protocols or b"").split(b",")
    return response.protocol in [protocol.strip(b" \t") for protocol in offered]

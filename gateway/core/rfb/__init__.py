"""The Remote Framebuffer protocol (RFC 6143), as far as a bridge must understand it.

A bridge passes RFB on without looking, but for two things. Where it knows the desktop's password,
or where the browser may only look on, it leads the handshake itself (:mod:`.handshake`), so that
the password never reaches the browser and nothing unexpected is agreed upon. And a browser that
may only look on has its messages read (:mod:`.view_filter`): what could change anything is dropped.

Bytes may come in any pieces. Whatever is not understood ends the connection.
"""

from gateway.core.rfb.error import RfbError
from gateway.core.rfb.handshake import Handshake, Side, answer_challenge
from gateway.core.rfb.view_filter import INPUT_ENCODINGS, ViewFilter

__all__ = [
    "INPUT_ENCODINGS",
    "Handshake",
    "RfbError",
    "Side",
    "ViewFilter",
    "answer_challenge",
]

"""The Remote Framebuffer protocol (RFC 6143), as far as a bridge must understand it.

A bridge passes RFB on without looking, but for three things. Where it knows the desktop's password,
or where the browser may only look on, it leads the handshake itself (:mod:`.handshake`), so that
the password never reaches the browser and nothing unexpected is agreed upon. And a browser that
may only look on, or not paste, has its messages read (:mod:`.browser_filter`): what it may not do
is dropped. A desktop whose clipboard must stay there has its messages measured
(:mod:`.desktop_filter`).

Bytes may come in any pieces. Whatever is not understood ends the connection.
"""

from gateway.core.rfb.browser_filter import INPUT_ENCODINGS, BrowserFilter
from gateway.core.rfb.desktop_filter import DesktopFilter
from gateway.core.rfb.filter import RfbError
from gateway.core.rfb.handshake import Handshake, Side, answer_challenge

__all__ = [
    "INPUT_ENCODINGS",
    "BrowserFilter",
    "DesktopFilter",
    "Handshake",
    "RfbError",
    "Side",
    "answer_challenge",
]

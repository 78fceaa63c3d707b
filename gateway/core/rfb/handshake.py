"""The RFB handshake (RFC 6143, section 7.1), which the gateway leads with both sides."""

from __future__ import annotations

import re
from collections.abc import Generator
from enum import Enum
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.modes import ECB

from gateway.core.rfb.filter import RfbError

OUR_VERSION: Final = b"RFB 003.008\n"
NO_SECURITY: Final = 1
VNC_SECURITY: Final = 2
CHALLENGE_BYTES: Final = 16
PASSWORD_BYTES: Final = 8
MAX_REASON_BYTES: Final = 1024
MAX_UNREAD_BYTES: Final = 1 << 16
"""Of one side, ahead of the handshake. A side that keeps the protocol sends nothing ahead, and a
side may wait for minutes until the other one continues."""

_REFUSED: Final = b"The desktop did not accept the password."
_REFUSED_OURS: Final = b"The password that the job names for its desktop is not the desktop's."
_FAILED: Final = (1).to_bytes(4, "big")
_VERSION = re.compile(rb"RFB ([0-9]{3})\.([0-9]{3})\n")


def answer_challenge(password: str, challenge: bytes) -> bytes:
    """Return the response to a VNC authentication *challenge* (RFC 6143, section 7.2.2).

    The protocol requires DES keyed with the password, with the bits of each byte reversed. This is
    no protection by today's standards; it stays between gateway and job.
    """
    key = password.encode("latin-1", "replace")[:PASSWORD_BYTES].ljust(PASSWORD_BYTES, b"\0")
    mirrored = bytes(int(f"{byte:08b}"[::-1], 2) for byte in key)
    # Triple DES with three equal keys is single DES.
    cipher = Cipher(TripleDES(mirrored * 3), ECB()).encryptor()  # noqa: S305  # RFC 6143 has no other
    return cipher.update(challenge) + cipher.finalize()


class Side(Enum):
    """The sender of bytes."""

    BROWSER = "browser"
    DESKTOP = "desktop"


_Step = Generator[tuple[Side, int], bytes, None]
_StepWithSecurity = Generator[tuple[Side, int], bytes, int]


class Handshake:
    """Leads the handshake with both sides, up to and including ClientInit.

    After each ``feed`` send the contents of :attr:`to_browser` and :attr:`to_desktop`, and clear
    both. Once :attr:`done`, :meth:`rest` returns the bytes after the handshake.

    Args:
        password: The desktop's, if the gateway knows it. Otherwise the browser is asked.
        shared: Whether ClientInit always keeps other clients connected.
    """

    def __init__(self, *, password: str | None, shared: bool) -> None:
        self._password = password or None
        self._shared = shared
        self._unread = {Side.BROWSER: bytearray(), Side.DESKTOP: bytearray()}
        self.to_browser = bytearray()
        self.to_desktop = bytearray()
        self.done = False
        self._steps = self._lead()
        self._needs: tuple[Side, int] = next(self._steps)

    @property
    def awaits(self) -> Side:
        """The side whose bytes are needed next."""
        return self._needs[0]

    def feed(self, side: Side, data: bytes) -> None:
        """Continue with *data* from *side*.

        Raises:
            RfbError: If a side does not speak RFB, the sides have no security type in common, or
                the desktop refuses. :attr:`to_browser` may then hold the reason as RFB.
        """
        unread = self._unread[side]
        unread += data
        while not self.done and len(self._unread[self._needs[0]]) >= self._needs[1]:
            source, count = self._needs
            piece = bytes(self._unread[source][:count])
            del self._unread[source][:count]
            try:
                self._needs = self._steps.send(piece)
            except StopIteration:
                self.done = True
        if not self.done and len(unread) > MAX_UNREAD_BYTES:
            raise RfbError("too much came before the handshake was over")

    def rest(self, side: Side) -> bytes:
        """Return the bytes that *side* sent after the handshake, once."""
        data = bytes(self._unread[side])
        self._unread[side].clear()
        return data

    def _lead(self) -> _Step:
        desktop = _minor((yield Side.DESKTOP, 12))
        self.to_desktop += b"RFB 003.%03d\n" % desktop
        security = yield from self._agree_with_desktop(desktop)
        self.to_browser += OUR_VERSION
        browser = _minor((yield Side.BROWSER, 12))
        # The browser proves nothing if the password is known: it has its grant.
        known = self._password is not None or security == NO_SECURITY
        yield from self._agree_with_browser(browser, NO_SECURITY if known else security)
        if security == VNC_SECURITY:
            yield from self._authenticate()
        yield from self._judge(desktop, browser, security, known=known)
        init = yield Side.BROWSER, 1
        self.to_desktop += b"\1" if self._shared else init

    def _agree_with_desktop(self, minor: int) -> _StepWithSecurity:
        if minor == 3:
            only = int.from_bytes((yield Side.DESKTOP, 4), "big")
            if only == 0:
                yield from self._refused()
            if only not in (NO_SECURITY, VNC_SECURITY):
                raise RfbError("the desktop wants a security that is not known here")
            return only
        count = (yield Side.DESKTOP, 1)[0]
        if count == 0:
            yield from self._refused()
        chosen = self._choose((yield Side.DESKTOP, count))
        self.to_desktop.append(chosen)
        return chosen

    def _choose(self, offered: bytes) -> int:
        wanted = (VNC_SECURITY, NO_SECURITY) if self._password else (NO_SECURITY, VNC_SECURITY)
        for security in wanted:
            if security in offered:
                return security
        raise RfbError("the desktop wants a security that is not known here")

    def _agree_with_browser(self, minor: int, security: int) -> _Step:
        if minor == 3:
            self.to_browser += security.to_bytes(4, "big")
            return
        self.to_browser += bytes((1, security))
        if (yield Side.BROWSER, 1)[0] != security:
            raise RfbError("the browser chose a security that was not offered")

    def _authenticate(self) -> _Step:
        challenge = yield Side.DESKTOP, CHALLENGE_BYTES
        if self._password is not None:
            self.to_desktop += answer_challenge(self._password, challenge)
            return
        self.to_browser += challenge
        self.to_desktop += yield Side.BROWSER, CHALLENGE_BYTES

    def _judge(self, desktop: int, browser: int, security: int, *, known: bool) -> _Step:
        """Read the desktop's SecurityResult if its version has one; send the browser's likewise."""
        if security == VNC_SECURITY or desktop == 8:
            result = int.from_bytes((yield Side.DESKTOP, 4), "big")
            if result != 0:
                reason = _REFUSED_OURS if self._password else _REFUSED
                self.to_browser += _failure(reason) if browser == 8 else _FAILED
                raise RfbError("the desktop did not accept the password")
        # Before 3.8 a SecurityResult follows authentication only.
        if browser == 8 or not known:
            self.to_browser += bytes(4)

    def _refused(self) -> _Step:
        """Relay the desktop's reason for refusing every client, such as failed attempts, and end.

        The browser's version is not awaited, since the desktop closes its side now. Every browser
        that can run the desktop page speaks 3.8.
        """
        length = int.from_bytes((yield Side.DESKTOP, 4), "big")
        if length > MAX_REASON_BYTES:
            raise RfbError("the desktop refused, and gave no reason")
        reason = (yield Side.DESKTOP, length) if length else b""
        self.to_browser += OUR_VERSION + bytes(1) + len(reason).to_bytes(4, "big") + reason
        raise RfbError("the desktop refused")


def _minor(version: bytes) -> int:
    """Return the minor version to speak: 3, 7 or 8."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise RfbError("this is not RFB")
    major, minor = int(match[1]), int(match[2])
    if major > 3 or (major == 3 and minor >= 8):
        return 8
    if major < 3:
        raise RfbError("this version of RFB is too old")
    # RFC 6143, section 7.1.1: any other version counts as 3.3.
    return 7 if minor == 7 else 3


def _failure(reason: bytes) -> bytes:
    return _FAILED + len(reason).to_bytes(4, "big") + reason

"""The Remote Framebuffer protocol (RFC 6143), as far as a bridge must understand it.

A bridge passes RFB on without looking, but for two things. Where it knows the desktop's password,
or where the browser may only look on, it leads the handshake itself (:class:`Handshake`), so that
the password never reaches the browser and nothing unexpected is agreed upon. And who may only
look on has their messages read (:class:`ViewFilter`): what could change anything is dropped.

Bytes may come in any pieces. Whatever is not understood ends the connection.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from enum import Enum, IntEnum
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.modes import ECB

OUR_VERSION: Final = b"RFB 003.008\n"
NO_SECURITY: Final = 1
VNC_SECURITY: Final = 2
CHALLENGE_BYTES: Final = 16
PASSWORD_BYTES: Final = 8
MAX_REASON_BYTES: Final = 1024
MAX_UNREAD_BYTES: Final = 1 << 20

_FAILED: Final = (1).to_bytes(4, "big")
_VERSION = re.compile(rb"RFB ([0-9]{3})\.([0-9]{3})\n")


class RfbError(Exception):
    """What came is not what may come; the message is for people and holds nothing of it."""


def answer_challenge(password: str, challenge: bytes) -> bytes:
    """Return the answer to a VNC authentication *challenge* (RFC 6143, section 7.2.2).

    DES with the password as its key, each byte's bits in reverse: what the protocol asks for, and
    no protection by today's measure; it stays between gateway and job.
    """
    key = password.encode("latin-1", "replace")[:PASSWORD_BYTES].ljust(PASSWORD_BYTES, b"\0")
    mirrored = bytes(int(f"{byte:08b}"[::-1], 2) for byte in key)
    # Three times the same key makes of triple DES the single one.
    cipher = Cipher(TripleDES(mirrored * 3), ECB()).encryptor()  # noqa: S305  # RFC 6143 has no other
    return cipher.update(challenge) + cipher.finalize()


# The handshake


class Side(Enum):
    """Whose bytes are meant."""

    BROWSER = "browser"
    DESKTOP = "desktop"


_Step = Generator[tuple[Side, int], bytes, None]
_StepWithSecurity = Generator[tuple[Side, int], bytes, int]


class Handshake:
    """Leads the handshake with both sides, up to and with ClientInit.

    After every ``feed`` send what stands in :attr:`to_browser` and :attr:`to_desktop`, and empty
    both. Once :attr:`done`, :meth:`rest` returns what came beyond the handshake.

    Args:
        password: The desktop's, if the gateway knows it. Otherwise the browser is asked.
        shared: Whether ClientInit is made to leave others connected, whatever the browser says.
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

    def __repr__(self) -> str:
        return f"Handshake(needs={self._needs}, done={self.done})"

    def feed(self, side: Side, data: bytes) -> None:
        """Go on as far as *data* from *side* leads.

        Raises:
            RfbError: If a side does not speak RFB, they have no security in common, or the
                desktop refuses; :attr:`to_browser` may hold the reason in RFB's own words.
        """
        unread = self._unread[side]
        unread += data
        if len(unread) > MAX_UNREAD_BYTES:
            raise RfbError("too much came before the handshake was over")
        while not self.done and len(self._unread[self._needs[0]]) >= self._needs[1]:
            source, count = self._needs
            piece = bytes(self._unread[source][:count])
            del self._unread[source][:count]
            try:
                self._needs = self._steps.send(piece)
            except StopIteration:
                self.done = True

    def rest(self, side: Side) -> bytes:
        """Return what *side* sent beyond the handshake, once."""
        data = bytes(self._unread[side])
        self._unread[side].clear()
        return data

    def _lead(self) -> _Step:
        desktop = _minor((yield Side.DESKTOP, 12))
        self.to_desktop += b"RFB 003.%03d\n" % desktop
        security = yield from self._agree_with_desktop(desktop)
        self.to_browser += OUR_VERSION
        browser = _minor((yield Side.BROWSER, 12))
        # With a known password the browser has nothing to prove: it has its grant.
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
        """Read the desktop's result where its version has one, tell it where the browser's has."""
        if security == VNC_SECURITY or desktop == 8:
            result = int.from_bytes((yield Side.DESKTOP, 4), "big")
            if result != 0:
                reason = b"The desktop did not accept the password."
                self.to_browser += _failure(reason) if browser == 8 else _FAILED
                raise RfbError("the desktop did not accept the password")
        # Before 3.8 there is a result only where something had to be proven.
        if browser == 8 or not known:
            self.to_browser += bytes(4)

    def _refused(self) -> _Step:
        length = int.from_bytes((yield Side.DESKTOP, 4), "big")
        if length > MAX_REASON_BYTES:
            raise RfbError("the desktop refused, and gave no reason")
        yield Side.DESKTOP, length
        raise RfbError("the desktop refused")


def _minor(version: bytes) -> int:
    """Return the version to speak: 3, 7 or 8."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise RfbError("this is not RFB")
    major, minor = int(match[1]), int(match[2])
    if major > 3 or (major == 3 and minor >= 8):
        return 8
    if major < 3:
        raise RfbError("this version of RFB is too old")
    # RFC 6143, section 7.1.1: other versions are to be taken for 3.3.
    return 7 if minor == 7 else 3


def _failure(reason: bytes) -> bytes:
    return _FAILED + len(reason).to_bytes(4, "big") + reason


# Looking on


class Message(IntEnum):
    """What a client may send, by its first byte."""

    SET_PIXEL_FORMAT = 0
    SET_ENCODINGS = 2
    UPDATE_REQUEST = 3
    KEY = 4
    POINTER = 5
    CUT_TEXT = 6
    CONTINUOUS_UPDATES = 150
    FENCE = 248
    XVP = 250
    SET_DESKTOP_SIZE = 251
    QEMU = 255


INPUT_ENCODINGS: Final = frozenset(
    {
        -316,  # extended mouse buttons: makes pointer messages longer
        -309,  # xvp: shut the machine down
        -308,  # extended desktop size: resize it
        -305,  # general input interface
        -259,  # QEMU audio
        -258,  # QEMU extended keys
        -257,  # QEMU relative pointer
        -1063131698,  # extended clipboard (0xC0A1E5CE)
    }
)
"""Pseudo-encodings by which a client announces that it will send other input messages, or longer
ones. Without them a desktop reads messages exactly as they are read here."""

_FIXED: Final[Mapping[int, tuple[int, bool]]] = {
    Message.SET_PIXEL_FORMAT: (20, True),
    Message.UPDATE_REQUEST: (10, True),
    Message.CONTINUOUS_UPDATES: (10, True),
    Message.KEY: (8, False),
    Message.POINTER: (6, False),
    Message.XVP: (4, False),
}
"""Size of a message, and whether one who looks on may send it."""


class ViewFilter:
    """Lets pass what a client that only looks on must send, and drops all other input."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> bytes:
        """Return what of *data*, and of what was incomplete before, may reach the desktop.

        Raises:
            RfbError: For a message of a type that is not known: its end cannot be known either.
        """
        self._unread += data
        passed = bytearray()
        while self._unread:
            if self._skip:
                self._drop(self._skip)
                continue
            size, passes = self._measure()
            if size == 0:
                break
            if not passes:
                self._skip = size
            elif len(self._unread) < size:
                break
            else:
                passed += self._cleaned(bytes(self._unread[:size]))
                del self._unread[:size]
        return bytes(passed)

    def _drop(self, count: int) -> None:
        dropped = min(count, len(self._unread))
        del self._unread[:dropped]
        self._skip -= dropped

    def _measure(self) -> tuple[int, bool]:
        """Return the size of the next message, 0 while it is not known, and whether it passes."""
        kind = self._unread[0]
        if kind in _FIXED:
            return _FIXED[kind]
        match kind:
            case Message.SET_ENCODINGS:
                return self._counted(at=2, width=2, header=4, unit=4), True
            case Message.CUT_TEXT:
                return self._cut_text(), False
            case Message.FENCE:
                return self._fence(), True
            case Message.SET_DESKTOP_SIZE:
                return self._counted(at=6, width=1, header=8, unit=16), False
            case Message.QEMU:
                return self._qemu(), False
            case _:
                raise RfbError("the browser sent a message that is not known")

    def _counted(self, *, at: int, width: int, header: int, unit: int) -> int:
        if len(self._unread) < header:
            return 0
        return header + unit * int.from_bytes(self._unread[at : at + width], "big")

    def _cut_text(self) -> int:
        if len(self._unread) < 8:
            return 0
        # A negative length marks the extended clipboard's form of the message.
        return 8 + abs(int.from_bytes(self._unread[4:8], "big", signed=True))

    def _fence(self) -> int:
        if len(self._unread) < 9:
            return 0
        length = self._unread[8]
        if length > 64:
            raise RfbError("the browser sent a fence that is too long")
        return 9 + length

    def _qemu(self) -> int:
        if len(self._unread) < 4:
            return 0
        kind, operation = self._unread[1], int.from_bytes(self._unread[2:4], "big")
        if kind == 0:
            return 12
        if kind == 1 and operation in (0, 1):
            return 4
        if kind == 1 and operation == 2:
            return 10
        raise RfbError("the browser sent a message that is not known")

    @staticmethod
    def _cleaned(message: bytes) -> bytes:
        if message[0] != Message.SET_ENCODINGS:
            return message
        kept = [
            message[at : at + 4]
            for at in range(4, len(message), 4)
            if int.from_bytes(message[at : at + 4], "big", signed=True) not in INPUT_ENCODINGS
        ]
        return message[:2] + len(kept).to_bytes(2, "big") + b"".join(kept)

"""Grants: what a verified session token allows one user, signed by the gateways as a cookie.

A grant is the cookie's value. Any gateway can therefore continue a session that another one opened,
and a restarted gateway recognises its users. Only gateways hold the keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.bounded import BoundedDict
from shared.jose.jws import decode_base64url, encode_base64url

MIN_KEY_BYTES: Final = 32
MAX_VALUE_CHARACTERS: Final = 4096
"""The most that browsers store of a cookie; the gateway never made a longer one."""

_CONTEXT: Final = b"fumarole grant 1\n"
_REMEMBERED: Final = 4096

Reason = Literal["malformed", "signature", "ended"]


class GrantRefused(Exception):
    """The value is not a grant of this installation, or its time is over."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"grant refused: {reason}")
        self.reason: Reason = reason


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The right of one user to one session. Times are unix seconds, as floats.

    ``issued_at`` is the token's ``iat``, by which user revocations count. ``ends_at`` is when the
    grant ends by itself. ``framed`` is set if the session was opened in a frame of another site,
    where browsers keep partitioned cookies only.
    """

    sid: str
    jti: str
    kid: str
    sub: str
    mode: Literal["control", "view"]
    issued_at: float
    ends_at: float
    framed: bool = False


_UNFRAMED: Final = b",false]"


def _encode(grant: Grant) -> bytes:
    """Return *grant* as JSON; older gateways read it as long as it is not framed."""
    payload = _encode_all(grant)
    return payload[: -len(_UNFRAMED)] + b"]" if payload.endswith(_UNFRAMED) else payload


_encode_all = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Grant).decode


class GrantKeys:
    """Signs with the first key and verifies with all, so that keys can be rotated.

    Args:
        keys: Distinct secret keys of at least 32 bytes.

    Raises:
        ValueError: If there is no key, a short one, or a duplicate.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("there is no grant key")
        if any(len(key) < MIN_KEY_BYTES for key in keys):
            raise ValueError(f"a grant key is shorter than {MIN_KEY_BYTES} bytes")
        if len(set(keys)) != len(keys):
            raise ValueError("the same grant key stands twice")
        # Keeping the hash state after the key halves the cost of a signature.
        self._keys = tuple(hmac.new(key, _CONTEXT, hashlib.sha256) for key in keys)
        self._remembered: BoundedDict[bytes, Grant] = BoundedDict(_REMEMBERED)

    def sign(self, grant: Grant) -> str:
        """Return the cookie value that :meth:`verify` accepts for *grant*."""
        payload = _encode(grant)
        signature = self._signature(self._keys[0], payload)
        return f"{encode_base64url(payload)}.{encode_base64url(signature)}"

    def verify(self, value: str | bytes, now: float) -> Grant:
        """Return the grant that *value* was made from, unless it has ended at *now*.

        Revocation is checked elsewhere, against the route table.

        Raises:
            GrantRefused: ``malformed``, ``signature``, or ``ended``.
        """
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        grant = self._remembered.get(raw)
        if grant is None:
            grant = self._remembered[raw] = self._verified(raw)
        if now >= grant.ends_at:
            raise GrantRefused("ended")
        return grant

    def _verified(self, raw: bytes) -> Grant:
        if len(raw) > MAX_VALUE_CHARACTERS:
            raise GrantRefused("malformed")
        try:
            payload, signature = map(decode_base64url, raw.decode("ascii").split("."))
        except ValueError:
            raise GrantRefused("malformed") from None
        # All keys are tried, so that the time taken does not disclose which one signed.
        good = [hmac.compare_digest(self._signature(key, payload), signature) for key in self._keys]
        if not any(good):
            raise GrantRefused("signature")
        return _read(payload)

    def _signature(self, key: hmac.HMAC, payload: bytes) -> bytes:
        state = key.copy()
        state.update(payload)
        return state.digest()


def _read(payload: bytes) -> Grant:
    try:
        grant = _decode(payload)
    except msgspec.DecodeError:
        raise GrantRefused("malformed") from None
    if _encode(grant) != payload:
        raise GrantRefused("malformed")
    return grant

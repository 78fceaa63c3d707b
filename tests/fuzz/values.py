"""Checks the promises for cookies, for the target of ``next``, and for PROXY headers."""

from __future__ import annotations

from collections.abc import Hashable

from gateway.core.access.opening import safe_next
from gateway.core.http.cookies import cut_cookie
from gateway.core.limits.addresses import (
    FIXED_BYTES,
    SIGNATURE,
    BadProxyHeader,
    remaining_bytes,
    source_address,
)
from tests.fuzz.reading import COOKIE


def check_cookie(data: bytes) -> Hashable:
    """Our cookies are cut out of any context; the app's stay byte for byte, in order."""
    left, ours = cut_cookie(data, COOKIE)
    pairs = data.split(b";")
    names = {COOKIE, b"__Host-fumarole"}
    kept = [p for p in pairs if b"=" not in p or p.partition(b"=")[0].strip(b" \t") not in names]
    if left is not None:
        found = [n for n in left.split(b";") if n.partition(b"=")[1]]
        assert not names & {pair.partition(b"=")[0].strip(b" \t") for pair in found}, left
        assert left.strip(b" \t") == b";".join(kept).strip(b" \t"), (left, kept)
        assert cut_cookie(left, COOKIE) == (left, [])
    return left is None, len(ours), min(len(kept), 4)


def check_next(data: bytes) -> Hashable:
    """``next`` leads to a path of this origin, as browsers read it."""
    path = safe_next(data.decode("latin-1"))
    assert path.startswith("/"), path
    seen = "".join(c for c in path if c not in "\t\r\n").replace("\\", "/")
    assert not seen.startswith("//"), path
    assert not any(ord(c) < 0x21 or ord(c) == 0x7F for c in path), path
    return path == "/", path.count("/"), "%" in path


def check_proxy_header(data: bytes) -> Hashable:
    """A header is refused or names an address, and needs no byte beyond its end."""
    if len(data) < FIXED_BYTES:
        return "short"
    fixed, rest = data[:FIXED_BYTES], data[FIXED_BYTES:]
    try:
        wanted = remaining_bytes(fixed)
    except BadProxyHeader as error:
        return str(error)
    assert fixed.startswith(SIGNATURE)
    assert 0 <= wanted <= 4096
    if len(rest) < wanted:
        return "more"
    address = source_address(fixed, rest[:wanted])
    assert address == source_address(fixed, rest[:wanted] + b"x")
    return address is None, address is not None and ":" in address

"""Our cookie among the app's: found, cut out, and kept from being set by apps.

The app's own cookies cross byte for byte, whatever their syntax: only what stands between two
semicolons and bears one of our names is touched.
"""

from __future__ import annotations

from typing import Final

from gateway.core.grants import HTTP_COOKIE_NAME, HTTPS_COOKIE_NAME

_NAMES: Final = frozenset({HTTPS_COOKIE_NAME, HTTP_COOKIE_NAME})
_LOWER_NAMES: Final = frozenset(name.lower() for name in _NAMES)
_MARK: Final = HTTP_COOKIE_NAME
_WHITE: Final = b" \t"


def cut_cookie(value: bytes, name: bytes) -> tuple[bytes | None, list[bytes]]:
    """Return a ``Cookie`` value without our cookies, and the values of those called *name*.

    Both of our names are cut out, whichever of them counts here. None stands for a field of
    which nothing is left.
    """
    if _MARK not in value:
        return value, []
    kept: list[bytes] = []
    ours: list[bytes] = []
    for pair in value.split(b";"):
        key, equals, content = pair.partition(b"=")
        key = key.strip(_WHITE)
        if not equals or key not in _NAMES:
            kept.append(pair)
        elif key == name:
            ours.append(content.strip(_WHITE))
    left = b";".join(kept)
    if kept and not value.startswith(kept[0]):
        left = left.lstrip(_WHITE)
    return (left if left.strip(b" \t;") else None), ours


def may_set_cookie(value: bytes) -> bool:
    """Say whether an app's ``Set-Cookie`` may reach the browser.

    Not one of our names, in any case (browsers compare the prefix without regard to it), nor a
    nameless cookie whose value would come back as one of ours; and not one for more than its own
    host, since the neighbours are other people's sessions.
    """
    pair, *attributes = value.split(b";")
    key, equals, content = pair.partition(b"=")
    name = (key if equals else b"").strip(_WHITE).lower()
    if not name:
        bare = (content if equals else key).strip(_WHITE).lower()
        name = bare.partition(b"=")[0].strip(_WHITE)
    if name in _LOWER_NAMES:
        return False
    return all(a.partition(b"=")[0].strip(_WHITE).lower() != b"domain" for a in attributes)

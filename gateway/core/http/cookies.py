"""Our cookie among the app's: found, cut out, and kept from being set by apps.

The app's own cookies cross byte for byte, whatever their syntax: only what stands between two
semicolons and bears one of our names is touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

from gateway.core.access.grants import COOKIE_NAMES, HTTP_COOKIE_NAME

FOREIGN_BYTES: Final = 32768
"""Of cookies that are not ours, as many reach the app as fit: neighbours can set them too."""
_LOWER_NAMES: Final = frozenset(name.lower() for name in COOKIE_NAMES)
_MARK: Final = HTTP_COOKIE_NAME
_WHITE: Final = b" \t"
_OURS: Final = re.compile(
    rb";?[ \t]*+(%b)[ \t]*+=([^;]*)" % b"|".join(map(re.escape, sorted(COOKIE_NAMES)))
)
"""A cookie of one of our names, from one semicolon to the next."""
_MOST_READ: Final = 256
"""Values of one name: what a browser sends of it is far less, and two are too many."""
MOST_MENTIONS: Final = 1024
"""Cookies of a request in which our name stands anywhere: a millisecond's worth. Browsers keep some
two hundred of a domain."""
_MENTION: Final = re.compile(rb"%b[^;]*" % re.escape(_MARK))

_DOMAIN: Final = re.compile(rb";[ \t]*domain[ \t]*(?:[=;]|$)", re.IGNORECASE)


def cut_cookie(value: bytes, name: bytes) -> tuple[bytes | None, list[bytes]]:
    """Return a ``Cookie`` value without our cookies, and the first values of those called *name*.

    All of our names are cut out, whichever of them is called for. None stands for a field of
    which nothing is left. A cookie is looked into only where our name stands in it: a field may
    hold a hundred thousand.
    """
    found = value.find(_MARK)
    if found < 0:
        return value, []
    kept: list[bytes] = []
    ours: list[bytes] = []
    crossed = begin = 0
    while found >= 0:
        begin = max(begin, value.rfind(b";", begin, found))
        end = value.find(b";", found)
        end = len(value) if end < 0 else end
        match = _OURS.fullmatch(value, begin, end)
        if match is not None:
            kept.append(value[crossed:begin])
            crossed = end
            if match[1] == name and len(ours) < _MOST_READ:
                ours.append(match[2].strip(_WHITE))
        begin, found = end, value.find(_MARK, end)
    left = b"".join((*kept, value[crossed:]))
    if left.startswith(b";") and not value.startswith(b";"):
        left = left[1:].lstrip(_WHITE)
    return (left if left.strip(b" \t;") else None), ours


def mention_us_often(values: Sequence[bytes]) -> bool:
    """Say whether our name stands in more cookies of these ``Cookie`` values than are looked at."""
    if sum(map(len, values)) <= MOST_MENTIONS * len(_MARK):
        return False
    found = chain.from_iterable(map(_MENTION.finditer, values))
    return sum(1 for _ in islice(found, MOST_MENTIONS + 1)) > MOST_MENTIONS


def fitting(value: bytes, most: int) -> bytes:
    """Return the first cookies of *value* that fit into *most* bytes, without their last ``;``.

    Browsers send those of longer paths and older ones first (RFC 6265, section 5.4).
    """
    if len(value) <= most:
        return value
    return value[: max(0, value.rfind(b";", 0, most + 1))]


def may_set_cookie(value: bytes) -> bool:
    """Say whether an app's ``Set-Cookie`` may reach the browser.

    Not one of our names, in any case (browsers compare the prefix without regard to it), nor a
    nameless cookie whose value would come back as one of ours; and not one for more than its own
    host, since the neighbours are other people's sessions.
    """
    pair = value.partition(b";")[0]
    key, equals, content = pair.partition(b"=")
    name = (key if equals else b"").strip(_WHITE).lower()
    if not name:
        bare = (content if equals else key).strip(_WHITE).lower()
        name = bare.partition(b"=")[0].strip(_WHITE)
    if name in _LOWER_NAMES:
        return False
    return _DOMAIN.search(value) is None

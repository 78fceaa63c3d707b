"""The header by which a call that is made again is known: ``Idempotency-Key``.

As in the IETF's draft "The Idempotency-Key HTTP Header Field".
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from controller.api.error_responses import invalid
from controller.jobs.spec.problems import Problem

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_LONGEST: Final = 64
_KEY: Final = re.compile(rf"[!-~]{{1,{_LONGEST}}}")
QUOTED_KEY: Final = f'^"*[!#-~]([!-~]{{0,{_LONGEST - 2}}}[!#-~])?"*$'
"""The header's pattern, for the description."""


def read_key(request: web.Request) -> str | None:
    """Return the call's key; None where it has none.

    Raises:
        ApiError: 422 for several keys, and for what is none.
    """
    given = request.headers.getall(IDEMPOTENCY_KEY, [])
    if not given:
        return None
    # The draft's form is a quoted string; the quotes are no part of the key.
    key = given[0].strip().strip('"')
    if len(given) > 1 or not _KEY.fullmatch(key):
        problem = f"should be one key of 1 to {_LONGEST} visible ASCII characters"
        raise invalid([Problem(IDEMPOTENCY_KEY, problem)])
    return key

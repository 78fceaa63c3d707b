"""Signs what a trial's orchestrator would: ``python -m deploy.trial_token trial.pem``.

Without more it prints a token for the controller's API, good for a minute; with ``--open`` a link
that opens a session, once, within a minute. The key is that of the Secret ``fumarole-orchestrator``
(docs/kubernetes.md, "A trial").
"""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path
from typing import Any, Final

import jwt

ISSUER: Final = "https://trial.invalid"
KEY_ID: Final = "trial"
SECONDS: Final = 60


def sign(key: str, claims: dict[str, Any], *, now: float) -> str:
    """Return *claims* as a token of the trial's orchestrator."""
    times = {"iss": ISSUER, "iat": int(now), "exp": int(now) + SECONDS}
    return jwt.encode(claims | times, key, algorithm="EdDSA", headers={"kid": KEY_ID})


def for_controller(key: str, *, now: float) -> str:
    """Return a token for the controller's API."""
    return sign(key, {"aud": "fumarole-controller", "sub": "trial"}, now=now)


def for_session(key: str, sid: str, *, job: str, rank: int, kind: str, now: float) -> str:
    """Return a token that opens the session."""
    claims = {
        "aud": "fumarole-gateway", "sub": "me", "jti": secrets.token_urlsafe(16), "sid": sid,
        "job": job, "rank": rank, "kind": kind,
    }  # fmt: skip
    return sign(key, claims, now=now)


def main() -> None:
    """Print a token, or a link with one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("key", type=Path, help="the orchestrator's key, as PEM")
    parser.add_argument("--open", metavar="SID", help="print a link that opens this session")
    parser.add_argument("--job", default="", help="the session's job")
    parser.add_argument("--rank", type=int, default=0, help="the session's rank")
    parser.add_argument("--kind", default="web", choices=("web", "vnc", "terminal"))
    parser.add_argument("--address", default="apps.localhost:8080", help="where gateways are")
    given, now = parser.parse_args(), time.time()
    key = given.key.read_text()
    if given.open is None:
        print(for_controller(key, now=now))
        return
    token = for_session(
        key, given.open, job=given.job, rank=given.rank, kind=given.kind, now=now
    )  # fmt: skip
    print(f"http://{given.open}.{given.address}/.fumarole/open#token={token}")


if __name__ == "__main__":
    main()

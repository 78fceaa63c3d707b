"""The meaning of each refusal of the API server: one table for dry runs, submissions and patches.

- ``final``: a repetition would be refused as well. A dry run rejects the job; a submission ends it.
- ``waits``: the refusal passes once an operator acts, or another object is ready. The job waits,
  with a reason.
- ``retried``: the refusal passes by itself. The call is repeated with backoff up to a minute, or as
  the server's ``Retry-After`` says, until it succeeds or somebody ends the job.

The first row that applies decides. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from controller.kube.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unavailable,
)
from shared.errors import FumaroleError

Call = Literal["dry_run", "submission", "patch"]
Verdict = Literal["final", "waits", "retried"]
CALLS: Final[tuple[Call, ...]] = ("dry_run", "submission", "patch")

_DENIED: Final = re.compile(r"admission webhook \S+ denied the request|denied request: ")
_TOO_LARGE: Final = re.compile(
    r"request is too large|Request entity too large|trying to send message larger than max"
    r"|Too long: (?:must have|may not be) (?:at most|more than)"
)
_WEBHOOK_FAILS: Final = re.compile(r"failed (?:calling|to call) webhook")
_QUOTA: Final = re.compile(r"(?:exceeded|failed) quota: ")
_ENDING: Final = re.compile(r"because it is being terminated")
_NO_DRY_RUN: Final = "does not support dry run"
QUEUE_NOT_OPEN: Final = re.compile(r"to queue with state|failed to get list queues")
"""Volcano's webhook, about a queue. A closed queue may open again."""
QUEUE_UNSEEN: Final = "unable to find job queue"
"""Volcano's webhook: there is no such queue, or its cache lags and the queue is new."""


class NameTaken(FumaroleError):
    """An object with a name that a job needs exists, and belongs to another owner."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of refusal: its test, its meaning for each call, and the reason."""

    name: str
    fits: Callable[[KubeError], bool]
    means: Mapping[Call, Verdict]
    reason: str


def _always(verdict: Verdict) -> Mapping[Call, Verdict]:
    return MappingProxyType(dict.fromkeys(CALLS, verdict))


def _but_dry_run(dry_run: Verdict, others: Verdict) -> Mapping[Call, Verdict]:
    return MappingProxyType({**dict.fromkeys(CALLS, others), "dry_run": dry_run})


def _says(pattern: re.Pattern[str]) -> Callable[[KubeError], bool]:
    return lambda error: pattern.search(error.message) is not None


def _refuses(error: KubeError) -> bool:
    # Admission may use any code; 429 and 5xx mean *later*.
    return 400 <= error.status < 500 and error.status != 429


def _denies_for_now(error: KubeError) -> bool:
    later = error.status == 429 or error.status >= 500
    return later and _DENIED.search(error.message) is not None


def _is(*kinds: type[KubeError]) -> Callable[[KubeError], bool]:
    return lambda error: isinstance(error, kinds)


TABLE: Final[tuple[Row, ...]] = (
    # A webhook with side effects: the refusal says nothing about the job.
    Row("no dry run", lambda e: e.status == 400 and _NO_DRY_RUN in e.message,
        _always("retried"), "preparing"),
    # 413 by the server; 500 by etcd, which accepts 1.5 MiB.
    Row("too large", lambda e: e.status == 413 or _says(_TOO_LARGE)(e), _always("final"), ""),
    # Its message may contain the message of a denial, so this row comes before the denials.
    Row("webhook fails", lambda e: e.status >= 500 and _says(_WEBHOOK_FAILS)(e),
        _always("retried"), "preparing"),
    Row("queue not open", lambda e: _refuses(e) and _says(QUEUE_NOT_OPEN)(e),
        _always("waits"), "preparing"),
    # The caller of the dry run knows whether the job named the queue, or the controller creates it.
    Row("queue unseen", lambda e: _refuses(e) and QUEUE_UNSEEN in e.message,
        _but_dry_run("final", "waits"), "preparing"),
    Row("quota", lambda e: _refuses(e) and _says(_QUOTA)(e),
        _but_dry_run("final", "waits"), "forbidden"),
    Row("denied", lambda e: _refuses(e) and _says(_DENIED)(e), _always("final"), ""),
    Row("denied for now", _denies_for_now, _always("retried"), "preparing"),
    Row("namespace ends", lambda e: _refuses(e) and _says(_ENDING)(e),
        _always("waits"), "preparing"),
    # Its namespace, or the permissions in it, do not exist yet.
    Row("not found", _is(NotFound, NotServed), _always("waits"), "preparing"),
    Row("not allowed", _is(Forbidden, Unauthorized), _always("waits"), "forbidden"),
    Row("changed meanwhile", _is(AlreadyExists, Conflict, Expired), _always("retried"), ""),
    # A failed test of a patch is not the job's fault: the object is read again.
    Row("patch does not apply", lambda e: e.status == 422 and not e.details.get("causes")
        and "error in our request" in e.message, _always("retried"), ""),
    Row("invalid", _is(Invalid), _always("final"), ""),
    Row("busy", _is(Throttled), _always("retried"), ""),
    Row("failed", _is(Unavailable), _always("retried"), ""),
    Row("anything else", lambda _: True, _always("retried"), "preparing"),
)  # fmt: skip


def row_of(refusal: KubeError) -> Row:
    """Return the row that applies."""
    return next(row for row in TABLE if row.fits(refusal))


def verdict_on(refusal: KubeError, call: Call) -> Verdict:
    """Return what *refusal* means to the call."""
    return row_of(refusal).means[call]


def may_be_there(refusal: KubeError) -> bool:
    """Return whether an object whose creation got this *refusal* may exist already.

    Admission precedes the lookup of the name: a quota that this very object exhausts, or a webhook
    that admits no more of its kind, refuses an object that an earlier call created.
    """
    answered = refusal.status in (400, 403, 422) or refusal.status >= 500
    return isinstance(refusal, AlreadyExists) or answered


def reason_of(refusal: KubeError, looked: NotFound | Forbidden) -> KubeError:
    """Return the error of a creation: *refusal*, unless the existing object is unreadable."""
    missing = isinstance(refusal, AlreadyExists) and isinstance(looked, Forbidden)
    return looked if missing else refusal

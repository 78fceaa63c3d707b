"""Tests the table of the API server's refusals, and its copy in docs/controller.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.jobs.cluster.verdicts import CALLS, TABLE, may_be_there, row_of
from controller.kube.errors import KubeError, Unavailable, error_from

VOLCANO = 'admission webhook "validatejob.volcano.sh" denied the request: '
SITE = 'admission webhook "site.example.com" denied the request: '
MINE = 'jobs.batch.volcano.sh "j-j1" is forbidden: '
CAUSES = {"causes": [{"field": "spec.clusterIPs[0]", "message": "field is immutable"}]}


def refusal(status: int, message: str, details: Any = None, reason: str = "") -> KubeError:
    return error_from(status, {"message": message, "details": details or {}, "reason": reason})


@pytest.mark.parametrize(
    ("error", "name", "dry_run", "submission", "patch"),
    [
        (refusal(413, "Request entity too large: limit is 3145728"), "too large", "final", "final",
         "final"),
        (refusal(500, "etcdserver: request is too large"), "too large", "final", "final", "final"),
        (refusal(500, "rpc error: code = ResourceExhausted desc = trying to send message larger "
                      "than max (2100000 vs. 2097152)"), "too large", "final", "final", "final"),
        (refusal(500, 'Internal error occurred: failed calling webhook "x": failed to call '
                      'webhook: Post "https://…": context deadline exceeded'), "webhook fails",
         "retried", "retried", "retried"),
        (refusal(500, 'failed calling webhook "x": admission webhook "y" denied the request: no'),
         "webhook fails", "retried", "retried", "retried"),
        (refusal(400, VOLCANO + "can only submit job to queue with state `Open`, queue `q` status "
                                "is `Closed`;"), "queue not open", "waits", "waits", "waits"),
        (refusal(400, VOLCANO + "failed to get list queues; x"), "queue not open", "waits",
         "waits", "waits"),
        (refusal(400, VOLCANO + "unable to find job queue: queue \"q\" not found;"),
         "queue unseen", "final", "waits", "waits"),
        (refusal(403, MINE + "exceeded quota: q, requested: count/jobs.batch.volcano.sh=1"),
         "quota", "final", "waits", "waits"),
        (refusal(403, SITE + "no"), "denied", "final", "final", "final"),
        (refusal(400, VOLCANO + "unable to find job plugin: ray"), "denied", "final", "final",
         "final"),
        (refusal(403, MINE + "unable to create new content in namespace x because it is being "
                             "terminated"), "namespace ends", "waits", "waits", "waits"),
        (refusal(404, 'namespaces "x" not found'), "not found", "waits", "waits", "waits"),
        (refusal(403, MINE + 'User "u" cannot create resource'), "not allowed", "waits", "waits",
         "waits"),
        (refusal(401, "Unauthorized"), "not allowed", "waits", "waits", "waits"),
        (refusal(409, "already exists", reason="AlreadyExists"), "changed meanwhile", "retried",
         "retried", "retried"),
        (refusal(422, "the server rejected our request due to an error in our request"),
         "patch does not apply", "retried", "retried", "retried"),
        (refusal(422, 'Service "s" is invalid: spec.clusterIPs[0]: immutable', CAUSES), "invalid",
         "final", "final", "final"),
        (refusal(400, 'strict decoding error: unknown field "spec.x"'), "invalid", "final",
         "final", "final"),
        (refusal(400, 'admission webhook "old" does not support dry run'), "no dry run",
         "retried", "retried", "retried"),
        (refusal(429, "too many requests"), "busy", "retried", "retried", "retried"),
        (refusal(429, SITE + "later"), "denied for now", "retried", "retried", "retried"),
        (refusal(503, SITE + "not now"), "denied for now", "retried", "retried", "retried"),
        (refusal(500, "Internal error occurred: etcdserver: request timed out"), "failed",
         "retried", "retried", "retried"),
        (Unavailable("it did not answer"), "failed", "retried", "retried", "retried"),
        (refusal(418, "a teapot"), "anything else", "retried", "retried", "retried"),
    ],
)  # fmt: skip
def test_each_refusal_has_one_verdict(
    error: KubeError, name: str, dry_run: str, submission: str, patch: str
) -> None:
    row = row_of(error)
    means = row.means["dry_run"], row.means["submission"], row.means["patch"]
    assert (row.name, *means) == (name, dry_run, submission, patch)


def test_the_documented_verdicts_match_the_table() -> None:
    docs = (Path(__file__).parents[4] / "docs" / "controller.md").read_text()
    for row in TABLE:
        means = [row.means[call] for call in CALLS]
        documented = means[0] if len(set(means)) == 1 else f"{means[0]}; then {means[1]}"
        assert f"| {row.name} |" in docs, row.name
        (line,) = [one for one in docs.splitlines() if one.startswith(f"| {row.name} |")]
        assert line.endswith(f"| {documented} | {f'`{row.reason}`' if row.reason else ''} |"), line


@pytest.mark.parametrize(
    ("status", "expected"),
    # Without a response, or if the server is busy, the request is retried unchanged.
    [(400, True), (403, True), (422, True), (500, True), (404, False), (429, False), (0, False)],
)
def test_an_admission_refusal_does_not_prove_absence(status: int, expected: bool) -> None:
    assert may_be_there(error_from(status, {})) is expected
    assert may_be_there(error_from(409, {"reason": "AlreadyExists"}))
    assert not may_be_there(error_from(409, {"reason": "Conflict"}))

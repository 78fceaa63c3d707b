"""Tests the API's audit records: changes and refused callers are recorded, secrets are not."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from shared.audit import LOGGER
from tests.controller.api.conftest import Api, service_token
from tests.controller.api.jobs import make_job, submit
from tests.shared.samples import ISSUER


class RecordingHandler(logging.Handler):
    """Keeps the log records that it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        own = vars(logging.makeLogRecord({}))
        self.lines.append({name: one for name, one in vars(record).items() if name not in own})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.lines if one["event"] == event]


@pytest.fixture
def kept() -> Iterator[RecordingHandler]:
    handler, logger = RecordingHandler(), logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


async def test_creations_changes_and_ends_are_audited_with_their_caller(
    api: Api, kept: RecordingHandler
) -> None:
    await submit(api, make_job("j1"), make_job("j2", time_allocation_seconds=60))
    await submit(api, make_job("j1"))  # a repeated request changes nothing
    items = [{"job": "j1", "rank": 0, "kind": "terminal"}]
    response = await (await api.client.post("/v1/sessions", json={"items": items})).json()
    sid = response["items"][0]["sid"]
    revoke = f"/v1/sessions/{sid}/revoke"
    assert (await api.client.post(revoke, json={"sub": "eve"})).status == 200
    assert (await api.client.post(revoke, json={"jti": "t1"})).status == 200
    assert (await api.client.post("/v1/keys/k1/revoke")).status == 200
    assert (await api.client.post("/v1/jobs/j2/extend", json={"seconds": 5})).status == 200
    assert (await api.client.post("/v1/maintenance", json={"action": "pause"})).status == 200
    assert (await api.client.delete(f"/v1/sessions/{sid}")).status == 200
    assert (await api.client.post("/v1/jobs/terminate", json={"items": ["j1", "x"]})).status == 200
    assert (await api.client.get("/v1/jobs")).status == 200
    assert [one["job"] for one in kept.of("created")] == ["j1", "j2", "j1"]
    assert kept.of("created")[2]["sid"] == sid
    revoked = [(one.get("revoked_subject"), one.get("jti"), one.get("kid")) for one in
               kept.of("revoked")]  # fmt: skip
    assert revoked == [("eve", None, None), (None, "t1", None), (None, None, "k1")]
    changed = [(one["operation"], one.get("job")) for one in kept.of("changed")]
    assert changed == [("POST /v1/jobs/{id}/extend", "j2"), ("POST /v1/maintenance", None)]
    assert [(one["job"], one.get("sid")) for one in kept.of("ended")] == [("j1", sid), ("j1", None)]
    for one in kept.lines:
        assert (one["issuer"], one["address"], one["outcome"]) == (ISSUER, "127.0.0.1", "success")
        assert one["subject"]


async def test_a_caller_without_valid_token_is_audited_without_subject(
    api: Api, kept: RecordingHandler
) -> None:
    forged = service_token(sub="root") + "x"
    for value in ("", "Basic cm9vdDpwdw==", f"Bearer {forged}"):
        response = await api.client.delete("/v1/jobs/j1?q=secret", headers={"Authorization": value})
        assert response.status == 401
    assert [one["reason"] for one in kept.of("refused")] == ["unauthorized"] * 3
    for one in kept.lines:
        assert one["operation"] == "DELETE /v1/jobs/{id}"
        assert not {"subject", "issuer", "job"} & one.keys()
    text = json.dumps(kept.lines)
    assert not [part for part in (*forged.split(".")[1:], "secret", "cm9vdDpwdw") if part in text]


async def test_a_refused_change_is_audited_and_a_refused_read_is_not(
    api: Api, kept: RecordingHandler
) -> None:
    assert (await api.client.get("/v1/jobs/nobody")).status == 404
    assert (await api.client.delete("/v1/jobs/nobody")).status == 404
    (one,) = kept.lines
    assert (one["event"], one["reason"], one["job"]) == ("refused", "not_found", "nobody")
    assert one["subject"]


async def test_a_flood_of_refusals_writes_twenty_records_and_a_count(
    api: Api, kept: RecordingHandler
) -> None:
    for _ in range(50):
        response = await api.client.get("/v1/jobs", headers={"Authorization": "Bearer x"})
        assert response.status == 401
    assert len(kept.lines) == 20
    await api.client.close()
    assert len(kept.lines) == 21
    assert kept.lines[-1]["count"] == 30
    assert kept.lines[-1]["address"] == "127.0.0.1"

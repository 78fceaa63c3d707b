from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller import learning
from controller.kube.errors import Unavailable
from controller.learning import keep_learning
from controller.volcano.capabilities import Capabilities

KIND = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}


class Server:
    """Answers with what it is given, one after the other, and then no more."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def openapi(self, path: str) -> Any:
        assert path == "apis/batch.volcano.sh/v1alpha1"
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def document(**properties: Any) -> dict[str, Any]:
    schema = {"x-kubernetes-group-version-kind": [KIND], "properties": properties}
    return {"components": {"schemas": {"job": schema}}}


async def test_what_was_learned_stays_until_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(learning, "AGAIN_SECONDS", 0.0)
    server: Any = Server(Unavailable("no"), {}, document(a={}), Unavailable("no"), document(b={}))
    learned: list[Capabilities] = []
    with pytest.raises(asyncio.CancelledError):
        await keep_learning(server, learned.append)
    assert [list((one.schema or {})["properties"]) for one in learned] == [["a"], ["b"]]

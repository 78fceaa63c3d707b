"""Tests signatures of messages: as Standard Webhooks specifies, verified as the docs say."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.webhooks.sender import make_message_id, sign

DOCS = (Path(__file__).parents[3] / "docs/controller-api.md").read_text()
# The specification's own example ("Verifying signatures").
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
OTHER = b"another secret of thirty-two byte"


def test_the_example_of_the_specification_has_its_signature() -> None:
    signature = sign(
        [KEY],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_message_id_is_stable_and_differs_after_a_restore() -> None:
    first = make_message_id("upd", 7, "me", "j1", 1.5)
    assert first == make_message_id("upd", 7, "me", "j1", 1.5)
    assert first.startswith("upd_7_")
    assert re.fullmatch(r"[a-z0-9_]{1,64}", first)
    others = [(8, "me", "j1", 1.5), (7, "me", "j2", 1.5), (7, "me", "j1", 2.5)]
    assert all(make_message_id("upd", number, *rest) != first for number, *rest in others)


@pytest.fixture(scope="module")
def verify() -> Callable[..., None]:
    """Return the function that the documentation gives to receivers."""
    found = re.search(r"## Webhooks\n.*?```python\n(.*?)```", DOCS, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    function: Callable[..., None] = names["verify"]
    return function


def headers(body: bytes, *keys: bytes, at: float | None = None) -> dict[str, str]:
    stamp = int(time.time() if at is None else at)
    signature = sign(keys, message_id="upd_1_x", timestamp=stamp, body=body)
    return {
        "webhook-id": "upd_1_x",
        "webhook-timestamp": str(stamp),
        "webhook-signature": signature,
    }


def test_the_documented_verification_accepts_signed_messages(
    verify: Callable[..., None],
) -> None:
    verify(headers(b"{}", KEY), b"{}", SECRET)
    # During a rotation of secrets both sign, in either order.
    verify(headers(b"{}", KEY, OTHER), b"{}", SECRET)
    verify(headers(b"{}", OTHER, KEY), b"{}", SECRET)


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (headers(b"{}", KEY), b"{ }"),
        (headers(b"{}", OTHER), b"{}"),
        (headers(b"{}", KEY, at=time.time() - 3600), b"{}"),
        (headers(b"{}", KEY, at=time.time() + 3600), b"{}"),
        (headers(b"{}", KEY) | {"webhook-id": "upd_2_x"}, b"{}"),
        (headers(b"{}", KEY) | {"webhook-signature": "v1,\u00e4 v2,x"}, b"{}"),
        (headers(b"{}", KEY) | {"webhook-signature": ""}, b"{}"),
    ],
)
def test_the_documented_verification_refuses_other_messages(
    verify: Callable[..., None], given: dict[str, str], body: bytes
) -> None:
    with pytest.raises(ValueError, match="webhook"):
        verify(given, body, SECRET)

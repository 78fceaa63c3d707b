"""A refusal's page needs nothing but itself, and lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from gateway.core.access.answers import REFUSALS, Refusal
from gateway.pages.assets import load_assets
from gateway.pages.errors import PageErrors
from gateway.pages.parts import Inside


def sources(policy: str, directive: str) -> list[str]:
    (found,) = [part.split() for part in policy.split("; ") if part.startswith(f"{directive} ")]
    return found[1:]


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=lambda refusal: refusal.code)
def test_what_stands_inside_is_what_the_policy_names(refusal: Refusal) -> None:
    errors = PageErrors(Inside(load_assets()), frame_ancestors="frame-ancestors 'self'", home=None)
    page = errors.render(refusal, b"text/html")
    text, policy = page.body.decode(), dict(page.fields)["Content-Security-Policy"]
    assert "/.fumarole/static/" not in text
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert sources(policy, "style-src") == [hash_of(style)]
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert set(map(hash_of, scripts)) <= set(sources(policy, "script-src"))
    assert all(one.startswith("'sha256-") for one in sources(policy, "script-src"))
    assert all(one.startswith("data:") for one in re.findall(r'<img src="([^"]*)"', text))

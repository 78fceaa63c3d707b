"""Tests built files: found, cacheable for good, and a helpful error if they are missing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from gateway.core.access.refusals import REFUSALS, Refusal
from gateway.pages.assets import Inside, load_assets
from gateway.pages.errors import PageErrors
from shared.errors import SettingsError
from tests.gateway.conftest import World


def test_a_missing_build_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load_assets(tmp_path)
    assert "make install" in refused.value.problems[0]


def test_an_incomplete_build_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"open.js": "open.ABC.js"}))
    with pytest.raises(SettingsError):
        load_assets(tmp_path)


def test_assets_are_found_only_by_their_hashed_names(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"open.js": "open.ABC.js"}))
    (tmp_path / "open.ABC.js").write_text("1")
    assets = load_assets(tmp_path)
    assert assets.url("open.js") == "/.fumarole/static/open.ABC.js"
    found = assets.find("open.ABC.js")
    assert found is not None
    assert (found.body, found.content_type) == (b"1", "text/javascript; charset=utf-8")
    assert found.compressed is None, "it would be larger"
    for other in ("open.js", "manifest.json", "../manifest.json", ""):
        assert assets.find(other) is None


async def test_assets_are_served_as_immutable_on_every_session_host(world: World) -> None:
    name = load_assets().url("pages.css")
    ended = await world.publish()
    await world.remove(ended)
    for sid in (await world.publish(), ended):
        response = await world.gateway.ask(sid, "GET", name)
        assert response.status == 200
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["content-type"] == "text/css; charset=utf-8"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in response.headers
        head = await world.gateway.ask(sid, "HEAD", name)
        assert (head.status, head.headers["content-length"]) == (200, str(len(response.body)))


async def test_a_script_is_compressed_for_clients_that_accept_it(world: World) -> None:
    sid, name = await world.publish(), load_assets().url("terminal.js")
    plain = await world.gateway.ask(sid, "GET", name)
    assert "content-encoding" not in plain.headers
    for method in ("GET", "HEAD"):
        sent = await world.gateway.ask(sid, method, name, {"Accept-Encoding": "br, gzip"})
        assert sent.headers["content-encoding"] == "gzip"
        assert sent.headers["content-type"] == plain.headers["content-type"]
        assert int(sent.headers["content-length"]) < len(plain.body) / 3
        assert method == "HEAD" or gzip.decompress(sent.body) == plain.body
    refused = await world.gateway.ask(sid, "GET", name, {"Accept-Encoding": "gzip;q=0"})
    assert refused.body == plain.body
    assert plain.headers["vary"] == sent.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "path",
    ["x.js", "manifest.json", ".stamp", "", "../state", "%2e%2e/%2e%2e/settings.py", "a/b.js"],
)
async def test_no_other_file_is_served(world: World, path: str) -> None:
    sid = await world.publish()
    response = await world.gateway.ask(sid, "GET", f"/.fumarole/static/{path}")
    assert response.status in (401, 404)


async def test_the_licences_of_what_is_bundled_are_served_too(world: World) -> None:
    sid = await world.publish()
    response = await world.gateway.ask(sid, "GET", load_assets().url("licences.txt"))
    assert "Mozilla Public License" in response.text
    assert "xterm" in response.text


def sources(policy: str, directive: str) -> list[str]:
    (found,) = [part.split() for part in policy.split("; ") if part.startswith(f"{directive} ")]
    return found[1:]


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=lambda refusal: refusal.code)
def test_inline_code_matches_the_hashes_of_the_policy(refusal: Refusal) -> None:
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

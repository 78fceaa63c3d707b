from __future__ import annotations

import itertools

import pytest

from gateway.core.access.site import Site
from gateway.core.http.heads import Provenance
from tests.corpora import read_lines

OWN = b"https://s.apps.example.com"
FOREIGN = b"https://evil.example"


def judged(
    *,
    origin: bytes | None = None,
    site: bytes | None = None,
    mode: bytes | None = None,
    dest: bytes | None = None,
    method: bytes = b"GET",
    upgrade: bool = False,
    framed: bool = False,
) -> bool:
    said = Provenance(origin, site, mode, dest)
    embed_origins = ("https://portal.example",) if framed else ()
    here = Site(scheme="https", base="apps.example.com", port=443, embed_origins=embed_origins)
    return here.allows_origin("s.apps.example.com", said, method=method, upgrade=upgrade)


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS"])
def test_the_own_origin_is_always_allowed(method: bytes) -> None:
    assert judged(origin=OWN, method=method)
    assert judged(origin=OWN, method=method, site=b"cross-site")


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [FOREIGN, b"null", b"http://s.apps.example.com", b"https://s.apps.example.com:443",
     b"https://t.apps.example.com", b"HTTPS://S.APPS.EXAMPLE.COM", b"", b"https://apps.example.com"],
)  # fmt: skip
def test_another_origin_is_always_refused(method: bytes, origin: bytes) -> None:
    assert not judged(origin=origin, method=method)
    assert not judged(origin=origin, method=method, site=b"same-origin")
    assert not judged(origin=origin, method=method, site=b"none", mode=b"cors", dest=b"empty")


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_without_origin_sec_fetch_site_decides(method: bytes) -> None:
    assert judged(site=b"same-origin", method=method)
    assert judged(site=b"none", method=method)
    for site in (b"same-site", b"cross-site", b"", b"Same-Origin", b"none, none", b"no-cors"):
        assert not judged(site=site, method=method)


def test_requests_without_origin_and_fetch_metadata_may_only_read() -> None:
    assert judged(method=b"GET")
    assert judged(method=b"HEAD")
    for method in (b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"PROPFIND", b"QUERY"):
        assert not judged(method=method)


def navigated(dest: bytes | None, *, method: bytes = b"GET", framed: bool = False) -> bool:
    return judged(site=b"cross-site", mode=b"navigate", dest=dest, method=method, framed=framed)


def test_cross_site_links_are_allowed_only_at_the_top_level() -> None:
    assert navigated(b"document")
    assert not navigated(b"document", method=b"POST")
    assert not navigated(b"document", method=b"HEAD")
    for dest in (b"iframe", b"frame"):
        assert not navigated(dest)
        assert navigated(dest, framed=True)
    for other in (b"embed", b"object", b"empty", b"script", None):
        assert not navigated(other, framed=True)


def test_an_upgrade_needs_the_exact_origin() -> None:
    assert judged(origin=OWN, upgrade=True, site=b"cross-site")
    for origin in (None, b"null", FOREIGN, b"https://t.apps.example.com"):
        assert not judged(origin=origin, upgrade=True, site=b"same-origin")
        assert not judged(origin=origin, upgrade=True, mode=b"navigate", dest=b"document")


def test_no_field_combination_of_a_foreign_script_is_allowed() -> None:
    sites = [b"cross-site", b"same-site"]
    modes = [None, b"cors", b"no-cors", b"same-origin", b"websocket"]
    dests = [None, b"empty", b"document", b"iframe", b"image"]
    methods = [b"GET", b"HEAD", b"POST", b"OPTIONS"]
    for site, mode, dest, method in itertools.product(sites, modes, dests, methods):
        assert not judged(site=site, mode=mode, dest=dest, method=method, framed=True)


def test_every_origin_of_the_corpus_is_judged_as_recorded() -> None:
    wrong = []
    for line in read_lines("origins"):
        expected, method, framed, *said = line.split(" | ")
        origin, site, mode, dest = (None if one == "-" else one.encode() for one in said)
        allowed = judged(
            origin=origin,
            site=site,
            mode=mode,
            dest=dest,
            method=b"GET" if method == "UPGRADE" else method.encode(),
            upgrade=method == "UPGRADE",
            framed=framed == "framed",
        )
        if allowed != (expected == "yes"):
            wrong.append(line)
    assert not wrong

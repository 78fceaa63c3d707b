from __future__ import annotations

import pytest

from gateway.core.access.site import Site

SID = "a" * 26
HTTPS = Site(
    scheme="https", base="apps.example.com", port=443, embed_origins=("https://e.example",)
)
LOCAL = Site(scheme="http", base="localhost", port=8080)


def test_the_public_url_decides_cookie_name_and_frame_ancestors() -> None:
    assert HTTPS.cookie_name == b"__Host-fumarole"
    assert LOCAL.cookie_name == b"fumarole"
    assert HTTPS.frame_ancestors == "frame-ancestors 'self' https://e.example"
    assert LOCAL.frame_ancestors == "frame-ancestors 'self'"


def test_origins_have_a_port_unless_it_is_the_default() -> None:
    assert HTTPS.origin_of("a.apps.example.com") == "https://a.apps.example.com"
    assert LOCAL.origin_of("a.localhost") == "http://a.localhost:8080"


@pytest.mark.parametrize(
    ("site", "value", "host"),
    [
        (HTTPS, "a.Apps.Example.com", "a.apps.example.com"),
        (HTTPS, "a.apps.example.com:443", "a.apps.example.com"),
        (HTTPS, "a.apps.example.com:80", None),
        (HTTPS, "a.apps.example.com:", None),
        (HTTPS, "a.apps.example.com.", None),
        (HTTPS, "a.apps.example.com.:443", None),
        (HTTPS, "[::1]", None),
        (LOCAL, "a.localhost:8080", "a.localhost"),
        (LOCAL, "a.localhost", None),
        (LOCAL, "a.localhost:0008080", None),
    ],
)
def test_a_host_must_have_the_public_port(site: Site, value: str, host: str | None) -> None:
    assert site.host_of(value) == host


@pytest.mark.parametrize(
    "host",
    [f"{SID}x.localhost", f"{SID[1:]}.localhost", f"{SID[1:]}1.localhost", f"{SID}.other",
     "localhost", f"{SID}", f"x.{SID}.localhost", f"{SID[1:]}A.localhost"],
)  # fmt: skip
def test_malformed_session_hosts_are_not_recognised(host: str) -> None:
    assert LOCAL.sid_of(host) is None


def test_a_session_host_is_recognised_by_its_form() -> None:
    assert LOCAL.sid_of(f"{SID}.localhost") == SID

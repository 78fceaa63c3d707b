"""The settings of a gateway, read from the environment once at start.

All problems are reported together. docs/settings.md has each setting's meaning, unit and default.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from gateway.assertion_keys import load_assertion_keys
from gateway.core.access.site import DEFAULT_PORTS, Site
from gateway.core.limits.values import ADJUSTABLE, Limits
from gateway.relay.dial import make_upstream_tls
from gateway.tls import make_tls_context
from shared.bus import check_url
from shared.errors import BadKeySet
from shared.jose.jwks import read_key_source
from shared.jose.jws import KeySet, read_key_set
from shared.log import LogSettings, read_log_settings
from shared.networks import Network
from shared.settings import (
    Environment,
    count,
    existing_file,
    issuer_identifier,
    key_file,
    listen_address,
    networks,
    or_exit,
    origin,
    origins,
    public_url,
    replaceable_file,
    seconds,
    setting,
    web_url,
    yes_or_no,
)

ListenAddress = tuple[str, int]

_STAND_IN_KEYS: Final[tuple[bytes, ...]] = (b"\0" * 32,)


# Parsers: each raises ValueError with the reason.


def _public_url(raw: str) -> SplitResult:
    url = public_url(raw)
    if (url.hostname or "").endswith("."):
        raise ValueError("the host must be a name without a final dot")
    return url


def _authorities(raw: str) -> Path:
    path = existing_file(raw)
    try:
        make_upstream_tls(path)
    except ssl.SSLError:
        raise ValueError(f"{path} holds no certificate in PEM form") from None
    return path


def _network_of_host(raw: str) -> tuple[Network, ...]:
    try:
        return (ip_network(raw),)
    except ValueError:
        return ()


def _assertion_keys(raw: str) -> Path:
    path = Path(raw)
    load_assertion_keys(path)
    return path


def _at_least(least: float) -> Callable[[str], float]:
    def parse(raw: str) -> float:
        value = seconds(raw)
        if value < least:
            raise ValueError(f"less than {least:g} seconds")
        return value

    return parse


def _some_networks(raw: str) -> tuple[Network, ...]:
    found = networks(raw)
    if not found:
        raise ValueError("no network is named")
    return found


def _instance(raw: str) -> str:
    if not (raw.isascii() and raw.replace("-", "").isalnum() and raw == raw.lower()):
        raise ValueError("an instance name has lower-case letters, digits and '-' only")
    return raw


def _key_set_file(raw: str) -> KeySet:
    try:
        return read_key_set(Path(raw).read_bytes())
    except BadKeySet as error:
        raise ValueError(str(error)) from None


def _job_url(value: str) -> str:
    """Return the URL template of a job's page, which may hold ``{job}`` and ``{sid}``."""
    filled = value.replace("{job}", "j").replace("{sid}", "s")
    parts = urlsplit(filled)
    web_url(parts._replace(query="", fragment="").geturl())
    if set('{}"<>\\^`| ') & set(filled):
        raise ValueError("not a URL with no placeholders but {job} and {sid}")
    # A placeholder must not choose the host.
    if not value.startswith(f"{parts.scheme}://{parts.netloc}"):
        raise ValueError("{job} and {sid} may be in the path, query and fragment only")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The gateway's settings; its ``repr`` holds no secret."""

    instance: str = setting("FUMAROLE_INSTANCE", _instance, "default")
    redis_url: str = field(repr=False)
    link_keys: tuple[bytes, ...] = field(repr=False)
    listen: ListenAddress = setting("FUMAROLE_GATEWAY_LISTEN", listen_address, ("0.0.0.0", 8080))
    ops_listen: ListenAddress = setting(
        "FUMAROLE_GATEWAY_OPS_LISTEN", listen_address, ("127.0.0.1", 8090)
    )
    site: Site
    token_issuer: str
    token_jwks: str
    grant_keys: tuple[bytes, ...] = field(repr=False)
    assertion_key_file: Path | None = setting(
        "FUMAROLE_GATEWAY_ASSERTION_KEY_FILE", _assertion_keys
    )
    upstream_networks: tuple[Network, ...]
    route_keys: KeySet | None = setting("FUMAROLE_GATEWAY_ROUTE_KEYS", _key_set_file)
    open_origins: tuple[str, ...]
    orchestrator_url: str | None = setting("FUMAROLE_GATEWAY_ORCHESTRATOR_URL", _job_url)
    end_notice_seconds: float = setting("FUMAROLE_GATEWAY_END_NOTICE_SECONDS", seconds, 600.0)
    bus_grace_seconds: float = setting("FUMAROLE_GATEWAY_BUS_GRACE_SECONDS", seconds, 300.0)
    controller_grace_seconds: float = setting(
        "FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS", seconds, 300.0
    )
    workers: int = setting("FUMAROLE_GATEWAY_WORKERS", count(1, 256), 1)
    drain_seconds: float = setting("FUMAROLE_GATEWAY_DRAIN_SECONDS", seconds, 30.0)
    drain_delay_seconds: float = setting("FUMAROLE_GATEWAY_DRAIN_DELAY_SECONDS", seconds, 0.0)
    upstream_ca_file: Path | None = setting("FUMAROLE_GATEWAY_UPSTREAM_CA_FILE", _authorities)
    refused_networks: tuple[Network, ...]
    limits: Limits
    tls_cert_file: Path | None = setting("FUMAROLE_GATEWAY_TLS_CERT_FILE", existing_file)
    tls_key_file: Path | None = setting("FUMAROLE_GATEWAY_TLS_KEY_FILE", existing_file)
    address_file: Path | None = setting("FUMAROLE_GATEWAY_ADDRESS_FILE", replaceable_file)
    log: LogSettings

    @property
    def home(self) -> str | None:
        """The orchestrator's site, for links back: the issuer's origin if it may open sessions."""
        found = _origin_of(self.token_issuer)
        return found if found in self.open_origins else None


def read_settings(values: Mapping[str, str] | None = None) -> Settings:
    """Return the settings, or end the process with every problem listed, exit code 2."""
    return or_exit(settings_from, values, prefix="FUMAROLE_GATEWAY_")


def settings_from(env: Environment) -> Settings:
    """Return the settings in *env*; usable only if ``env.check()`` raises nothing."""
    issuer = env.required("FUMAROLE_GATEWAY_TOKEN_ISSUER", issuer_identifier, "")
    settings = Settings(
        **env.fields(Settings),
        redis_url=env.value("FUMAROLE_REDIS_URL", check_url, "redis://127.0.0.1:6379/0"),
        link_keys=env.required("FUMAROLE_LINK_KEY_FILE", key_file, _STAND_IN_KEYS),
        site=_site(env),
        token_issuer=issuer,
        token_jwks=read_key_source(env, "FUMAROLE_GATEWAY_TOKEN_JWKS"),
        grant_keys=env.required("FUMAROLE_GATEWAY_GRANT_KEY_FILE", key_file, _STAND_IN_KEYS),
        upstream_networks=env.required("FUMAROLE_GATEWAY_UPSTREAM_NETWORKS", _some_networks, ()),
        open_origins=_open_origins(env, issuer),
        refused_networks=_refused_networks(env),
        limits=_limits(env),
        log=read_log_settings(env),
    )
    _check_keys(env, settings.link_keys, settings.grant_keys)
    _warn_of_siblings(env, settings.site)
    _check_tls(env, settings.tls_cert_file, settings.tls_key_file)
    env.check_authorities()
    env.check_addresses(
        {
            "FUMAROLE_GATEWAY_LISTEN": settings.listen,
            "FUMAROLE_GATEWAY_OPS_LISTEN": settings.ops_listen,
        }
    )
    return settings


def _site(env: Environment) -> Site:
    url = env.required("FUMAROLE_GATEWAY_PUBLIC_URL", _public_url, urlsplit("http://localhost"))
    return Site(
        scheme="http" if url.scheme == "http" else "https",
        base=url.hostname or "",
        port=url.port or DEFAULT_PORTS[url.scheme],
        embed_origins=env.value("FUMAROLE_GATEWAY_EMBED_ORIGINS", origins, ()),
        trusted_proxies=env.value("FUMAROLE_GATEWAY_TRUSTED_PROXIES", networks, ()),
        # If the gateway itself terminates TLS, browsers can reach it by https only.
        strict_transport=bool(env.optional("FUMAROLE_GATEWAY_TLS_CERT_FILE", str)),
    )


def _warn_of_siblings(env: Environment, site: Site) -> None:
    listed = env.value("FUMAROLE_GATEWAY_PUBLIC_SUFFIX", yes_or_no, False)
    if site.scheme == "https" and not listed:
        env.warning(
            "FUMAROLE_GATEWAY_PUBLIC_SUFFIX",
            f"is not yes: unless {site.base} is on the Public Suffix List, the apps of one session "
            "can set cookies for all others",
        )


def _refused_networks(env: Environment) -> tuple[Network, ...]:
    """Return networks that hold no target, besides special-purpose ones: the API server."""
    given = env.optional("FUMAROLE_GATEWAY_REFUSED_NETWORKS", networks) or ()
    # Kubernetes sets this in every container, as an IP address by default.
    return (*given, *(env.optional("KUBERNETES_SERVICE_HOST", _network_of_host) or ()))


def _limits(env: Environment) -> Limits:
    usual, values = Limits(), dict[str, Any]()
    for name, least in ADJUSTABLE.items():
        default: float = getattr(usual, name)
        parse = count(0, 10**9) if isinstance(default, int) else _at_least(least)
        values[name] = env.value(f"FUMAROLE_GATEWAY_{name.upper()}", parse, default)
    memory = env.optional("FUMAROLE_GATEWAY_WORKER_MEMORY_BYTES", count(0, 1 << 50))
    return replace(usual, **values, worker_memory_bytes=memory)


def _open_origins(env: Environment, issuer: str) -> tuple[str, ...]:
    given = env.optional("FUMAROLE_GATEWAY_OPEN_ORIGINS", origins)
    if given is not None:
        return given
    # An issuer need not be a URL (RFC 7519, section 4.1.1); then no origin is allowed.
    found = _origin_of(issuer)
    return (found,) if found is not None else ()


def _origin_of(issuer: str) -> str | None:
    try:
        url = web_url(issuer)
        return origin(f"{url.scheme}://{url.netloc}")
    except ValueError:
        return None


def _check_keys(env: Environment, link: tuple[bytes, ...], grant: tuple[bytes, ...]) -> None:
    if set(link) & set(grant) - set(_STAND_IN_KEYS):
        env.problem(
            "FUMAROLE_GATEWAY_GRANT_KEY_FILE",
            "shares a key with FUMAROLE_LINK_KEY_FILE; the controller must not know it",
        )


def _check_tls(env: Environment, certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        missing = "KEY" if key is None else "CERT"
        env.problem(f"FUMAROLE_GATEWAY_TLS_{missing}_FILE", "is not set, but the other file is")
    if certificate is not None and key is not None:
        try:
            make_tls_context(certificate, key)
        except OSError as error:
            env.problem("FUMAROLE_GATEWAY_TLS_CERT_FILE", f"and its key cannot be used: {error}")

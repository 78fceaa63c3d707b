"""Reads settings from the environment and reports every problem at once."""

from __future__ import annotations

import base64
import binascii
import difflib
import ipaddress
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, fields
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn, TypeVar, overload
from urllib.parse import SplitResult, urlsplit

from shared.errors import SettingsError
from shared.networks import Network
from shared.text import decimal_number, whole_number

T = TypeVar("T")

_SETTING = "setting"

EXIT_BAD_SETTINGS = 2
MIN_KEY_BYTES = 32
_LISTEN_HOST = re.compile(r"[-A-Za-z0-9_.:%]+", re.ASCII)
_HOST = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
# Variables that Kubernetes sets in every container for a Service named like a program of ours.
_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
_OURS = "FUMAROLE_"
_PROGRAMS = ("FUMAROLE_CONTROLLER_", "FUMAROLE_GATEWAY_", "FUMAROLE_PLUGIN_")
"""A program knows all settings with its own prefix, but not those of the other program."""
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Environment:
    """Reads settings and collects their problems.

    Each method returns a valid value, also after a problem. Call :meth:`check` before you use any
    of the values.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._known: set[str] = set()

    def unknown(self, *prefixes: str) -> list[str]:
        """Return variables with a prefix that are no settings, once all settings have been read.

        A misspelt name would leave a default in force, and some defaults are wider than the
        intended value. A name without any program's prefix counts only if it resembles a setting.
        """
        found = []
        for name in sorted(self._values):
            own = name.startswith(prefixes)
            is_shared = name.startswith(_OURS) and not name.startswith(_PROGRAMS)
            if name in self._known or _SERVICE_LINK.fullmatch(name) or not (own or is_shared):
                continue
            meant = difflib.get_close_matches(name, sorted(self._known), n=1, cutoff=0.8)
            if own or meant:
                found.append(f"{name} is no setting" + (f"; {meant[0]} is one" if meant else ""))
        return found

    def leave_out(self, names: Collection[str]) -> None:
        """Read these settings as not set: this process does not use them, nor has their files."""
        self._known.update(names)
        self._values = {name: one for name, one in self._values.items() if name not in names}

    def check(self) -> None:
        """Raise SettingsError with all problems, if there are any."""
        if self.problems:
            raise SettingsError(self.problems)

    def problem(self, name: str, text: str) -> None:
        """Record a problem with *name*; a repeated call changes nothing."""
        # One line: parsers of files explain a problem in several.
        if (problem := " ".join(f"{name} {text}".split())) not in self.problems:
            self.problems.append(problem)

    def has_problem(self, name: str) -> bool:
        """Return whether a problem with *name* is recorded."""
        return any(one.startswith(f"{name} ") for one in self.problems)

    def warning(self, name: str, text: str) -> None:
        """Record a warning: *name* allows something that its operator should know."""
        self.warnings.append(f"{name} {text}")

    def check_addresses(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Record settings that listen at an address which another one has; port 0 is any."""
        for (one, (host, port)), (other, (host_too, port_too)) in combinations(
            addresses.items(), 2
        ):
            if port == port_too != 0 and _overlap(host, host_too):
                self.problem(one, f"has the same address and port as {other}")

    def check_authorities(self) -> None:
        """Warn if ``SSL_CERT_FILE``, which Python's TLS reads, names no file: it says nothing."""
        file = self._values.get("SSL_CERT_FILE", "")
        if file and not os.access(file, os.R_OK):
            self.warning("SSL_CERT_FILE", f"names no file that can be read: {file}. Without it, "
                         "the certificates of https servers are not trusted")  # fmt: skip

    def is_set(self, name: str) -> bool:
        """Return whether *name* is set, to a valid value or not."""
        return bool(self._values.get(name, "").strip())

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return the parsed value, or None if it is not set."""
        self._known.add(name)
        raw = self._values.get(name, "").strip()
        if not raw:
            return None
        try:
            return parse(raw)
        except (ValueError, OSError) as error:
            # OSError's own text names the path, which the operator may see.
            self.problem(name, f"is wrong: {error}")
            return None

    def value(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Return the parsed value, or *default*."""
        parsed = self.optional(name, parse)
        return default if parsed is None else parsed

    def fields(self, model: type[Any]) -> dict[str, Any]:
        """Return the values of those fields of the dataclass *model* that are a :func:`setting`."""
        settings = {one.name: one.metadata.get(_SETTING) for one in fields(model)}
        return {name: self._read(*one) for name, one in settings.items() if one is not None}

    def _read(self, name: str, parse: Callable[[str], T], default: T | None) -> T | None:
        return self.optional(name, parse) if default is None else self.value(name, parse, default)

    def required(self, name: str, parse: Callable[[str], T], stand_in: T) -> T:
        """Return the parsed value; if it is missing, record that and return *stand_in*."""
        self._known.add(name)
        if not self.is_set(name):
            self.problem(name, "is not set")
            return stand_in
        return self.value(name, parse, stand_in)


@overload
def setting(name: str, parse: Callable[[str], T], default: T) -> T: ...
@overload
def setting(name: str, parse: Callable[[str], T]) -> T | None: ...
def setting(name: str, parse: Callable[[str], Any], default: object = None) -> Any:
    """Return the field of a dataclass that :meth:`Environment.fields` reads.

    Without a default its value is None if it is not set.
    """
    return field(metadata={_SETTING: (name, parse, default)})


def or_exit(
    read: Callable[[Environment], T],
    values: Mapping[str, str] | None = None,
    *,
    prefix: str | tuple[str, ...],
) -> T:
    """Return the result of *read*, or end the process with a list of every problem.

    A variable that begins with a *prefix* and is no setting causes a warning, also beside a
    problem: it may be the misspelt name of a missing setting. It is no error, since an older or
    newer version of the program may know it.
    """
    environment = Environment(values)
    try:
        settings = read(environment)
    except SettingsError as error:
        _exit(error)
    for warning in (
        *environment.warnings,
        *environment.unknown(*([prefix] if isinstance(prefix, str) else prefix)),
    ):
        print(f"warning: {warning}", file=sys.stderr)
    try:
        environment.check()
    except SettingsError as error:
        _exit(error)
    return settings


def _exit(error: SettingsError) -> NoReturn:
    for problem in error.problems:
        print(f"error: {problem}", file=sys.stderr)
    raise SystemExit(EXIT_BAD_SETTINGS)


# Parsers: each raises ValueError with the reason.


def text(raw: str) -> str:
    """Return *raw*."""
    return raw


def issuer_identifier(raw: str) -> str:
    """Return the ``iss`` of tokens: any visible text, usually a URL."""
    if not raw.isprintable():
        raise ValueError("has control characters")
    urlsplit(raw)  # raises ValueError for a URL that is none
    return raw


def seconds(raw: str) -> float:
    """Return a duration, 0 or more."""
    value = decimal_number(raw)
    if value is None or value >= 1e9:
        raise ValueError("not a number of seconds, 0 or more")
    return value


def count(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of integers from *least* to *most*."""

    def parse(raw: str) -> int:
        value = whole_number(raw, most=most)
        if value is None or value < least:
            raise ValueError(f"not a number from {least} to {most}")
        return value

    return parse


def one_of(*values: str) -> Callable[[str], str]:
    """Return a parser of one of *values*, in upper or lower case."""

    def parse(raw: str) -> str:
        for value in values:
            if raw.lower() == value.lower():
                return value
        raise ValueError(f"not one of {', '.join(values)}")

    return parse


def yes_or_no(raw: str) -> bool:
    """Return whether *raw* is ``yes``, ``true`` or ``1``, and not ``no``, ``false`` or ``0``."""
    if raw.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError("neither yes nor no")
    return raw.lower() in ("yes", "true", "1")


def on_or_off(raw: str) -> bool:
    """Return whether *raw* is ``on``, in upper or lower case, and not ``off``."""
    if raw.lower() not in ("on", "off"):
        raise ValueError("neither on nor off")
    return raw.lower() == "on"


def listen_address(raw: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port``; port 0 takes a free one."""
    host, _, port = raw.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    number = whole_number(port, most=65535)
    if not _LISTEN_HOST.fullmatch(host) or number is None:
        raise ValueError("not host:port")
    return host, number


def networks(raw: str) -> tuple[Network, ...]:
    """Return the networks in a list separated by commas."""
    return tuple(ipaddress.ip_network(part.strip()) for part in raw.split(",") if part.strip())


def _overlap(host: str, other: str) -> bool:
    """Return whether listeners at both have an address in common; ``::`` is IPv4's, too."""
    for wildcard, one in ((host, other), (other, host)):
        if is_unspecified(wildcard) and (wildcard == "::" or ":" not in one):
            return True
    return host == other


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback_name(host: str) -> bool:
    """Return whether *host* is always this machine: localhost, a name below it, or loopback."""
    if host in _LOOPBACK_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Return whether *host* means all addresses of a machine, which nobody can dial."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def web_url(raw: str, *, http_anywhere: bool = False) -> SplitResult:
    """Return an ``https`` URL without credentials, query or fragment.

    ``http`` is accepted only for this machine, unless *http_anywhere*.
    """
    url = urlsplit(raw)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("not an http or https URL")
    if not _HOST.fullmatch(url.hostname) and not _is_address(url.hostname):
        raise ValueError("not a host's name or address")
    if url.username is not None or url.query or url.fragment:
        raise ValueError("a URL here has no credentials, query or fragment")
    if url.scheme == "http" and not http_anywhere and not is_loopback_name(url.hostname):
        raise ValueError("http is for localhost, *.localhost and loopback addresses only")
    _ = url.port  # raises ValueError if it is no port
    return url


def public_url(raw: str, *, named: bool = True) -> SplitResult:
    """Return the URL below whose host sessions have theirs; ``http`` only on localhost.

    Unless it must be *named*, its host may be an address.
    """
    url = web_url(raw, http_anywhere=True)
    host = url.hostname or ""
    if url.path not in ("", "/"):
        raise ValueError("the public URL must have no path")
    if named and (_is_address(host) or host.replace(".", "").isdigit()):
        raise ValueError("sessions have hosts below this one, so it must be a name")
    if url.scheme == "http" and not is_loopback_name(host):
        raise ValueError("http is for localhost and names below it only")
    return url


def origin(raw: str) -> str:
    """Return a web origin (RFC 6454): scheme, host, and port unless it is the default."""
    url = web_url(raw)
    if url.path not in ("", "/"):
        raise ValueError("an origin has no path")
    default = {"http": 80, "https": 443}[url.scheme]
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port not in (None, default) else "")


def origins(raw: str) -> tuple[str, ...]:
    """Return the origins in a list separated by commas."""
    return tuple(origin(part.strip()) for part in raw.split(",") if part.strip())


def existing_file(raw: str) -> Path:
    """Return the path of a file that can be read."""
    path = Path(raw)
    with path.open("rb"):
        return path


def replaceable_file(raw: str) -> Path:
    """Return the path of a file that can be written beside and renamed into place."""
    path = Path(raw)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{path.parent} is no folder in which this process can write")
    return path


def writable_folder(path: Path) -> Path:
    """Return the absolute path of a folder in which this process can write, or which it can make.

    It is not made here: reading settings changes nothing, whoever checks them.
    """
    path = path.absolute()
    nearest = next(one for one in (path, *path.parents) if one.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"this process cannot write in {nearest}")
    return path


def key_file(raw: str) -> tuple[bytes, ...]:
    """Return the keys in a file: one a line, base64 of 32 random bytes or more."""
    keys = []
    try:
        lines = Path(raw).read_text("ascii").splitlines()
    except UnicodeError:  # whose message holds a byte of the file
        raise ValueError("not a text file with a key in base64 in each line") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            keys.append(_key(line.strip(), number))
    if not keys:
        raise ValueError("the file holds no key")
    if len(set(keys)) != len(keys):
        raise ValueError("the file holds a key twice")
    return tuple(keys)


def _key(line: str, number: int) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except binascii.Error:
        raise ValueError(f"line {number} is not base64") from None
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(
            f"the key in line {number} has {len(key)} bytes, less than {MIN_KEY_BYTES}"
        )
    if len(set(key)) < MIN_KEY_BYTES // 4:
        raise ValueError(f"the key in line {number} is not random")
    return key

"""The receivers of webhooks, from a file that operators write in YAML or JSON.

docs/controller-api.md, "Webhooks", describes it. Secrets are in separate files. Every problem is
reported with its path, and without the content of those files.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from controller.jobs.spec.field_types import SiteName
from controller.jobs.spec.parameters import Strict
from controller.site.yaml_file import read_declared
from shared.networks import Network
from shared.settings import web_url
from shared.tls import make_client_tls

MOST_RECEIVERS: Final = 16
MOST_SECRETS: Final = 8
PREFIX: Final = "whsec_"
LEAST_SECRET_BYTES: Final = 24
MOST_SECRET_BYTES: Final = 64
"""The length of a secret (Standard Webhooks, "Signature scheme")."""

# Listed here: settings are imported by modules that must not import the jobs' history.
StateName = Literal[
    "IN_QUEUE", "RUNNING", "SUSPENDED", "CANCELING", "SUCCESS", "FAILURE", "EXPIRED"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A receiver of updates, and the networks in which it may be.

    Attributes:
        name: The receiver's name.
        url: Its URL.
        secrets: Each of them signs every message, so that they can be rotated.
        networks: Allowed networks besides public addresses.
        authorities: A PEM file of its certificate authorities; None for the system's.
        states: Only updates with these states are sent; None: all.
    """

    name: str
    url: str
    secrets: tuple[bytes, ...] = field(repr=False)
    networks: tuple[Network, ...] = ()
    authorities: Path | None = None
    states: frozenset[str] | None = None


class ReceiverRow(Strict):
    """A receiver in the file; file names are relative to that file."""

    name: SiteName
    url: Annotated[str, Field(max_length=2000)]
    secret_file: str
    networks: Annotated[list[str], Field(max_length=64)] = Field(default_factory=list)
    http: bool = False
    ca_file: str | None = None
    states: Annotated[list[StateName], Field(min_length=1)] | None = None


class ReceiversFile(Strict):
    """The whole file."""

    receivers: Annotated[list[ReceiverRow], Field(max_length=MOST_RECEIVERS)] = Field(
        default_factory=list
    )


def read_receivers(raw: str) -> tuple[Receiver, ...]:
    """Return the receivers in the file *raw*.

    Raises:
        ValueError: With every problem of the file.
    """
    path = Path(raw)
    # Unquoted: somebody may have written a secret into it.
    rows = read_declared(path, ReceiversFile, quoted=False).receivers
    problems: list[str] = []
    receivers = []
    for number, row in enumerate(rows):
        try:
            receivers.append(_receiver(row, path.parent))
        except ValueError as error:
            problems.append(f"receivers[{number}]: {error}")
    if problems or (problems := _duplicates(receivers)):
        raise ValueError("; ".join(problems))
    return tuple(receivers)


def _duplicates(receivers: Sequence[Receiver]) -> list[str]:
    names = Counter(one.name for one in receivers)
    found = [f"two receivers are named {name}" for name, times in names.items() if times > 1]
    # A receiver could otherwise impersonate the controller towards another one.
    secrets = Counter(secret for one in receivers for secret in one.secrets)
    return found + ["two receivers share a secret"] * (secrets.total() > len(secrets))


def _receiver(row: ReceiverRow, folder: Path) -> Receiver:
    url = web_url(row.url, http_anywhere=row.http)
    if url.scheme == "http" and not row.http:
        raise ValueError("url: must be https unless http is true")
    return Receiver(
        name=row.name,
        url=url.geturl(),
        secrets=_secrets(folder / row.secret_file),
        networks=tuple(map(_network, row.networks)),
        authorities=None if row.ca_file is None else _authorities(folder / row.ca_file),
        states=None if row.states is None else frozenset(row.states),
    )


def _network(raw: str) -> Network:
    try:
        return ip_network(raw)
    except ValueError as error:
        raise ValueError(f"networks: {error}") from None


def _authorities(path: Path) -> Path:
    try:
        make_client_tls(path)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"ca_file: {error}") from None
    return path


def _secrets(path: Path) -> tuple[bytes, ...]:
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        # Without the file's name: it may be the secret itself.
        raise ValueError(f"secret_file: {error.strerror}") from None
    except ValueError:  # not ASCII, or an invalid file name
        raise ValueError("secret_file: not a text file") from None
    found = tuple(
        _secret(line.strip(), number) for number, line in enumerate(lines, 1) if line.strip()
    )
    if not found or len(found) > MOST_SECRETS or len(set(found)) < len(found):
        raise ValueError(f"secret_file: must have 1 to {MOST_SECRETS} different secrets")
    return found


def _secret(line: str, number: int) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"secret_file: line {number} is not base64") from None
    if not LEAST_SECRET_BYTES <= len(secret) <= MOST_SECRET_BYTES:
        raise ValueError(
            f"secret_file: line {number} has {len(secret)} bytes, "
            f"but must have {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES}"
        )
    if len(set(secret)) < LEAST_SECRET_BYTES // 4:
        raise ValueError(f"secret_file: line {number} is not random")
    return secret

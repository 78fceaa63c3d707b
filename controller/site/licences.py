"""Which licence servers jobs may reach though they stand where jobs may not reach: the operator's.

A job names a server by its address. That alone opens nothing: the address may be of anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from shared.networks import SPECIAL, Bounds, Network, read_address
from shared.numbers import whole_number

Verdict = Literal["opened", "reachable", "unlisted", "refused"]

_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class LicenceServer:
    """A server, or a network of them; ``port`` None is any."""

    network: Network
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceServers:
    """The operator's list, and what jobs reach anyway.

    ``listed`` is None where the operator has said nothing, which opens nothing either.
    """

    listed: tuple[LicenceServer, ...] | None = None
    reachable: Sequence[Network] = ()
    exceptions: Sequence[Network] = field(default=())

    def judge(self, host: str, port: int) -> Verdict:
        """Say what becomes of a job's licence server at the address *host*.

        - ``opened``: it is listed, and gets an egress rule of its own.
        - ``reachable``: what every job may reach holds it, or *host* is a name, on which no
          NetworkPolicy can rule.
        - ``unlisted``: the operator has no list; nothing is opened.
        - ``refused``: the operator has a list without it, or it is special to the machine.
        """
        address = read_address(host)
        if address is None:
            return "reachable"
        if self._is_listed(host, port):
            return "opened"
        if any(address in one for one in SPECIAL):
            return "refused"
        if any(address in one for one in self.reachable) and not any(
            address in one for one in self.exceptions
        ):
            return "reachable"
        return "unlisted" if self.listed is None else "refused"

    def _is_listed(self, host: str, port: int) -> bool:
        # A wide network does not mean the metadata service that lies within it.
        fitting = [one.network for one in self.listed or () if one.port in (None, port)]
        return Bounds(fitting).allow(host)


def parse_licence_servers(raw: str) -> tuple[LicenceServer, ...]:
    """Return the servers of a list of ``address``, ``network``, ``address:port``.

    An IPv6 address with a port is written in brackets: ``[fd00::5]:27000``. ``none`` is no server.

    Raises:
        ValueError: For anything else.
    """
    if raw.strip().lower() == "none":
        return ()
    return tuple(_server(part.strip()) for part in raw.split(",") if part.strip())


def _server(text: str) -> LicenceServer:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ValueError(f"{text}: not [<address>]:<port>")
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    number = whole_number(port, most=_LAST_PORT) if port else None
    if port and not number:
        raise ValueError(f"{text}: not a port")
    try:
        return LicenceServer(ipaddress.ip_network(host), number)
    except ValueError:
        raise ValueError(f"{text}: not <address or network>[:<port>]") from None

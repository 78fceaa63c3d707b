"""The licence servers that jobs may reach in networks that are closed to jobs.

A job names a server by its address. That alone opens nothing: the address may belong to anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from shared.networks import SPECIAL, Bounds, Network, read_address
from shared.text import whole_number

Verdict = Literal["opened", "reachable", "unlisted", "refused"]

_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class LicenceServer:
    """A server, or a network of servers; ``port`` None allows any port."""

    network: Network
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceServers:
    """The operator's list, and the networks that jobs can reach without it.

    ``listed`` is None if the operator has no list, which opens nothing either.
    """

    listed: tuple[LicenceServer, ...] | None = None
    reachable: Sequence[Network] = ()
    exceptions: Sequence[Network] = field(default=())

    def judge(self, host: str, port: int) -> Verdict:
        """Decide about a job's licence server at the address *host*.

        - ``opened``: it is listed, and gets its own egress rule.
        - ``reachable``: every job can reach the address, or *host* is a name, to which a
          NetworkPolicy cannot apply.
        - ``unlisted``: the operator has no list; nothing is opened.
        - ``refused``: the operator's list lacks it, or it is a special address of the machine.
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
        # A wide network does not include the metadata service inside it.
        fitting = [one.network for one in self.listed or () if one.port in (None, port)]
        return Bounds(fitting).allow(host)


def parse_licence_servers(raw: str) -> tuple[LicenceServer, ...]:
    """Return the servers of a list of ``address``, ``network``, ``address:port``.

    An IPv6 address with a port is written in brackets: ``[fd00::5]:27000``. ``none`` is an empty
    list.

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

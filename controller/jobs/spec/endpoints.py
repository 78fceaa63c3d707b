"""How a job is reached: Services of its ranks, public links, and peers. No I/O.

The network plugin may give a pod's address to another pod before anybody is notified. The address
of a Service belongs to the job, and the cluster keeps its endpoints current.

The host of a link is ``<name>.<base domain>``, like the hosts of sessions. It must look neither
like one of those, nor like a well-known name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.jobs.spec.model import Job, owner_key
from controller.jobs.spec.problems import Problem, make_path
from controller.volcano.names import rank_service_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RankService:
    """The Service of one rank: replica ``index`` of ``task``, with its ``ports``."""

    name: str
    task: str
    index: int
    ports: tuple[int, ...]


def ports_at(job: Job, task: str) -> tuple[int, ...]:
    """Return the ports that the job declares for replicas of *task*, in order."""
    return tuple(sorted({one.port for one in job.endpoints_of(task).values()}))


def rank_services_of(job: Job) -> tuple[RankService, ...]:
    """Return a Service for each rank with an endpoint, in the order of ranks."""
    return tuple(
        RankService(
            name=rank_service_name(job.id, task.first + index),
            task=task.name,
            index=index,
            ports=ports,
        )
        for task in job.effective_tasks
        if (ports := ports_at(job, task.name))
        for index in range(task.replicas)
    )


# Public links


SHORTEST: Final = 5
LONGEST: Final = 63
RESERVED: Final = frozenset(
    {
        "abuse", "account", "accounts", "admin", "administrator", "autoconfig", "autodiscover",
        "billing", "broadcasthost", "cluster", "console", "controller", "dashboard", "example",
        "fumarole", "gateway", "healthz", "hostmaster", "identity", "invalid", "isatap",
        "localdomain", "localhost", "login", "logout", "metrics", "mta-sts", "oauth", "password",
        "payment", "payments", "postmaster", "readyz", "secure", "security", "signin", "signup",
        "static", "status", "support", "system", "token", "volcano", "webmail", "webmaster",
    }
)  # fmt: skip

_CHARACTERS: Final = re.compile(r"[-a-z0-9]+", re.ASCII)
_LETTER: Final = re.compile(r"[a-z]", re.ASCII)
_SID: Final = re.compile(r"[a-z2-7]{26}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", re.ASCII)


def names_in_host(host: str) -> frozenset[str]:
    """Return the parts of *host* that could be the name of a link.

    A link with the name of the orchestrator would look like the orchestrator.
    """
    return frozenset(part for part in host.lower().split(".") if len(part) >= SHORTEST)


def why_not_name(name: str, *, reserved: Collection[str] = ()) -> str | None:
    """Return why *name* cannot be a link's; None if it can.

    Args:
        name: The requested name.
        reserved: Names that the deployment reserves, beside those that are always reserved.
    """
    if not SHORTEST <= len(name) <= LONGEST:
        return f"should have from {SHORTEST} to {LONGEST} characters"
    if not _CHARACTERS.fullmatch(name):
        return "has other characters than a-z, 0-9 and hyphens"
    if name.startswith("-") or name.endswith("-"):
        return "begins or ends with a hyphen"
    if name[2:4] == "--":
        # RFC 5891: such labels are encoded names, which browsers show decoded.
        return "has hyphens where encoded international names have them"
    if not _LETTER.search(name):
        return "has no letter"
    if _SID.fullmatch(name) or _UUID.fullmatch(name):
        return "looks like an identifier"
    if name in RESERVED or name in reserved:
        return "is reserved"
    return None


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """The target of a job's links: endpoint and rank."""

    endpoint: str
    rank: int
    port: int
    base_path: str


def exposed_by(job: Job) -> LinkTarget | None:
    """Return the target of the job's links: the first web endpoint, in its first rank."""
    for name, endpoint in job.interactive.items():
        if endpoint.kind != "web":
            continue
        for rank in range(job.ranks):
            if endpoint.task in (None, job.task_of(rank)):
                return LinkTarget(name, rank, endpoint.port, endpoint.base_path)
    return None


def link_host(name: str, base_domain: str) -> str:
    """Return the host of a link."""
    return f"{name}.{base_domain}"


# Peers


_NO_SUCH_JOB = "you have no such job, or it has ended"


def asked_ports(job: Job) -> dict[str, set[int]]:
    """Return the ports requested of each peer; empty for those that the peer declares."""
    requested: dict[str, set[int]] = {}
    for parameter in job.peers().values():
        requested.setdefault(parameter.job, set()).update(parameter.ports)
    return requested


def declared_ports(job: Job) -> list[int]:
    """Return the ports that the job declares at its first rank."""
    return list(ports_at(job, job.task_of(0) or ""))


def peer_problems(job: Job, others: Mapping[str, Job]) -> Iterator[Problem]:
    """Yield why the job cannot have the peers that it names.

    Args:
        job: The job.
        others: The named jobs that exist and have not ended, by id.
    """
    for name, parameter in job.peers().items():
        path = make_path(["parameters", name])
        other = others.get(parameter.job)
        # Another owner's job is reported as a missing one, so that nobody learns which jobs others
        # have.
        if other is None or not _may_name(job, other):
            yield Problem(f"{path}.job", _NO_SUCH_JOB)
        elif not parameter.ports and not declared_ports(other):
            yield Problem(f"{path}.ports", "the job declares no port: name the ports")


def _may_name(job: Job, other: Job) -> bool:
    if owner_key(job.owner) == owner_key(other.owner):
        return True
    return any(parameter.job == job.id for parameter in other.peers().values())

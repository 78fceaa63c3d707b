"""The defaults of jobs, and the operator's rules for all jobs, from the environment.

docs/settings.md has each setting's meaning, unit and default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from controller.jobs.spec.endpoints import names_in_host
from controller.jobs.spec.storage import VolumeSource, loose_patterns, parse_volumes
from controller.site.images import AllowedImages, parse_images
from controller.site.kinds import Kinds, built_in_kinds, read_kinds
from controller.site.licences import LicenceServer, parse_licence_servers
from controller.site.owner_shares import FairShare, read_fair_share
from controller.site.product_list import Catalogue, ReplicaDefaults, read_catalogue
from controller.site.setting_values import dns_label, name_list, period
from controller.site.tool_list import ToolList, read_tools
from controller.volcano.quantities import Quantity, parse_cpu, parse_memory
from shared.networks import NOT_THE_WORLD, Network
from shared.settings import (
    Environment,
    count,
    issuer_identifier,
    networks,
    on_or_off,
    seconds,
    setting,
    yes_or_no,
)

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
NO_TOOLS: Final = ToolList()
_IMAGE: Final = re.compile(r"[A-Za-z0-9][-._:/@A-Za-z0-9]{0,511}", re.ASCII)
_LABEL_PAIR: Final = re.compile(r"([-._/a-zA-Z0-9]{1,317})=([-._a-zA-Z0-9]{0,63})", re.ASCII)

NODE_LOCAL_DNS: Final = networks("169.254.20.10/32")
"""The address of NodeLocal DNSCache on every node. It is not a pod, so no selector can name it."""

EVERYWHERE: Final = networks("0.0.0.0/0,::/0")


def _labels(raw: str) -> tuple[str, ...]:
    if raw.lower() == "none":
        return ()
    return tuple(dns_label(name) for name in name_list(raw))


def _label_pairs(raw: str) -> tuple[tuple[str, str], ...]:
    pairs = [_LABEL_PAIR.fullmatch(part.strip()) for part in raw.split(",")]
    if not all(pairs):
        raise ValueError("not a list of name=value")
    return tuple((pair[1], pair[2]) for pair in pairs if pair)


def _networks(raw: str) -> tuple[Network, ...]:
    return () if raw.lower() == "none" else networks(raw)


def _ports(raw: str) -> tuple[int, ...]:
    if raw.lower() == "none":
        return ()
    return tuple(count(1, 65535)(part.strip()) for part in raw.split(",") if part.strip())


def _absolute_path(raw: str) -> str:
    if not raw.startswith("/") or ".." in raw.split("/"):
        raise ValueError("not an absolute path")
    return raw


def _classes(raw: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in raw.split(","))):
        name, _, value = part.partition("=")
        if not _NAME.fullmatch(name) or not _SUBDOMAIN.fullmatch(value or name) or name in found:
            raise ValueError("not a list of <name>=<class>, each name once")
        found[name] = value or name
    return found


def _image(raw: str) -> str:
    if not _IMAGE.fullmatch(raw):
        raise ValueError("not an image")
    return raw


def _folder(raw: str) -> str:
    parts = raw.split("/")
    if not raw.startswith("/") or raw == "/" or ".." in parts or ":" in raw:
        raise ValueError("not an absolute path of a folder")
    return raw.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class KataSettings:
    """The runtimes that run a job in a virtual machine, and the resources of the machine itself.

    - ``runtimes`` maps each ``runtime`` that a job may request to its RuntimeClass.
    - ``cpu`` and ``memory``: the machine's overhead if the product does not define it.
    - ``least_cpu`` and ``least_memory``: what must remain for the job's program.
    """

    runtimes: Mapping[str, str] = setting(
        "FUMAROLE_CONTROLLER_RUNTIMES", _classes, {"kata": "kata"}
    )
    cpu: Quantity = setting("FUMAROLE_CONTROLLER_KATA_CPU", parse_cpu, parse_cpu("1"))
    memory: Quantity = setting("FUMAROLE_CONTROLLER_KATA_MEMORY", parse_memory, parse_memory("1Gi"))
    least_cpu: Quantity = setting("FUMAROLE_CONTROLLER_KATA_LEAST_CPU", parse_cpu, parse_cpu("1"))
    least_memory: Quantity = setting(
        "FUMAROLE_CONTROLLER_KATA_LEAST_MEMORY", parse_memory, parse_memory("1Gi")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """The deployment's settings for plugins that define pods.

    ``helper_image`` runs in init containers: it has a POSIX shell with ``test`` and ``readlink``,
    and ``getent`` or ``nslookup`` for jobs that wait for names. With ``remove_mount_points`` it
    also runs after jobs, with ``date``, ``ls``, ``rm`` and ``rmdir``.
    """

    catalogue: Catalogue = setting("FUMAROLE_CONTROLLER_PRODUCTS_FILE", read_catalogue, Catalogue())
    volumes: Mapping[str, VolumeSource] = setting("FUMAROLE_CONTROLLER_VOLUMES", parse_volumes, {})
    priorities: Mapping[str, str] = setting("FUMAROLE_CONTROLLER_PRIORITIES", _classes, {})
    pull_credentials: Mapping[str, str] = setting(
        "FUMAROLE_CONTROLLER_PULL_CREDENTIALS", _classes, {}
    )
    helper_image: str = setting("FUMAROLE_CONTROLLER_HELPER_IMAGE", _image, "busybox:1.36")
    helper_cpu: Quantity = setting("FUMAROLE_CONTROLLER_HELPER_CPU", parse_cpu, parse_cpu("50m"))
    helper_memory: Quantity = setting(
        "FUMAROLE_CONTROLLER_HELPER_MEMORY", parse_memory, parse_memory("32Mi")
    )
    helper_user: int = setting("FUMAROLE_CONTROLLER_HELPER_USER", count(1, 2**31 - 1), 65534)
    ranks_folder: str = setting("FUMAROLE_CONTROLLER_RANKS_FOLDER", _folder, "/etc/ucloud")
    wait_for_names_seconds: int = setting(
        "FUMAROLE_CONTROLLER_WAIT_FOR_NAMES_SECONDS", count(0, 86400), 0
    )
    kata: KataSettings
    ssh_folder: str = setting("FUMAROLE_CONTROLLER_SSH_FOLDER", _folder, "/root/.ssh")
    ssh_port: int = setting("FUMAROLE_CONTROLLER_SSH_PORT", count(1, 65535), 22)
    minikube: bool = setting("FUMAROLE_CONTROLLER_MINIKUBE", on_or_off, False)
    allow_privilege_escalation: bool = setting(
        "FUMAROLE_CONTROLLER_ALLOW_PRIVILEGE_ESCALATION", yes_or_no, False
    )
    keep_capabilities: bool = setting("FUMAROLE_CONTROLLER_KEEP_CAPABILITIES", yes_or_no, False)
    seccomp: bool = setting("FUMAROLE_CONTROLLER_SECCOMP", yes_or_no, True)
    service_account_token: bool = setting(
        "FUMAROLE_CONTROLLER_SERVICE_ACCOUNT_TOKEN", yes_or_no, False
    )
    change_working_directory: bool = setting(
        "FUMAROLE_CONTROLLER_CHANGE_WORKING_DIRECTORY", yes_or_no, True
    )
    remove_mount_points: bool = setting("FUMAROLE_CONTROLLER_REMOVE_MOUNT_POINTS", yes_or_no, True)
    tools: ToolList = setting("FUMAROLE_CONTROLLER_TOOLS_FILE", read_tools, NO_TOOLS)


def read_pod_settings(environment: Environment) -> PodSettings:
    """Return the settings; *environment* collects every problem."""
    kata = KataSettings(**environment.fields(KataSettings))
    pods = PodSettings(kata=kata, **environment.fields(PodSettings))
    for name in loose_patterns(pods.volumes):
        environment.warning(
            "FUMAROLE_CONTROLLER_VOLUMES",
            f"has text after an owner's name in {name}: the names of two owners may lead to one "
            "place, which is then refused to the second owner",
        )
    for text in _doubts(pods.tools, pods.volumes, pods.catalogue):
        environment.warning("FUMAROLE_CONTROLLER_TOOLS_FILE", text)
    return pods


def _doubts(
    tools: ToolList, volumes: Mapping[str, VolumeSource], catalogue: Catalogue
) -> Iterator[str]:
    """Yield warnings about entries that are valid but probably not intended."""
    for name in tools.shared_volumes:
        if name not in volumes:
            yield f"shares the volume {name}, which FUMAROLE_CONTROLLER_VOLUMES does not define"
    for name, tool in tools.tools.items():
        if tool.product is not None and tool.product not in catalogue.products:
            yield f"gives the tool {name} an unknown product, so that it cannot be attached"
        if tool.service_workers:
            yield (
                f"gives the tool {name} service_workers: browsers cannot open it, only programs "
                "with a bearer token"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """The cluster's name servers, as a NetworkPolicy selects them.

    A policy applies to the pods behind a Service: ``ports`` are the ports of the name servers'
    pods. ``networks`` are for name servers that are no pods, or run in the host network.
    """

    namespaces: tuple[str, ...] = setting(
        "FUMAROLE_CONTROLLER_DNS_NAMESPACES", _labels, ("kube-system",)
    )
    networks: tuple[Network, ...] = setting(
        "FUMAROLE_CONTROLLER_DNS_NETWORKS", _networks, NODE_LOCAL_DNS
    )
    ports: tuple[int, ...] = setting("FUMAROLE_CONTROLLER_DNS_PORTS", _ports, (53,))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults(ReplicaDefaults):
    """The defaults of jobs, and the deployment's rules for all jobs.

    - ``retention_seconds``: how long a finished VolcanoJob stays in the cluster.
    - ``history_seconds``: how long the record of a finished job stays in the store.
    - ``tombstone_seconds``: how long the tombstones stay after the record.
    - ``updates_seconds``: how long updates are kept; None: as long as the record.
    - ``resync_per_second``: how many jobs the resync looks at; None: as many as its share of the
      time allows.
    - ``fair_share``: None if all owners share ``namespace``.
    - ``usage_period_seconds``: how often the use of running jobs is entered into the ledger.
    - ``eviction_retries``: how often an evicted job is submitted again.
    - ``sidecar_seconds``: how long containers of others may run on after a job's programs.
    - ``rank_services``: whether each rank with endpoints has an address of its own.
    - ``images``: the images that jobs may use; None: any.
    """

    namespace: str = setting("FUMAROLE_CONTROLLER_NAMESPACE", dns_label, "fumarole-jobs")
    queue: str = setting("FUMAROLE_CONTROLLER_QUEUE", dns_label, "default")
    working_directory: str = setting(
        "FUMAROLE_CONTROLLER_WORKING_DIRECTORY", _absolute_path, "/work"
    )
    run_as_non_root: bool = setting("FUMAROLE_CONTROLLER_RUN_AS_NON_ROOT", yes_or_no, True)
    run_as_user: int | None = setting("FUMAROLE_CONTROLLER_RUN_AS_USER", count(0, 2**31 - 1))
    retention_seconds: int = setting("FUMAROLE_CONTROLLER_RETENTION_SECONDS", count(1, 10**8), 3600)
    history_seconds: float = setting("FUMAROLE_CONTROLLER_HISTORY_SECONDS", seconds, 30 * 86400.0)
    tombstone_seconds: float = setting(
        "FUMAROLE_CONTROLLER_TOMBSTONE_SECONDS", seconds, 30 * 86400.0
    )
    updates_seconds: float | None = setting("FUMAROLE_CONTROLLER_UPDATES_SECONDS", seconds)
    resync_per_second: int | None = setting(
        "FUMAROLE_CONTROLLER_RESYNC_PER_SECOND", count(1, 100_000)
    )
    usage_period_seconds: float = setting(
        "FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS", period, float(15 * 60)
    )
    eviction_retries: int = setting("FUMAROLE_CONTROLLER_EVICTION_RETRIES", count(0, 1000), 3)
    sidecar_seconds: float = setting("FUMAROLE_CONTROLLER_SIDECAR_SECONDS", seconds, 60.0)
    gateway_namespace: str = setting(
        "FUMAROLE_CONTROLLER_GATEWAY_NAMESPACE", dns_label, "fumarole-system"
    )
    gateway_labels: tuple[tuple[str, str], ...] = setting(
        "FUMAROLE_CONTROLLER_GATEWAY_LABELS",
        _label_pairs,
        (("app.kubernetes.io/name", "fumarole-gateway"),),
    )
    gateway_networks: tuple[Network, ...] = setting(
        "FUMAROLE_CONTROLLER_GATEWAY_NETWORKS", _networks, ()
    )
    rank_services: bool = setting("FUMAROLE_CONTROLLER_RANK_SERVICES", yes_or_no, False)
    dns: Dns
    egress_networks: tuple[Network, ...] = setting(
        "FUMAROLE_CONTROLLER_EGRESS_NETWORKS", _networks, EVERYWHERE
    )
    egress_except: tuple[Network, ...] = setting(
        "FUMAROLE_CONTROLLER_EGRESS_EXCEPT", _networks, NOT_THE_WORLD
    )
    egress_blocked_ports: tuple[int, ...] = setting(
        "FUMAROLE_CONTROLLER_EGRESS_BLOCKED_PORTS", _ports, (25,)
    )
    licence_servers: tuple[LicenceServer, ...] | None = setting(
        "FUMAROLE_CONTROLLER_LICENCE_SERVERS", parse_licence_servers
    )
    fair_share: FairShare | None
    reserved_links: frozenset[str]
    pods: PodSettings
    most_stop_grace_seconds: int = setting(
        "FUMAROLE_CONTROLLER_MAX_STOP_GRACE_SECONDS", count(1, 10**6), 600
    )
    session_url: str
    images: AllowedImages | None = setting("FUMAROLE_CONTROLLER_IMAGES", parse_images)
    kinds: Kinds


def read_job_defaults(environment: Environment, *, session_url: str) -> JobDefaults:
    """Return the settings; *environment* collects every problem."""
    read, pods = environment.fields(JobDefaults), read_pod_settings(environment)
    restricted = (
        read["run_as_non_root"]
        and pods.seccomp
        and not (pods.allow_privilege_escalation or pods.keep_capabilities)
    )
    kinds = environment.optional("FUMAROLE_CONTROLLER_KINDS_FILE", read_kinds)
    return JobDefaults(
        **read,
        pods=pods,
        dns=_dns(environment),
        fair_share=read_fair_share(environment, restricted=restricted),
        reserved_links=_reserved_links(environment),
        session_url=session_url,
        kinds=kinds or built_in_kinds(),
    )


def _reserved_links(environment: Environment) -> frozenset[str]:
    """Return the operator's list, and the orchestrator's own names."""
    listed = environment.optional("FUMAROLE_CONTROLLER_RESERVED_LINKS", name_list) or ()
    issuer = environment.value("FUMAROLE_CONTROLLER_TOKEN_ISSUER", issuer_identifier, "")
    return frozenset(map(str.lower, listed)) | names_in_host(urlsplit(issuer).hostname or "")


def _dns(environment: Environment) -> Dns:
    dns = Dns(**environment.fields(Dns))
    if not (dns.namespaces or dns.networks) or not dns.ports:
        # A rule without "to", or without "ports", would admit everything instead of nothing.
        environment.problem("FUMAROLE_CONTROLLER_DNS_NAMESPACES", "leaves no name server")
    return dns

"""The controller's settings, read from the environment.

docs/settings.md has each setting's meaning, unit and default.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast, get_args
from urllib.parse import SplitResult, urlsplit

import sqlalchemy as sa

from controller.jobs.spec.endpoints import names_in_host
from controller.site.hook_limits import DEFAULT_TRIES, HookSeconds
from controller.site.images import AllowedImages, parse_images
from controller.site.kinds import Kinds, built_in_kinds, read_kinds
from controller.site.licences import LicenceServer, parse_licence_servers
from controller.site.log_place import LogsPlace, read_logs_place
from controller.site.owner_shares import FairShare, read_fair_share
from controller.site.pod_settings import PodSettings, read_pod_settings
from controller.site.webhook_receivers import Receiver, read_receivers
from controller.store import postgresql
from controller.volcano.network_policies import Dns
from controller.volcano.quantities import Quantity, parse_cpu, parse_memory
from shared.bus import check_url
from shared.jose.jwks import read_key_source
from shared.jose.signing_keys import read_signing_keys
from shared.log import LogSettings, read_log_settings
from shared.networks import NOT_THE_WORLD, Network
from shared.routes.signed_table import TableSigner
from shared.settings import (
    Environment,
    count,
    existing_file,
    is_loopback_name,
    is_unspecified,
    key_file,
    listen_address,
    networks,
    seconds,
    setting,
    text,
    web_url,
    yes_or_no,
)
from shared.tokens import LONGEST_SERVICE_SECONDS

Role = Literal["api", "reconciler", "hub"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

Address = tuple[str, int]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LABEL_PAIR = re.compile(r"([-._/a-zA-Z0-9]{1,317})=([-._a-zA-Z0-9]{0,63})", re.ASCII)
_STATE_FOLDER: Final = "FUMAROLE_CONTROLLER_STATE_FOLDER"
_STORE_URL: Final = "FUMAROLE_CONTROLLER_STORE_URL"
_STAND_IN_URL = urlsplit("https://missing.invalid")

_MOST_DRY_RUN_SECONDS = 10.0

NODE_LOCAL_DNS: Final = networks("169.254.20.10/32")
"""The address of NodeLocal DNSCache on every node. It is not a pod, so no selector can name it."""

EVERYWHERE: Final = networks("0.0.0.0/0,::/0")


def _signer(raw: str, instance: str) -> TableSigner:
    first, *_ = read_signing_keys(Path(raw).read_bytes())
    return TableSigner(first, instance=instance)


def _period(raw: str) -> float:
    value = seconds(raw)
    if value < 1:
        raise ValueError("a period must be at least one second")
    return value


def _prometheus_url(raw: str) -> SplitResult:
    return web_url(raw, http_anywhere=True)


def _metrics_seconds(raw: str) -> float:
    value = seconds(raw)
    if 0 < value < 1:
        raise ValueError("must be 0, or at least one second: metrics are measured about every 15 s")
    return value


def _dry_run_seconds(raw: str) -> float:
    value = seconds(raw)
    if value > _MOST_DRY_RUN_SECONDS:
        raise ValueError(
            f"must be at most {_MOST_DRY_RUN_SECONDS:g}, since the client waits for it"
        )
    return value


def _hook_seconds(raw: str) -> HookSeconds:
    default, named = HookSeconds().default, dict[str, float]()
    for part in (one.strip() for one in raw.split(",") if one.strip()):
        name, given, value = part.rpartition("=")
        allowed = seconds(value)
        if allowed <= 0 or (given and (not name or name in named)):
            raise ValueError("not a list of seconds and plugin=seconds")
        if given:
            named[name.strip()] = allowed
        else:
            default = allowed
    return HookSeconds(default, named)


def _roles(raw: str) -> frozenset[Role]:
    names = _names(raw)
    unknown = [name for name in names if name not in ROLES]
    if unknown or not names:
        raise ValueError(f"not a list of {', '.join(ROLES)}")
    return frozenset(cast(tuple[Role, ...], names))


def _names(raw: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in raw.split(",") if part.strip())
    if len(set(names)) != len(names):
        raise ValueError("has a duplicate name")
    return names


def _label(raw: str) -> str:
    if not _LABEL.fullmatch(raw):
        raise ValueError("not a DNS label: lower-case letters, digits and hyphens, at most 63")
    return raw


def _labels(raw: str) -> tuple[str, ...]:
    if raw.lower() == "none":
        return ()
    return tuple(_label(name) for name in _names(raw))


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


def _folder(raw: str) -> Path:
    path = Path(raw)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path.absolute()


def _kubeconfig(raw: str) -> Path:
    """Return a path, or a list of paths with at least one readable one, as kubectl does."""
    troubles = list[OSError]()
    for path in raw.split(os.pathsep):
        try:
            existing_file(path)
        except OSError as error:
            troubles.append(error)
        else:
            return Path(raw)
    raise troubles[0]


def _database_url(raw: str) -> str:
    scheme = raw.partition(":")[0].partition("+")[0]
    if scheme not in ("sqlite", *postgresql.SCHEMES):
        raise ValueError("not a sqlite or postgresql URL")
    if scheme in postgresql.SCHEMES and (problem := postgresql.problem_of(raw)):
        raise ValueError(problem)
    return raw


def _session_url(public_url: SplitResult) -> str:
    port = f":{public_url.port}" if public_url.port is not None else ""
    return f"{public_url.scheme}://{{sid}}.{(public_url.hostname or '').rstrip('.')}{port}"


def _public_url(raw: str) -> SplitResult:
    url = web_url(raw)
    if url.path not in ("", "/"):
        raise ValueError("the public URL must not have a path")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
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

    namespace: str = setting("FUMAROLE_CONTROLLER_NAMESPACE", _label, "fumarole-jobs")
    queue: str = setting("FUMAROLE_CONTROLLER_QUEUE", _label, "default")
    cpu: Quantity = setting("FUMAROLE_CONTROLLER_DEFAULT_CPU", parse_cpu, parse_cpu("1"))
    memory: Quantity = setting(
        "FUMAROLE_CONTROLLER_DEFAULT_MEMORY", parse_memory, parse_memory("1Gi")
    )
    gpu_resource: str = setting("FUMAROLE_CONTROLLER_GPU_RESOURCE", text, "nvidia.com/gpu")
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
        "FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS", _period, float(15 * 60)
    )
    eviction_retries: int = setting("FUMAROLE_CONTROLLER_EVICTION_RETRIES", count(0, 1000), 3)
    sidecar_seconds: float = setting("FUMAROLE_CONTROLLER_SIDECAR_SECONDS", seconds, 60.0)
    gateway_namespace: str = setting(
        "FUMAROLE_CONTROLLER_GATEWAY_NAMESPACE", _label, "fumarole-system"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginChoice:
    """The plugins that run: the built-in ones except ``disabled``, and ``extra`` installed ones.

    ``listed`` names all plugins that run, as the setting before 0.2 did; None if it is not set.
    """

    extra: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    listed: tuple[str, ...] | None = None

    def disables(self, name: str) -> bool:
        """Return whether the built-in plugin does not run."""
        return name in self.disabled or (self.listed is not None and name not in self.listed)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus server with metrics of pods, and the file of its bearer token."""

    url: str
    token_file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The configuration of one controller process, whatever its roles.

    - ``link_keys`` are secret. The first key is used, all are accepted.
    - ``bus_signer`` signs the route table; None: the table is not signed.
    - ``dry_run_seconds``: how long the API server has to try out a job before it is accepted; 0:
      jobs are not tried out.
    - ``hook_seconds``: how long hooks of plugins may take.
    - ``hook_tries``: how often a failing hook is called before it is given up.
    - ``metrics_seconds``: how often the use of pods is sampled; 0: never.
    """

    instance: str = setting("FUMAROLE_INSTANCE", _label, "default")
    roles: frozenset[Role] = setting("FUMAROLE_CONTROLLER_ROLES", _roles, frozenset(ROLES))
    listen: Address = setting("FUMAROLE_CONTROLLER_LISTEN", listen_address, ("0.0.0.0", 8081))
    ops_listen: Address = setting(
        "FUMAROLE_CONTROLLER_OPS_LISTEN", listen_address, ("127.0.0.1", 8091)
    )
    hub_listen: Address = setting(
        "FUMAROLE_CONTROLLER_HUB_LISTEN", listen_address, ("0.0.0.0", 8082)
    )
    hub_advertise: Address | None = setting("FUMAROLE_CONTROLLER_HUB_ADVERTISE", listen_address)
    hub_scrollback_bytes: int = setting(
        "FUMAROLE_CONTROLLER_HUB_SCROLLBACK_BYTES", count(1 << 18, 1 << 30), 8 << 20
    )
    hub_scrollback_total_bytes: int = setting(
        "FUMAROLE_CONTROLLER_HUB_SCROLLBACK_TOTAL_BYTES", count(1 << 20, 1 << 40), 512 << 20
    )
    address_file: Path | None = setting("FUMAROLE_CONTROLLER_ADDRESS_FILE", Path)
    store_url: str
    redis_url: str = setting("FUMAROLE_REDIS_URL", check_url, "redis://127.0.0.1:6379/0")
    link_keys: tuple[bytes, ...]
    bus_signer: TableSigner | None
    token_issuer: str
    token_jwks: str
    token_longest_seconds: float = setting(
        "FUMAROLE_CONTROLLER_TOKEN_MAX_SECONDS", _period, LONGEST_SERVICE_SECONDS
    )
    public_url: SplitResult
    kubeconfig: Path | None
    plugins: PluginChoice
    dry_run_seconds: float = setting("FUMAROLE_CONTROLLER_DRY_RUN_SECONDS", _dry_run_seconds, 2.0)
    hook_seconds: HookSeconds = setting(
        "FUMAROLE_CONTROLLER_HOOK_SECONDS", _hook_seconds, HookSeconds()
    )
    hook_tries: int = setting("FUMAROLE_CONTROLLER_HOOK_TRIES", count(1, 1000), DEFAULT_TRIES)
    jobs: JobDefaults
    logs: LogsPlace
    metrics_seconds: float = setting("FUMAROLE_CONTROLLER_METRICS_SECONDS", _metrics_seconds, 0.0)
    prometheus: Prometheus | None
    webhooks: tuple[Receiver, ...]
    log: LogSettings

    def __repr__(self) -> str:
        # URLs of Redis and the database may hold passwords, and the keys are secret.
        return f"ControllerSettings(instance={self.instance!r}, roles={sorted(self.roles)})"

    @property
    def base_domain(self) -> str:
        """The domain of all sessions' hosts."""
        return (self.public_url.hostname or "").rstrip(".")


def read_settings(environment: Environment) -> ControllerSettings:
    """Return the settings; *environment* collects every problem."""
    read = environment.fields(ControllerSettings)
    roles = read["roles"]
    # Only gateways call the hub, so a process that is only a hub need not know the orchestrator.
    needed = environment.value if roles == {"hub"} else environment.required
    public_url = needed("FUMAROLE_CONTROLLER_PUBLIC_URL", _public_url, _STAND_IN_URL)
    settings = ControllerSettings(
        **read,
        store_url=_store_url(environment),
        link_keys=environment.required("FUMAROLE_LINK_KEY_FILE", key_file, (b"",)),
        bus_signer=environment.optional(
            "FUMAROLE_CONTROLLER_BUS_SIGNING_KEY_FILE", lambda raw: _signer(raw, read["instance"])
        ),
        kubeconfig=environment.optional("KUBECONFIG", _kubeconfig),
        plugins=_plugin_choice(environment),
        jobs=_job_defaults(environment, session_url=_session_url(public_url)),
        logs=read_logs_place(environment),
        prometheus=_prometheus(environment),
        webhooks=_webhooks(environment, leads="reconciler" in roles),
        log=read_log_settings(environment),
        token_issuer=needed("FUMAROLE_CONTROLLER_TOKEN_ISSUER", text, ""),
        token_jwks=read_key_source(
            environment, "FUMAROLE_CONTROLLER_TOKEN_JWKS", needed=roles != {"hub"}
        ),
        public_url=public_url,
    )
    _check_minikube(environment, settings)
    _check_rank_services(environment, settings)
    _check_webhooks(environment, settings)
    _check_hub(environment, settings)
    return settings


def _check_hub(environment: Environment, settings: ControllerSettings) -> None:
    host, _ = settings.hub_advertise or settings.hub_listen
    if "hub" in settings.roles and is_unspecified(host):
        environment.problem(
            "FUMAROLE_CONTROLLER_HUB_ADVERTISE",
            "must be the address of this host that gateways dial for terminals, with the port",
        )


def _check_webhooks(environment: Environment, settings: ControllerSettings) -> None:
    if any(set(one.secrets) & set(settings.link_keys) for one in settings.webhooks):
        environment.problem(
            "FUMAROLE_CONTROLLER_WEBHOOKS_FILE", "gives a receiver the link key as its secret"
        )


def _check_rank_services(environment: Environment, settings: ControllerSettings) -> None:
    if settings.jobs.rank_services and settings.plugins.disables("proxy"):
        environment.problem(
            "FUMAROLE_CONTROLLER_RANK_SERVICES", "needs the plugin proxy, which does not run"
        )


def _check_minikube(environment: Environment, settings: ControllerSettings) -> None:
    if settings.jobs.pods.minikube and not is_loopback_name(settings.base_domain):
        environment.problem(
            "FUMAROLE_CONTROLLER_MINIKUBE",
            "lets anybody into every app, and is allowed only for a public URL of this machine",
        )


def _prometheus(environment: Environment) -> Prometheus | None:
    name = "FUMAROLE_CONTROLLER_PROMETHEUS_URL"
    url = environment.optional(name, _prometheus_url)
    token = environment.optional("FUMAROLE_CONTROLLER_PROMETHEUS_TOKEN_FILE", Path)
    if url is None:
        return None
    if token is not None and url.scheme == "http" and not is_loopback_name(url.hostname or ""):
        environment.problem(name, "is http, over which a token must not be sent")
    return Prometheus(url.geturl(), token)


def _webhooks(environment: Environment, *, leads: bool) -> tuple[Receiver, ...]:
    """Return the receivers; a process that never leads reads none of their secrets."""
    name = "FUMAROLE_CONTROLLER_WEBHOOKS_FILE"
    if leads:
        return environment.value(name, read_receivers, ())
    environment.optional(name, text)
    return ()


def _plugin_choice(environment: Environment) -> PluginChoice:
    listed = environment.optional("FUMAROLE_CONTROLLER_PLUGINS", _names)
    choice = PluginChoice(
        extra=environment.value("FUMAROLE_CONTROLLER_EXTRA_PLUGINS", _names, ()),
        disabled=environment.value("FUMAROLE_CONTROLLER_DISABLED_PLUGINS", _names, ()),
        listed=listed,
    )
    if listed is not None and (choice.extra or choice.disabled):
        environment.problem(
            "FUMAROLE_CONTROLLER_PLUGINS",
            "lists all plugins, and cannot be combined with FUMAROLE_CONTROLLER_EXTRA_PLUGINS and "
            "FUMAROLE_CONTROLLER_DISABLED_PLUGINS",
        )
    return choice


def _job_defaults(environment: Environment, *, session_url: str) -> JobDefaults:
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
    listed = environment.optional("FUMAROLE_CONTROLLER_RESERVED_LINKS", _names) or ()
    issuer = environment.value("FUMAROLE_CONTROLLER_TOKEN_ISSUER", text, "")
    return frozenset(map(str.lower, listed)) | names_in_host(urlsplit(issuer).hostname or "")


def _dns(environment: Environment) -> Dns:
    dns = Dns(
        namespaces=environment.value(
            "FUMAROLE_CONTROLLER_DNS_NAMESPACES", _labels, ("kube-system",)
        ),
        networks=environment.value("FUMAROLE_CONTROLLER_DNS_NETWORKS", _networks, NODE_LOCAL_DNS),
        ports=environment.value("FUMAROLE_CONTROLLER_DNS_PORTS", _ports, (53,)),
    )
    if not (dns.namespaces or dns.networks) or not dns.ports:
        # A rule without "to", or without "ports", would admit everything instead of nothing.
        environment.problem("FUMAROLE_CONTROLLER_DNS_NAMESPACES", "leaves no name server")
    return dns


def _store_url(environment: Environment) -> str:
    folder = environment.optional(_STATE_FOLDER, _folder)
    url = environment.optional(_STORE_URL, _database_url)
    if not any(map(environment.is_set, (_STATE_FOLDER, _STORE_URL))):
        environment.problem(
            _STATE_FOLDER, f"is not set, and neither is {_STORE_URL}: the store needs a place"
        )
    # Built from parts: the name of a folder may contain characters with a meaning in URLs.
    return url or str(sa.URL.create("sqlite", database=f"{folder or ''}/store.db"))

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

from controller.kube.kubeconfig import check_kubeconfig
from controller.site.hook_limits import DEFAULT_TRIES, HookSeconds
from controller.site.job_defaults import JobDefaults, read_job_defaults
from controller.site.log_place import LOGS_SETTINGS, LogsPlace, read_logs_place
from controller.site.setting_values import dns_label, name_list, period
from controller.site.webhook_receivers import Receiver, read_receivers
from controller.store import postgresql
from shared.bus import check_url
from shared.jose.jwks import read_key_source
from shared.jose.signing_keys import read_signing_keys
from shared.log import LogSettings, read_log_settings
from shared.routes.signed_table import TableSigner
from shared.settings import (
    Environment,
    count,
    existing_file,
    is_loopback_name,
    is_unspecified,
    issuer_identifier,
    key_file,
    listen_address,
    public_url,
    replaceable_file,
    seconds,
    setting,
    web_url,
    writable_folder,
)
from shared.tokens import LONGEST_SERVICE_SECONDS

Role = Literal["api", "reconciler", "hub"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

Address = tuple[str, int]

_STATE_FOLDER: Final = "FUMAROLE_CONTROLLER_STATE_FOLDER"
_STORE_URL: Final = "FUMAROLE_CONTROLLER_STORE_URL"
_BUS_KEY: Final = "FUMAROLE_CONTROLLER_BUS_SIGNING_KEY_FILE"
_ROLES: Final = "FUMAROLE_CONTROLLER_ROLES"
_PUBLIC_URL: Final = "FUMAROLE_CONTROLLER_PUBLIC_URL"
_WEBHOOKS: Final = "FUMAROLE_CONTROLLER_WEBHOOKS_FILE"
_OF_CONTROLLERS: Final = (
    *(_BUS_KEY, "FUMAROLE_CONTROLLER_PROMETHEUS_TOKEN_FILE"),
    *(f"FUMAROLE_CONTROLLER_{name}_FILE" for name in ("KINDS", "OWNERS", "PRODUCTS", "TOOLS")),
    *LOGS_SETTINGS,
)
"""A process that is only a hub leaves these out: it shares a ConfigMap with controllers, and mounts
neither their volumes nor their Secrets."""
_STAND_IN_URL = urlsplit("https://missing.invalid")

_MOST_DRY_RUN_SECONDS = 10.0


def _signer(raw: str, instance: str) -> TableSigner:
    first, *_ = read_signing_keys(Path(raw).read_bytes())
    return TableSigner(first, instance=instance)


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
    names = name_list(raw)
    unknown = [name for name in names if name not in ROLES]
    if unknown or not names:
        raise ValueError(f"not a list of {', '.join(ROLES)}")
    return frozenset(cast(tuple[Role, ...], names))


def _folder(raw: str) -> Path:
    return writable_folder(Path(raw))


def _kubeconfig(raw: str) -> Path:
    """Return a path, or a list of paths with at least one readable one, as kubectl does."""
    troubles = list[OSError]()
    for path in raw.split(os.pathsep):
        try:
            existing_file(path)
        except OSError as error:
            troubles.append(error)
        else:
            check_kubeconfig(raw)
            return Path(raw)
    raise troubles[0]


def _database_url(raw: str) -> str:
    scheme = raw.partition(":")[0].partition("+")[0]
    if scheme not in ("sqlite", *postgresql.SCHEMES):
        raise ValueError("not a sqlite or postgresql URL")
    if scheme in postgresql.SCHEMES and (problem := postgresql.problem_of(raw)):
        raise ValueError(problem)
    # SQLAlchemy takes what follows two slashes for a server, and no file for a store in memory.
    if scheme == "sqlite" and not re.match("[^/]*:///[^:?]", raw):
        raise ValueError("names no file: three slashes and a path are needed: sqlite:////a/b.db")
    return raw


def _session_url(public_url: SplitResult) -> str:
    port = f":{public_url.port}" if public_url.port is not None else ""
    return f"{public_url.scheme}://{{sid}}.{(public_url.hostname or '').rstrip('.')}{port}"


def _public_url(raw: str) -> SplitResult:
    return public_url(raw, named=False)


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

    instance: str = setting("FUMAROLE_INSTANCE", dns_label, "default")
    roles: frozenset[Role] = setting(_ROLES, _roles, frozenset(ROLES))
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
    address_file: Path | None = setting("FUMAROLE_CONTROLLER_ADDRESS_FILE", replaceable_file)
    store_url: str
    state_folder: Path | None
    redis_url: str = setting("FUMAROLE_REDIS_URL", check_url, "redis://127.0.0.1:6379/0")
    link_keys: tuple[bytes, ...]
    bus_signer: TableSigner | None
    token_issuer: str
    token_jwks: str
    token_longest_seconds: float = setting(
        "FUMAROLE_CONTROLLER_TOKEN_MAX_SECONDS", period, LONGEST_SERVICE_SECONDS
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

    def make_folders(self) -> None:
        """Make the folders of the store and of logs, if need be.

        Raises:
            ValueError: If one cannot be made.
        """
        try:
            for folder in (self.state_folder, self.logs):
                if isinstance(folder, Path):
                    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ValueError(f"a folder cannot be made: {error}") from None

    @property
    def base_domain(self) -> str:
        """The domain of all sessions' hosts."""
        return (self.public_url.hostname or "").rstrip(".")


def read_settings(environment: Environment) -> ControllerSettings:
    """Return the settings; *environment* collects every problem."""
    read = environment.fields(ControllerSettings)
    if environment.has_problem(_ROLES):  # the settings that a role needs are not known then
        read["roles"] = frozenset[Role]()
    roles = read["roles"]
    # Only gateways call the hub, so a process that is only a hub need not know the orchestrator.
    only_hub = roles == {"hub"}
    needed = environment.required if roles - {"hub"} else environment.value
    url = needed(_PUBLIC_URL, _public_url, _STAND_IN_URL)
    try:
        public_url(url.geturl())
    except ValueError as error:
        environment.warning(_PUBLIC_URL, f"will be refused, as gateways do already: {error}")
    if only_hub:
        environment.leave_out(_OF_CONTROLLERS)
    if "reconciler" not in roles:
        environment.leave_out((_WEBHOOKS,))
    state_folder = environment.optional(_STATE_FOLDER, _folder)
    settings = ControllerSettings(
        **read,
        store_url=_store_url(environment, state_folder),
        state_folder=state_folder,
        link_keys=environment.required("FUMAROLE_LINK_KEY_FILE", key_file, (b"",)),
        bus_signer=environment.optional(_BUS_KEY, lambda raw: _signer(raw, read["instance"])),
        kubeconfig=environment.optional("KUBECONFIG", _kubeconfig),
        plugins=_plugin_choice(environment),
        jobs=read_job_defaults(environment, session_url=_session_url(url)),
        logs=None if only_hub else read_logs_place(environment),
        prometheus=_prometheus(environment),
        webhooks=environment.value(_WEBHOOKS, read_receivers, ()),
        log=read_log_settings(environment),
        token_issuer=needed("FUMAROLE_CONTROLLER_TOKEN_ISSUER", issuer_identifier, ""),
        token_jwks=read_key_source(
            environment, "FUMAROLE_CONTROLLER_TOKEN_JWKS", needed=bool(roles - {"hub"})
        ),
        public_url=url,
    )
    environment.check_authorities()
    environment.check_addresses(
        {
            "FUMAROLE_CONTROLLER_OPS_LISTEN": settings.ops_listen,
            **({"FUMAROLE_CONTROLLER_LISTEN": settings.listen} if "api" in roles else {}),
            **({"FUMAROLE_CONTROLLER_HUB_LISTEN": settings.hub_listen} if "hub" in roles else {}),
        }
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
        environment.problem(_WEBHOOKS, "gives a receiver the link key as its secret")


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
    file = "FUMAROLE_CONTROLLER_PROMETHEUS_TOKEN_FILE"
    token = environment.optional(file, Path)
    if url is None:
        return None
    if token is not None and not token.is_file():
        # It is read again for each sample, and may be written later.
        environment.warning(file, f"names no file: nothing is sampled until {token} exists")
    if token is not None and url.scheme == "http" and not is_loopback_name(url.hostname or ""):
        environment.problem(name, "is http, over which a token must not be sent")
    return Prometheus(url.geturl(), token)


def _plugin_choice(environment: Environment) -> PluginChoice:
    listed = environment.optional("FUMAROLE_CONTROLLER_PLUGINS", name_list)
    choice = PluginChoice(
        extra=environment.value("FUMAROLE_CONTROLLER_EXTRA_PLUGINS", name_list, ()),
        disabled=environment.value("FUMAROLE_CONTROLLER_DISABLED_PLUGINS", name_list, ()),
        listed=listed,
    )
    if listed is not None and (choice.extra or choice.disabled):
        environment.problem(
            "FUMAROLE_CONTROLLER_PLUGINS",
            "lists all plugins, and cannot be combined with FUMAROLE_CONTROLLER_EXTRA_PLUGINS and "
            "FUMAROLE_CONTROLLER_DISABLED_PLUGINS",
        )
    return choice


def _store_url(environment: Environment, folder: Path | None) -> str:
    url = environment.optional(_STORE_URL, _database_url)
    if not any(map(environment.is_set, (_STATE_FOLDER, _STORE_URL))):
        environment.problem(
            _STATE_FOLDER, f"is not set, and neither is {_STORE_URL}: the store needs a place"
        )
    # Built from parts: the name of a folder may contain characters with a meaning in URLs.
    return url or str(sa.URL.create("sqlite", database=f"{folder or ''}/store.db"))

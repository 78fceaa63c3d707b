"""The owners' shares of the cluster, from a file that operators write in YAML or JSON.

docs/plugins/fair-share.md describes it. Every problem in it is reported with its path.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from controller.jobs.spec.field_types import QUALIFIED_NAME
from controller.jobs.spec.parameters import Strict
from controller.site.yaml_file import read_declared
from shared.settings import Environment, on_or_off

LONGEST_PREFIX: Final = 20
_PREFIX: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$"
_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[MGTPE]|[KMGTPE]i)?", re.ASCII)


def _amount(value: Any) -> Any:
    is_quantity = isinstance(value, str) and _QUANTITY.fullmatch(value) is not None
    if is_quantity or (type(value) is int and value >= 0):
        return value
    raise ValueError('should be a whole number, or a quantity as text, such as "1.5" or 8Gi')


Amount = Annotated[str | int, BeforeValidator(_amount)]
ResourceName = Annotated[str, Field(pattern=QUALIFIED_NAME)]
QueueName = Annotated[str, Field(pattern=_SUBDOMAIN)]
PodSecurity = Literal["privileged", "baseline", "restricted"]
AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]


class QueueShare(Strict):
    """The owner's queue: its weight among the queues, and its limit."""

    weight: Annotated[int, Field(ge=1, le=65535)] = 1
    capability: dict[ResourceName, Amount] = Field(default_factory=dict)


class ClaimTemplate(Strict):
    """A PersistentVolumeClaim in each owner's namespace.

    ``volume`` names the volume to bind. ``{namespace}`` and ``{owner}`` in it are replaced by the
    namespace's name and the owner's hash.
    """

    name: Annotated[str, Field(pattern=_SUBDOMAIN)]
    size: Amount
    access_modes: Annotated[list[AccessMode], Field(min_length=1)] = ["ReadWriteMany"]  # noqa: RUF012 - pydantic copies it
    storage_class: Annotated[str, Field(pattern=f"^$|{_SUBDOMAIN}")] | None = None
    volume: str | None = None


class PullCredential(Strict):
    """A registry's credential, copied from a Docker configuration file into each namespace."""

    name: Annotated[str, Field(pattern=_SUBDOMAIN)]
    file: str


class OwnersFile(Strict):
    """The whole file; every field is optional.

    ``queues`` are those that a job may name beside its owner's own; None: any existing queue.
    """

    pod_security: PodSecurity = "restricted"
    labels: dict[ResourceName, Annotated[str, Field(pattern=_LABEL_VALUE)]] = Field(
        default_factory=dict
    )
    queue: QueueShare = QueueShare()
    quota: dict[ResourceName, Amount] = Field(default_factory=dict)
    claims: list[ClaimTemplate] = Field(default_factory=list, max_length=32)
    pull_credentials: list[PullCredential] = Field(default_factory=list, max_length=16)
    queues: Annotated[list[QueueName], Field(max_length=1000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGrant:
    """A ClusterRole that a ServiceAccount gets in each owner's namespace."""

    role: str
    namespace: str
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """The isolation of owners; ``pull_secrets`` are Docker configurations in base64, by name."""

    prefix: str
    owners: OwnersFile = field(default_factory=OwnersFile)
    grants: tuple[RoleGrant, ...] = ()
    pull_secrets: dict[str, str] = field(default_factory=dict, repr=False)


def read_fair_share(environment: Environment, *, restricted: bool) -> FairShare | None:
    """Return the isolation of owners; None if they share one namespace.

    *restricted* says whether all pods comply with the Pod Security Standard of that name.
    """
    wanted = environment.value("FUMAROLE_CONTROLLER_FAIR_SHARE", on_or_off, True)
    # A namespace must allow what every job may do: see the miscellaneous plugin.
    least: PodSecurity = "restricted" if restricted else "baseline"
    file = environment.optional("FUMAROLE_CONTROLLER_OWNERS_FILE", _owners_file)
    owners, secrets = file or (OwnersFile(pod_security=least), {})
    share = FairShare(
        prefix=environment.value("FUMAROLE_CONTROLLER_NAMESPACE_PREFIX", _prefix, "fumarole"),
        owners=owners,
        grants=environment.value("FUMAROLE_CONTROLLER_ROLE_GRANTS", _grants, ()),
        pull_secrets=secrets,
    )
    if wanted and file is not None and owners.queues is None:
        environment.warning(
            "FUMAROLE_CONTROLLER_OWNERS_FILE",
            "lists no queues, so a job may name any queue, even another owner's",
        )
    return share if wanted else None


def _prefix(raw: str) -> str:
    if not _PREFIX.fullmatch(raw) or len(raw) > LONGEST_PREFIX:
        raise ValueError(
            f"not a DNS label that begins with a letter, of at most {LONGEST_PREFIX} characters"
        )
    if raw.startswith("kube-"):
        raise ValueError("kube- is reserved by Kubernetes")
    return raw


def _grants(raw: str) -> tuple[RoleGrant, ...]:
    return tuple(_grant(part.strip()) for part in raw.split(",") if part.strip())


def _grant(raw: str) -> RoleGrant:
    role, equals, subject = raw.partition("=")
    namespace, slash, account = subject.partition("/")
    if not (equals and slash and role and namespace and account):
        raise ValueError("not a list of <ClusterRole>=<namespace>/<ServiceAccount>")
    return RoleGrant(role=role, namespace=namespace, account=account)


def _owners_file(raw: str) -> tuple[OwnersFile, dict[str, str]]:
    path = Path(raw)
    owners = read_declared(path, OwnersFile)
    secrets = {
        one.name: _docker_configuration(path.parent / one.file) for one in owners.pull_credentials
    }
    return owners, secrets


def _docker_configuration(path: Path) -> str:
    try:
        content = path.read_bytes()
        known = json.loads(content)
    except OSError as error:
        raise ValueError(f"cannot read a pull credential: {error}") from None
    except ValueError:
        known = None
    if not isinstance(known, dict) or "auths" not in known:
        raise ValueError(f"{path.name} is not a Docker configuration with auths")
    return base64.b64encode(content).decode()

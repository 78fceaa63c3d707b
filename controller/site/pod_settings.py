"""The deployment's decisions about the pods of all jobs: files, ranks, runtimes, products."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.jobs.spec.storage import VolumeSource, loose_patterns, parse_volumes
from controller.site.product_list import Catalogue, read_catalogue
from controller.site.tool_list import ToolList, read_tools
from controller.volcano.quantities import Quantity, parse_cpu, parse_memory
from shared.settings import Environment, count, on_or_off, setting, yes_or_no

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
NO_TOOLS: Final = ToolList()
_IMAGE: Final = re.compile(r"[A-Za-z0-9][-._:/@A-Za-z0-9]{0,511}", re.ASCII)


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

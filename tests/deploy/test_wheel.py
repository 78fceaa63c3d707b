"""Tests that a wheel has all that a process needs, and nothing of the build."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import cast

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from controller.jobs.pipeline.plugin_models import CompanionKind
from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS, Kind
from controller.leader.discovery import CompanionRights
from deploy.local.cluster import EmbeddedCluster
from shared.version import VERSION
from tests.controller.running import Controller, eventually, running
from tests.controller.test_restore_running import world_of
from tests.programs import RedisServer

# The tests build and install wheels, possibly on a busy machine.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "gateway/web/build.py", "gateway/web", "controller/web"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=300)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)
    return folder


@pytest.mark.needs("node")
def test_the_wheel_has_the_built_pages_and_not_their_sources(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"fumarole-{VERSION}-py3-none-any.whl") as wheel:
        names = wheel.namelist()
    for process, kinds in (("gateway", {"svg"}), ("controller", {"gz"})):
        pages = [name for name in names if name.startswith(f"{process}/web/")]
        built = [name for name in pages if name.startswith(f"{process}/web/build/")]
        assert f"{process}/web/build/manifest.json" in built
        assert {name.rpartition(".")[2] for name in built} >= {"js", "css", "txt", *kinds}
        assert pages == built
    assert {f"{one}/py.typed" for one in ("shared", "controller", "gateway")} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "deploy/", "benchmarks/"))]


@pytest.mark.needs("node")
def test_a_wheel_can_be_built_from_the_sdist_without_node(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"fumarole-{VERSION}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    source = tmp_path / f"fumarole-{VERSION}"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, timeout=120, capture_output=True)
    name = f"fumarole-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(dist / name) as here, zipfile.ZipFile(tmp_path / name) as there:
        assert there.namelist() == here.namelist()


IMPORT_ALL = """
import importlib, pkgutil, sys
for package in map(importlib.import_module, ("shared", sys.argv[1])):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""
PAGES = {
    "gateway": "gateway.pages.assets.load_assets(); print(gateway.__file__)",
    "controller": """
assert controller.api.docs_page.DocsPage(bytes).is_built
print(controller.store.migrations.__file__)
""",
}
"""What finds the pages once all is imported, and prints where it has found itself."""


def needed_by(metadata: Message, extras: set[str]) -> dict[str, Distribution]:
    """Return the packages that a package with *extras* needs, directly and indirectly."""
    found: dict[str, Distribution] = {}
    waiting = [(metadata, extras)]
    while waiting:
        asking, wanted = waiting.pop()
        for text in asking.get_all("Requires-Dist") or ():
            one = Requirement(text)
            name = canonicalize_name(one.name)
            environments = [{"extra": extra} for extra in wanted or {""}]
            applies = one.marker is None or any(map(one.marker.evaluate, environments))
            if applies and (name not in found or one.extras):
                new = name not in found
                found[name] = distribution(name)
                if new or one.extras:
                    waiting.append((cast(Message, found[name].metadata), set(one.extras)))
    return found


def metadata_of(dist: Path) -> Message:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return message_from_bytes(packed.read(f"fumarole-{VERSION}.dist-info/METADATA"))


def install(folder: Path, *wheels: Path) -> Path:
    """Make an environment with the wheels alone; return its packages folder."""
    venv.create(folder, with_pip=False)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet",
         "--no-index", "--no-deps", "--no-compile", *wheels],
        check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


def link(dist: Path, packages: Path, *extras: str) -> None:
    """Link into *packages* what the wheel's *extras* need, directly and indirectly."""
    packages.mkdir(exist_ok=True)
    for one in needed_by(metadata_of(dist), set(extras)).values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(one.locate_file(top)))


@pytest.fixture(scope="module")
def alone(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a process' environment: the wheel and its extra, no more."""

    @cache
    def made(process: str) -> Path:
        folder = tmp_path_factory.mktemp(process)
        link(dist, install(folder, *dist.glob("*.whl")), process)
        return folder

    return made


@pytest.mark.needs("node")
@pytest.mark.parametrize(("process", "more"), [("gateway", []), ("controller", ["s3"])])
def test_a_process_needs_only_the_packages_of_its_extra(
    dist: Path, alone: Callable[[str], Path], tmp_path: Path, process: str, more: list[str]
) -> None:
    site = alone(process)
    link(dist, tmp_path / "more", *more)
    done = subprocess.run(
        [site / "bin/python", "-c", IMPORT_ALL + f"import {process}\n{PAGES[process]}", process],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "more")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(site)
    other = "alembic" if process == "gateway" else "websockets"
    assert not list(site.glob(f"lib/python*/site-packages/{other}"))


@pytest.mark.needs("node")
async def test_a_session_is_opened_by_the_programs_of_the_wheel(
    alone: Callable[[str], Path], redis_server: RedisServer, tmp_path: Path
) -> None:
    programs = {one: alone(one) / f"bin/fumarole-{one}" for one in ("controller", "gateway")}
    store = f"sqlite:///{tmp_path}/store.db"
    async with world_of(tmp_path, redis_server.url, store, programs=programs) as world:
        await world.run("web")
        await world.enter("page", "web")
        assert (await world.look("page")).text.startswith("web ")


EXAMPLE = ROOT / "docs" / "plugins" / "example"
BOOKING = CompanionKind(api_version="billing.example.com/v1", kind="Booking", plural="bookings")
OPEN = {"FUMAROLE_PLUGIN_COST_CENTRE_OPEN": "physics,maths"}


@dataclass(frozen=True)
class Site:
    """A virtual environment with Fumarole and the example plugin, both from wheels."""

    folder: Path
    example: Path

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    def run(self, *command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.example, env={"PATH": os.environ["PATH"], **env},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def site(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Install both into an environment of their own; their dependencies come from this one."""
    made = Site(tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("example") / "package")
    shutil.copytree(EXAMPLE, made.example, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=made.example, check=True, timeout=120, capture_output=True)
    packages = install(made.folder, *dist.glob("*.whl"), *(made.example / "dist").glob("*.whl"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return made


@pytest.mark.needs("node")
def test_the_example_plugin_passes_its_tests_when_installed(site: Site) -> None:
    done = site.run(site.program("python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    where = "import controller, cost_centre; print(controller.__file__, cost_centre.__file__)"
    for path in site.run(site.program("python"), "-c", where).stdout.split():
        assert Path(path).is_relative_to(site.folder)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.needs("node")
def test_the_example_plugin_type_checks_against_the_installed_package(
    site: Site, tmp_path: Path
) -> None:
    done = site.run(
        sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path,
        "--python-executable", site.program("python"), "src", "tests",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


async def apply_example(admin: Kube) -> None:
    """Create the objects that the example needs, for the embedded cluster's account."""
    accounts = [{"kind": "ServiceAccount", "name": "controller", "namespace": "fumarole-system"}]
    for body in yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text()):
        if "subjects" in body:
            body["subjects"] = accounts
        plural = body["kind"].lower() + "s"
        await admin.create(Kind(body["apiVersion"], plural, body["kind"], namespaced=False), body)


@pytest.mark.needs("node")
async def test_an_installed_controller_runs_the_example_plugin(
    site: Site, redis_server: RedisServer, tmp_path: Path
) -> None:
    async with (
        EmbeddedCluster() as cluster,
        Kube.connect(cluster.kubeconfig("admin")) as admin,
        Kube.connect(cluster.kubeconfig("controller")) as kube,
    ):
        controller = Controller(
            tmp_path / "controller",
            kubeconfig=cluster.kubeconfig("controller"),
            redis_url=redis_server.url,
            FUMAROLE_CONTROLLER_EXTRA_PLUGINS="cost_centre",
        )
        controller.program, controller.place = [site.program("fumarole-controller")], tmp_path
        refused = await asyncio.to_thread(
            site.run, *controller.program, "--check", **controller.settings
        )
        assert refused.returncode == 2
        assert "error: FUMAROLE_PLUGIN_COST_CENTRE_OPEN is not set" in refused.stderr
        controller.settings |= OPEN
        async with running(controller):
            await eventually(lambda: lacks_rights(controller), seconds=60, what="not told")
            await apply_example(admin)
            rights = CompanionRights(kube, {BOOKING: "cost_centre"}, namespace=lambda: "jobs")

            async def granted() -> bool:
                await rights.look()
                return not rights.problems

            await eventually(granted, seconds=60)
            await live(controller, admin)


async def lacks_rights(controller: Controller) -> bool:
    """Return whether the process is not ready and names the missing rights."""
    said = "the plugin cost_centre makes bookings of billing.example.com/v1, which the cluster"
    return any(said in one for one in await controller.why_not_ready())


async def live(controller: Controller, admin: Kube) -> None:
    """Refuse a job, run another one, and check the plugin's objects and their removal."""
    kind = Kind(BOOKING.api_version, BOOKING.plural, BOOKING.kind)
    wrong = {"id": "no", "owner": {"user": "ada"}, "image": "busybox"}
    said = {"plugins": {"cost_centre": {"centre": "alchemy"}}}
    body = {"items": [wrong | said]}
    response = await controller.call("POST", "/v1/jobs", body, expect=422)
    (problem,) = response["details"]["problems"]
    assert problem == {
        "path": "items[0].plugins.cost_centre.centre", "message": "is not open",
    }  # fmt: skip
    fields = {"cost_centre": {"centre": "physics"}}
    await controller.submit("yes", plugins=fields)
    job = await controller.until("yes", "RUNNING", seconds=90)
    assert job["plugins"] == fields
    booking = await admin.get(kind, "j-yes.booking", "jobs")
    assert booking["spec"] == {"centre": "physics", "currency": "EUR", "user": "ada"}
    volcano_job = await admin.get(VCJOBS, "j-yes", "jobs")
    template = volcano_job["spec"]["tasks"][0]["template"]
    assert template["metadata"]["labels"]["billing.example.com/centre"] == "physics"
    counted = 'fumarole_plugin_cost_centre_started_total{centre="physics"} 1.0'

    async def is_counted() -> bool:
        return counted in await controller.metrics()

    await eventually(is_counted)
    await controller.call("DELETE", "/v1/jobs/yes", expect=202)
    await controller.until("yes", "SUCCESS", seconds=90)

    async def is_gone() -> bool:
        return await admin.list(kind, "jobs") == []

    await eventually(is_gone, seconds=60, what="the booking is left behind")

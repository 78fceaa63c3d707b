"""Plugins of other packages, installed as a package is: metadata and a module on the path."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.jobs.pipeline.pipeline import Pipeline, make_plugins
from controller.plugins import PLUGINS
from tests.controller.samples import make_context, make_job

STAMP = """
from controller.jobs.pipeline.plugin import JobPlugin

class Stamp(JobPlugin):
    name = "stamp"
    seen = []

    async def on_create(self, job, builder):
        names = [one.name for one in builder.companions]
        builder.volcano_job.annotations["example.com/companions"] = ",".join(names)
        builder.volcano_job.annotations["example.com/image"] = builder.containers()[0].image
"""
Install = Callable[..., None]
OURS = [plugin.name for plugin in PLUGINS]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution that holds one module and entry points into it."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(distribution: str, module: str, source: str, **points: str) -> None:
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        about = tmp_path / f"{distribution}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n"
        )
        lines = [f"{name} = {module}:{attribute}" for name, attribute in points.items()]
        (about / "entry_points.txt").write_text("\n".join(["[fumarole.plugins]", *lines, ""]))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


async def annotations_of(*wanted: str) -> dict[str, str]:
    plugins = make_plugins(PLUGINS, make_context(), wanted=wanted)
    plan = await Pipeline(plugins, instance="test", namespace="jobs").plan(make_job())
    return plan.volcano_job.annotations


async def test_a_plugin_of_another_package_runs_in_its_place(install: Install) -> None:
    install("stamps", "stamps", STAMP, stamp="Stamp")
    before = await annotations_of(*OURS[:-1], "stamp", OURS[-1])
    after = await annotations_of(*OURS, "stamp")
    assert before["example.com/image"] == "busybox"
    assert "j-j1.gateway" not in before["example.com/companions"]
    assert "j-j1.gateway" in after["example.com/companions"]


async def test_a_plugin_that_nobody_asked_for_does_not_run_and_is_not_even_loaded(
    install: Install,
) -> None:
    install("broken", "broken_stamps", "raise RuntimeError('loaded')", stamp="Stamp")
    make_plugins(PLUGINS, make_context(), wanted=None)
    make_plugins(PLUGINS, make_context(), wanted=OURS)
    assert "broken_stamps" not in sys.modules


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no GPU here')", "of broken cannot be loaded: RuntimeError: no GPU"),
        ("import not_installed_anywhere", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("def Stamp(:", "cannot be loaded: SyntaxError"),
        ("x = 1", "cannot be loaded: AttributeError"),
        ("class Stamp: name = 'stamp'", "of broken is no JobPlugin"),
        ("Stamp = 5", "of broken is no JobPlugin"),
        (STAMP.replace('"stamp"', '"other"'), "does not call itself stamp"),
        (
            STAMP + "\n    def __init__(self, context):\n        raise OSError('no licence')",
            "the plugin stamp cannot be made: OSError: no licence",
        ),
    ],
)
def test_a_broken_plugin_is_named_with_what_is_wrong(
    install: Install, source: str, message: str
) -> None:
    install("broken", "broken_stamps", source, stamp="Stamp")
    with pytest.raises(ValueError, match="stamp") as caught:
        make_plugins(PLUGINS, make_context(), wanted=[*OURS, "stamp"])
    assert message in str(caught.value)


def test_two_packages_that_have_a_plugin_of_one_name_are_both_named(install: Install) -> None:
    install("one", "stamps_one", STAMP, stamp="Stamp")
    install("two", "stamps_two", STAMP, stamp="Stamp")
    with pytest.raises(ValueError, match="several packages have a plugin stamp: one, two"):
        make_plugins(PLUGINS, make_context(), wanted=["stamp"])


def test_a_package_cannot_put_itself_in_the_place_of_one_of_ours(install: Install) -> None:
    install("rogue", "rogue_task", STAMP.replace('"stamp"', '"task"'), task="Stamp")
    (task, *_) = make_plugins(PLUGINS, make_context(), wanted=OURS)
    assert type(task).__module__ == "controller.plugins.task"


def test_a_plugin_that_is_not_installed_is_named() -> None:
    with pytest.raises(ValueError, match="there is no plugin absent"):
        make_plugins(PLUGINS, make_context(), wanted=["task", "absent"])


async def test_a_broken_plugin_ends_the_start_with_its_name(
    install: Install, tmp_path: Path, redis_server: Any
) -> None:
    from tests.controller.running import Controller

    install("broken", "broken_stamps", "raise RuntimeError('no GPU here')", stamp="Stamp")
    one = Controller(
        tmp_path / "controller",
        kubeconfig=tmp_path / "none",
        redis_url=redis_server.url,
        roles="api",
        FUMAROLE_CONTROLLER_PLUGINS=",".join([*OURS, "stamp"]),
        PYTHONPATH=os.pathsep.join([str(tmp_path)]),
    )
    with pytest.raises(AssertionError, match="the controller ended"):
        await one.start()
    assert await one.exit_code() == 2
    assert "error: the plugin stamp of broken cannot be loaded: RuntimeError" in one.tail()
    assert "Traceback" not in one.tail()

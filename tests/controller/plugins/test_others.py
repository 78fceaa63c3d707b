"""Tests third-party plugins, installed as packages: metadata and a module on the path."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin_loading import (
    LoadedPlugins,
    PluginsRefused,
    load_plugins,
    make_loaded,
)
from controller.plugin_api import JobPlugin
from controller.plugin_api.testing import make_plugin, plan_job
from controller.plugins import PLUGINS
from controller.settings import PluginChoice
from tests.controller.samples import make_context, make_job

STAMP = """
from controller.plugin_api import JobPlugin, JobRejected
from controller.plugin_api.testing import make_plugin, plan_job

class Stamp(JobPlugin):
    name = "stamp"
    api_version = "1.0"
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
    """Return a function that installs a distribution with one module and its entry points."""
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


def load(*extra: str, disabled: Sequence[str] = ()) -> LoadedPlugins:
    return load_plugins(PLUGINS, PluginChoice(extra=extra, disabled=tuple(disabled)))


def names_of(loaded: LoadedPlugins) -> list[str]:
    return [one.name for one in loaded.classes]


async def annotations_of(loaded: LoadedPlugins) -> dict[str, str]:
    plugins = make_loaded(loaded, make_context())
    plan = await Pipeline(plugins, instance="test", namespace="jobs").plan(make_job())
    return plan.volcano_job.annotations


async def test_a_third_party_plugin_runs_at_its_declared_position(install: Install) -> None:
    install("stamps", "stamps", STAMP, stamp="Stamp")
    last = STAMP.replace("seen =", 'after = ("proxy",)\n    seen =').replace('"stamp"', '"last"')
    install("lasts", "lasts", last, last="Stamp")
    before, after = await annotations_of(load("stamp")), await annotations_of(load("last"))
    assert before["example.com/image"] == "busybox"
    assert "j-j1.gateway" not in before["example.com/companions"]
    assert "j-j1.gateway" in after["example.com/companions"]
    # All built-in plugins run in their order, whatever runs between them.
    for added in ("stamp", "last"):
        assert [name for name in names_of(load(added)) if name != added] == OURS


async def test_an_unconfigured_plugin_is_not_loaded(
    install: Install,
) -> None:
    install("broken", "broken_stamps", "raise RuntimeError('loaded')", stamp="Stamp")
    assert names_of(load()) == OURS
    assert names_of(load(disabled=["minikube", "ingress"])) == [
        name for name in OURS if name not in ("minikube", "ingress")
    ]
    assert "broken_stamps" not in sys.modules


def with_kind(api_version: str, kind: str, plural: str) -> str:
    made = f"CompanionKind(api_version={api_version!r}, kind={kind!r}, plural={plural!r})"
    source = with_line(f"companion_kinds = ({made},)")
    return source.replace("import JobPlugin", "import CompanionKind, JobPlugin")


def with_line(line: str) -> str:
    return STAMP.replace("    seen = []\n", f"    {line}\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no GPU here')", "of broken cannot be loaded: RuntimeError: no GPU"),
        ("raise SystemExit('no GPU here')", "of broken cannot be loaded: SystemExit: no GPU"),
        ("import not_installed_anywhere", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("def Stamp(:", "cannot be loaded: SyntaxError"),
        ("x = 1", "cannot be loaded: AttributeError"),
        ("class Stamp: name = 'stamp'", "of broken is no JobPlugin"),
        ("Stamp = 5", "of broken is no JobPlugin"),
        (STAMP.replace('"stamp"', '"other"'), "does not call itself stamp"),
        (with_line("api_version = '1.1'"), "controller has 1.0: a newer Fumarole is needed"),
        (with_line("api_version = '2.0'"), "controller has 1.0: a newer Fumarole is needed"),
        (with_line("api_version = '0.9'"), "a newer release of the plugin is needed"),
        (with_line("api_version = 1.0"), "of broken has an api_version that is none"),
        (with_line("after = ('tusk',)"), "runs after tusk, and there is no such plugin; task is"),
        (with_line("after = ('stamp',)"), "the plugin stamp says that it runs after itself"),
        (with_line("before = 'task'"), "has an 'before' that is no tuple of names"),
        (
            with_line("after, before = ('proxy',), ('task',)"),
            "task runs before proxy (says proxy), proxy runs before stamp (says stamp), "
            "stamp runs before task (says stamp)",
        ),
        (with_line("fields = {'imagge'}"), "claims the field imagge, which no job has; image is"),
        (with_line("companion_kinds = ('Lease',)"), "has companion_kinds that are no tuple of"),
        (with_kind("v1", "Secret", "secrets"), "of the kind Secret, which need no declaration"),
        (with_kind("v1", "Pod", "pods"), "of the kind Pod, which are the controller's own"),
        (with_kind("batch.volcano.sh/v1alpha1", "Job", "jobs"), "are the controller's own"),
        (with_kind("batch", "Job", "jobs"), "whose group and version cannot be 'batch'"),
        (with_kind("batch/v1", "Job", "../jobs"), "whose plural cannot be '../jobs'"),
        (with_kind("b/v1", "Job", "j" * 60), "are longer than 63 characters"),
        (with_line("def on_cleanup(self, job_id): pass"), "a hook on_cleanup that is no 'async"),
        (with_line("on_cleanup = None"), "has a hook on_cleanup that is no 'async def'"),
        (
            with_line("async def on_cleanup(self): pass"),
            "a hook on_cleanup that cannot be called as on_cleanup(self, job_id)",
        ),
        (
            with_line("async def on_job_started(self, job_id, seen): pass"),
            "has a hook on_job_started, which nobody calls; on_job_start is one",
        ),
        (
            STAMP + "\n    def __init__(self, context):\n        raise OSError('no licence')",
            "the plugin stamp cannot be made: OSError: no licence",
        ),
    ],
)
def test_a_broken_plugin_is_reported_with_its_error(
    install: Install, source: str, message: str
) -> None:
    install("broken", "broken_stamps", source, stamp="Stamp")
    with pytest.raises(ValueError, match="stamp") as caught:
        make_loaded(load("stamp"), make_context())
    assert message in str(caught.value)


async def test_a_companion_of_a_kind_that_is_not_declared_is_the_plugins_failure(
    install: Install,
) -> None:
    made = """
        from controller.plugin_api import Companion
        one = Companion(kind="Lease", name="j-j1.x", manifest={"spec": {}}, when="after")
        builder.add_companion(one)
    """
    install("leases", "leases", STAMP + made, stamp="Stamp")
    with pytest.raises(PluginFailed) as caught:
        await annotations_of(load("stamp"))
    assert caught.value.why == "made a Lease, which is not among its companion_kinds"
    declared = with_kind("coordination.k8s.io/v1", "Lease", "leases").rstrip() + made
    install("more", "more_leases", declared.replace('"stamp"', '"more"'), more="Stamp")
    plugins = make_loaded(load("more"), make_context())
    plan = await Pipeline(plugins, instance="test", namespace="jobs").plan(make_job())
    (lease,) = [one for one in plan.companions if one.name == "j-j1.x"]
    assert lease.kind == "coordination.k8s.io/v1/leases"
    assert (lease.manifest["kind"], lease.manifest["spec"]) == ("Lease", {})


def test_two_packages_with_one_plugin_name_are_both_reported(install: Install) -> None:
    install("one", "stamps_one", STAMP, stamp="Stamp")
    install("two", "stamps_two", STAMP, stamp="Stamp")
    with pytest.raises(ValueError, match="several packages have a plugin stamp: one, two"):
        load("stamp")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"extra": ("absent",)}, "FUMAROLE_CONTROLLER_EXTRA_PLUGINS: there is no plugin absent"),
        ({"extra": ("stam",)}, "there is no plugin stam (stamp is one)"),
        ({"extra": ("stamp", "stamp")}, "the plugin stamp is named twice"),
        ({"extra": ("task",)}, "the plugin task is built in: it runs without being named"),
        (
            {"disabled": ("minicube",)},
            "FUMAROLE_CONTROLLER_DISABLED_PLUGINS: there is no plugin minicube (minikube is one)",
        ),
        ({"disabled": ("task",)}, "the plugin task makes the pods: it cannot be disabled"),
        ({"listed": ("task", "absent")}, "FUMAROLE_CONTROLLER_PLUGINS: there is no plugin absent"),
    ],
)
def test_an_invalid_plugin_selection_is_reported_in_a_sentence(
    install: Install, choice: dict[str, Any], message: str
) -> None:
    # A third-party plugin with the name of a built-in one does not replace it.
    install("stamps", "stamps", STAMP, stamp="Stamp", task="Stamp")
    with pytest.raises(PluginsRefused, match="plugin") as caught:
        load_plugins(PLUGINS, PluginChoice(**choice))
    assert message in str(caught.value)


def test_an_older_list_of_all_plugins_keeps_new_ones(install: Install) -> None:
    class Sixteenth(JobPlugin):
        name = "sixteenth"
        after = ("task",)
        before = ("parameter",)

    install("stamps", "stamps", STAMP, stamp="Stamp")
    known = [*PLUGINS, Sixteenth]
    listed = (*(name for name in OURS if name != "minikube"), "stamp")
    loaded = load_plugins(known, PluginChoice(listed=listed))
    # The plugin keeps its place in the list, though it would otherwise run before proxy.
    assert names_of(loaded)[-2:] == ["proxy", "stamp"]
    assert set(names_of(loaded)) == {*OURS, "sixteenth", "stamp"} - {"minikube"}
    note, newer, *_ = loaded.warnings
    assert "FUMAROLE_CONTROLLER_EXTRA_PLUGINS=stamp" in note
    assert "FUMAROLE_CONTROLLER_DISABLED_PLUGINS=minikube" in note
    assert "does not know sixteenth" in newer


def test_a_plugin_list_in_an_impossible_order_is_corrected_and_logged() -> None:
    loaded = load_plugins(PLUGINS, PluginChoice(listed=("proxy", "task")))
    # Includes plugins that the older list could not know.
    assert names_of(loaded) == ["task", "proxy", "data_sets"]
    assert "cannot be; they run as task, proxy" in loaded.warnings[-1]


RECORDED = Path(__file__).parents[2] / "recorded" / "plugin"


async def test_a_plugin_written_for_0_1_runs_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(RECORDED)
    monkeypatch.delitem(sys.modules, "cost_centre", raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load("cost_centre")
    logged = [str(one.message) for one in caught]
    for old in ("builder", "model", "plugin", "problems"):
        assert any(text.startswith(f"controller.jobs.{old} goes with") for text in logged)
    assert "the plugin cost_centre names no api_version" in logged[-1]
    assert loaded.warnings == (logged[-1],)
    assert "cost_centre" in names_of(loaded)


def test_a_name_that_an_old_module_lacks_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="nonsense"):
        from controller.jobs.builder import nonsense  # type: ignore[attr-defined]  # noqa: F401 - the point of this test


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
        FUMAROLE_CONTROLLER_EXTRA_PLUGINS="stamp",
        PYTHONPATH=os.pathsep.join([str(tmp_path)]),
    )
    with pytest.raises(AssertionError, match="the controller ended"):
        await one.start()
    assert await one.exit_code() == 2
    assert "error: the plugin stamp of broken cannot be loaded: RuntimeError" in one.tail()
    assert "Traceback" not in one.tail()


PAGE = (Path(__file__).parents[3] / "docs" / "plugins" / "write-your-own.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.parametrize("block", [one for one in BLOCKS if "JobPlugin)" in one])
async def test_every_documented_plugin_is_complete_and_starts(install: Install, block: str) -> None:
    (name,) = re.findall(r"name: ClassVar\[str\] = \"(\w+)\"", block)
    (made,) = re.findall(r"class (\w+)\(JobPlugin\)", block)
    install("page", "of_the_page", block, **{name: made})
    (plugin,) = [one for one in load(name).classes if one.name == name]
    prefix = "FUMAROLE_PLUGIN_COST_CENTRE"
    settings = {f"{prefix}_URL": "https://example.com", f"{prefix}_OPEN_CENTRES": "AB"}
    assert make_plugin(plugin, settings=settings).name == name
    said = {"plugins": {name: {"centre": "AB"}}} if plugin.job_fields_model else {}
    job = make_job(labels={"cost-centre": "AB"}, **said)
    planned = await plan_job(plugin, job, settings=settings)
    assert planned.manifest["kind"] == "Job"


def test_the_documented_tests_pass_for_the_documented_plugin(
    install: Install, tmp_path: Path
) -> None:
    (tests,) = [one for one in BLOCKS if "def test_" in one]
    install("page", "cost_centre", BLOCKS[0])
    found: dict[str, Any] = {}
    exec(compile(tests, "page", "exec"), found)
    ran = [test() for name, test in found.items() if name.startswith("test_")]
    assert len(ran) == 2

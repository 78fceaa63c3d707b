"""Renders the golden files and the documentation's examples, and writes them."""

from __future__ import annotations

import asyncio
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.model import Job
from controller.plugins import PLUGINS
from tests.controller.goldens.cases import CASES, PRODUCTS, Case
from tests.controller.samples import NoPeers, make_context, make_defaults, make_plugins

FILES: Final = Path(__file__).with_name("files")
PAGES: Final = Path(__file__).parents[3] / "docs" / "plugins"
_EXAMPLE: Final = re.compile(
    r"(<!-- example: (?P<name>[a-z_]+) -->\n```yaml\n).*?^(```\n)", re.DOTALL | re.MULTILINE
)


async def plan_of(case: Case) -> Plan:
    """Return the plugins' plan for the case's job at submission."""
    with tempfile.TemporaryDirectory() as folder:
        products = Path(folder) / "products.yaml"
        products.write_text(PRODUCTS)
        settings = {"FUMAROLE_CONTROLLER_PRODUCTS_FILE": str(products), **case.settings}
        book = NoPeers(case.peers, case.callers)
        context = make_context(defaults=make_defaults(**settings), peers=book)
        context = replace(context, instance="default")
        plugins = make_plugins(PLUGINS, context, wanted=case.plugins or None)
    pipeline = Pipeline(plugins, instance="default", namespace="fumarole-jobs")
    job = Job.model_validate(dict(case.job))
    accepted = await pipeline.plan(job)
    place = accepted.volcano_job.namespace
    return await pipeline.plan(job, created_at=1.0, accepted_in=place)


def parts_of(case: Case, plan: Plan) -> dict[str, Any]:
    """Return all parts of the case that the golden file keeps."""
    return {
        "job": dict(case.job),
        "settings": dict(case.settings),
        "VolcanoJob": plan.volcano_job.manifest(),
        "companions": [
            {"kind": one.kind, "name": one.name, "when": one.when, **one.manifest}
            for one in plan.companions
        ],
        "shared": [
            {"kind": one.kind, "namespace": one.namespace, "name": one.name, **one.manifest}
            for one in plan.shared
        ],
    }


def text_of(parts: Any) -> str:
    """Return *parts* as YAML without aliases, in insertion order."""
    dumped: str = yaml.dump(
        parts, Dumper=_WithoutAliases, sort_keys=False, width=100, allow_unicode=True
    )
    return dumped


class _WithoutAliases(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _as_block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_WithoutAliases.add_representer(str, _as_block)


def example_of(case: Case, parts: dict[str, Any]) -> str:
    """Return the example that the documentation shows of the case."""
    shown: Any = parts
    for step in case.shows:
        shown = shown[step]
    return text_of(shown).rstrip("\n")


def with_examples(page: str, examples: dict[str, str]) -> str:
    """Return *page* with its examples replaced by the current ones."""
    return _EXAMPLE.sub(lambda match: f"{match[1]}{examples[match['name']]}\n{match[3]}", page)


async def make_all() -> tuple[dict[Path, str], dict[str, str]]:
    """Return the texts of all files, and the examples by name."""
    files: dict[Path, str] = {}
    examples: dict[str, str] = {}
    for case in CASES:
        parts = parts_of(case, await plan_of(case))
        files[FILES / f"{case.name}.yaml"] = text_of(parts)
        examples[case.name] = example_of(case, parts)
    return files, examples


def write() -> None:
    """Write all files anew, and remove files without a case."""
    files, examples = asyncio.run(make_all())
    FILES.mkdir(exist_ok=True)
    for old in set(FILES.glob("*.yaml")) - files.keys():
        old.unlink()
    for path, text in files.items():
        path.write_text(text)
    for page in PAGES.glob("*.md"):
        page.write_text(with_examples(page.read_text(), examples))


if __name__ == "__main__":
    write()

"""Tests that the documentation has no broken link, and that its settings are the code's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from controller.api.error_responses import ERRORS
from deploy.settings_page import PAGE, asked_settings, render, silent_rows
from gateway.core.access.refusals import REFUSALS

ROOT = PAGE.parents[1]
TROUBLE = (ROOT / "docs/how-to/troubleshoot.md").read_text()
# Elements that load from another host: a script, style, font or image.
_LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"?https?://|<link[^>]*stylesheet[^>]*https?:"
)


def test_the_site_builds_strictly_and_loads_no_external_resource(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    loading = [page for page in pages if _LOADED.search(page.read_text())]
    assert loading == []


def test_no_code_in_a_table_holds_a_bar() -> None:
    """GitHub ends the cell at a bare bar; the site shows the backslash of an escaped one."""
    rows = [
        (path.name, code)
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        for line in path.read_text().splitlines()
        if line.startswith("|")
        for code in re.findall(r"(?<!`)(?:`[^`]+`|``.+?``)(?!`)", line)
        if "|" in code
    ]
    assert rows == [], "write <code>a&#124;b</code>"


def test_every_setting_is_documented_with_its_type_and_default() -> None:
    page = PAGE.read_text()
    assert render(page) == page, "python -m deploy.settings_page writes it anew"
    assert silent_rows(page) == []


def test_an_undocumented_setting_is_detected() -> None:
    page = PAGE.read_text()
    name = "FUMAROLE_GATEWAY_WORKERS"
    without = "\n".join(line for line in page.splitlines() if f"`{name}` | " not in line)
    assert name in silent_rows(render(without))
    assert asked_settings()[name] == ("integer", "`1`")


def test_a_boolean_setting_documents_its_values() -> None:
    assert asked_settings()["FUMAROLE_CONTROLLER_FAIR_SHARE"] == ("on or off", "`on`")
    assert asked_settings()["FUMAROLE_CONTROLLER_MINIKUBE"] == ("on or off", "`off`")


def test_a_setting_is_required_if_any_reader_requires_it() -> None:
    """The reserved names come from the issuer too; for them alone, an empty issuer would do."""
    assert asked_settings()["FUMAROLE_CONTROLLER_TOKEN_ISSUER"] == ("text", "needed")


def test_no_unknown_setting_is_documented() -> None:
    known = set(asked_settings())
    spelled = re.compile(r"`(FUMAROLE_(?:GATEWAY|CONTROLLER)_[A-Z][A-Z0-9_]+[A-Z0-9])`")
    unknown = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in (ROOT / "docs").rglob("*.md")
        for name in spelled.findall(page.read_text())
        if name not in known
    }
    assert unknown == set()


def test_the_documented_symptoms_exist_in_the_code() -> None:
    rows = [line.split(" | ")[0] for line in TROUBLE.splitlines() if line.startswith("| ")]
    statuses = {code: one.status for code, one in ERRORS.items()}
    statuses |= {code: one.status for code, one in REFUSALS.items()}
    named = [(int(row[2:5]), code) for row in rows if row[2:5].isdecimal()
             for code in re.findall(r"`([a-z_]+)`", row)]  # fmt: skip
    assert len(named) > 20
    assert {code: status for status, code in named} == {code: statuses[code] for _, code in named}
    files = [*(ROOT / "controller").rglob("*.py"), *(ROOT / "gateway").rglob("*.py")]
    files.append(ROOT / "gateway/pages/languages/en.toml")
    sources = "".join(one.read_text() for one in files)
    quoted = [text for row in rows for text in re.findall(r'"([^"]+)"', row)]
    assert quoted
    assert [text for text in quoted if text not in sources] == []


def test_pages_and_sections_named_in_the_code_exist() -> None:
    named = 0
    for package in ("gateway", "controller", "shared", "deploy"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "node_modules" in path.parts:
                continue
            text = re.sub(r"\s*\n\s*(?:# ?)?", " ", path.read_text())
            for page, section in re.findall(r"(docs/[\w/-]+\.md)(?:, \"([^\"]{3,60})\")?", text):
                assert (ROOT / page).is_file(), (path, page)
                titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
                assert not section or section in titles, (path, page, section)
                named += bool(section)
    assert named > 5

"""Checks a page's look: axe's accessibility rules, and text that is cut off."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Page

AXE: Final = Path(__file__).parents[3] / "gateway/web/node_modules/axe-core"
TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The content of an app, a desktop or a shell is not ours.
THEIRS: Final = ["iframe", ".desktop-screen", ".terminal-screen"]

CUT: Final = """(theirs) => {
  const shown = (element) => {
    const { width, height } = element.getBoundingClientRect();
    return width > 1 && height > 1 && getComputedStyle(element).visibility === "visible";
  };
  const cut = (element) => {
    const { left, right } = element.getBoundingClientRect();
    const hides = getComputedStyle(element).overflowX !== "visible" && element.innerText;
    const inside = hides && element.scrollWidth > element.clientWidth + 1;
    return left < -1 || right > innerWidth + 1 || inside;
  };
  return [...document.querySelectorAll("main *, header *, footer *")]
    .filter((element) => !element.closest(theirs.join()) && !element.closest(".bar-of-progress"))
    .filter((element) => shown(element) && cut(element))
    .map((element) => `${element.tagName} ${element.id} ${element.className} ${element.innerText}`);
}"""


@dataclass(frozen=True)
class Look:
    """A window and a colour scheme."""

    width: int
    height: int
    scheme: Literal["light", "dark"]

    @property
    def name(self) -> str:
        """The name in the file names of pictures."""
        return f"{self.width}-{self.scheme}"

    async def take(self, page: Page) -> None:
        """Show *page* in this look, and wait until it is still."""
        await page.emulate_media(color_scheme=self.scheme, reduced_motion="reduce")
        await page.set_viewport_size({"width": self.width, "height": self.height})
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


LOOKS: Final = [
    Look(width, height, scheme)
    for width, height in ((320, 568), (1280, 720))
    for scheme in ("light", "dark")
]


@cache
def _axe() -> str:
    return (AXE / "axe.min.js").read_text("utf-8")


def axe_version() -> str:
    """Return the version of axe-core."""
    version: str = json.loads((AXE / "package.json").read_text("utf-8"))["version"]
    return version


@dataclass(frozen=True)
class Judgement:
    """The result of axe for a page: the violations, and the number of rules passed."""

    violations: list[str]
    passes: int


async def judge(page: Page) -> Judgement:
    """Run axe-core on *page*."""
    # Not by a script element, which the page's own policy would forbid.
    await page.evaluate(f"{_axe()}; undefined")
    findings: dict[str, Any] = await page.evaluate(
        """async ([tags, theirs]) => {
          const context = { exclude: theirs.map((one) => [one]) };
          const { violations, passes } = await axe.run(context, { runOnly: tags, iframes: false });
          return { violations, passes: passes.length };
        }""",
        [TAGS, THEIRS],
    )
    wrong = [
        f"{one['id']}: {node['html'][:200]}"
        for one in findings["violations"]
        for node in one["nodes"]
    ]
    return Judgement(wrong, findings["passes"])


async def cut(page: Page) -> list[str]:
    """Return the parts of *page* that stay cut off at the left or right, also after a while.

    A terminal takes its new size some time after the page has.
    """
    found: list[str] = []
    for _ in range(60):
        found = await page.evaluate(CUT, THEIRS)
        if not found:
            break
        await asyncio.sleep(0.05)
    return found

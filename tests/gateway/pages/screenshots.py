"""Takes a picture of every page in every state: ``make screenshots``.

Writes ``docs/pages/<state>-<width>-<scheme>.png`` and the tables in ``docs/pages.md``, with the
result of axe-core for each. It uses the tests' own gateway, browser and states, so the pictures
show what the tests check.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

from deploy.local.system import LocalSystem
from tests.conftest import chromium
from tests.e2e import users as e2e
from tests.gateway.conftest import World, running_gateway, world_of
from tests.gateway.pages.accessibility import LOOKS, axe_version, cut, judge
from tests.gateway.pages.states import STATES
from tests.gateway.pages.users import FLAGS, Person

DOCS: Final = Path(__file__).parents[3] / "docs"
PICTURES: Final = DOCS / "pages"
COLOURS: Final = 128
START, END = "<!-- written by make screenshots -->", "<!-- up to here -->"


@dataclass(frozen=True)
class Row:
    """The table row of one state."""

    name: str
    about: str
    violations: list[str]

    def pictures(self) -> str:
        """Return the state's row in the table of pictures."""
        links = " · ".join(
            f"[{look.width} {look.scheme}](pages/{self.name}-{look.name}.png)" for look in LOOKS
        )
        violations = ", ".join(sorted(set(self.violations))) or "none"
        return f"| `{self.name}` | {self.about} | {links} | {violations} |"


# The page shows a measured value, which would differ in each run. The page goes on to write it into
# the element that a copy has replaced.
SETTLED: Final = """() => {
  const shown = document.querySelector("#round-trip");
  const open = document.querySelector('.state[data-state="open"]');
  const copy = shown?.cloneNode();
  copy?.append(open ? "9 ms" : "");
  shown?.replaceWith(copy);
}"""


async def take(page: Page, name: str, about: str) -> Row:
    """Take the pictures of *page* in its current state."""
    violations: list[str] = []
    for look in LOOKS:
        await look.take(page)
        await page.evaluate(SETTLED)
        judgement = await judge(page)
        violations += judgement.violations + [f"cut: {one}" for one in await cut(page)]
        await page.evaluate(SETTLED)
        save(
            await page.screenshot(caret="hide", full_page=True),
            PICTURES / f"{name}-{look.name}.png",
        )
    print(f"{name}: {len(violations)} complaints", *violations, sep="\n  ", flush=True)
    return Row(name, about, violations)


def save(png: bytes, path: Path) -> None:
    """Write *png* with few colours: pages have few, and small coloured spots must stay visible."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    few = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


async def take_all(browser: Browser, world: World) -> list[Row]:
    """Take the pictures of the gateway's pages."""
    rows = []
    for state in STATES:
        context = await browser.new_context(locale="en-GB", timezone_id="Europe/Copenhagen")
        person = Person(world, context, await context.new_page())
        async with state.show(world, person):
            rows.append(await take(person.page, state.name, state.about))
        await context.close()
    return rows


async def take_orchestrator(browser: Browser) -> list[Row]:
    """Take the pictures of the reference orchestrator's page, with a whole system behind it."""
    context = await browser.new_context(locale="en-GB", timezone_id="Europe/Copenhagen")
    async with LocalSystem() as system:
        ada = await e2e.Person.arrive(context, system.address, "ada")
        desktop = await ada.start("Desktop")
        await ada.running(desktop)
        job = await ada.start("Shell")
        await ada.running(job)
        await ada.stop(desktop)
        over = ada.page.locator(f'[data-job="{desktop}"]')
        await expect(over).to_have_attribute("data-state", "SUCCESS")
        rows = [await take(ada.page, "orchestrator", "the reference orchestrator: jobs")]
        row = ada.page.locator(f'[data-job="{job}"]')
        for name in ("Log", "History", "Tools", "Share"):
            await row.get_by_text(name, exact=True).click()
        await row.get_by_role("button", name="Attach TensorBoard").click()
        await expect(row.get_by_role("button", name="Open TensorBoard")).to_be_enabled()
        await expect(row.locator("[data-tool]", has_text="TensorBoard")).to_contain_text("Running")
        await expect(row.locator("tbody tr").last).to_contain_text("Running")
        about = "the reference orchestrator: log, history, tools, share"
        rows.append(await take(ada.page, "orchestrator-job", about))
    await context.close()
    return rows


def write(rows: list[Row], browser: str) -> None:
    """Write the table into the page, between its marks."""
    page = DOCS / "pages.md"
    before, _, rest = page.read_text("utf-8").partition(START)
    after = rest.partition(END)[2]
    table = [
        f"{browser}, axe-core {axe_version()}.",
        "",
        "| state | | pictures | violations |",
        "|---|---|---|---|",
        *(row.pictures() for row in rows),
    ]
    page.write_text(f"{before}{START}\n\n" + "\n".join(table) + f"\n\n{END}{after}", "utf-8")


async def main() -> None:
    """Take all pictures."""
    expect.set_options(timeout=30_000)
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.png"):
        old.unlink()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = await asyncio.to_thread(stack.enter_context, running_gateway(folder))
        world = await stack.enter_async_context(world_of(gateway))
        playwright = await stack.enter_async_context(async_playwright())
        host, port = gateway.public
        rules = f"--host-resolver-rules=MAP *.localhost {host}:{port}"
        browser = await playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, rules])
        stack.push_async_callback(browser.close)
        rows = await take_all(browser, world) + await take_orchestrator(browser)
        write(rows, f"Chromium {browser.version.partition('.')[0]}")


if __name__ == "__main__":
    asyncio.run(main())

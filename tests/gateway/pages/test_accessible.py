"""Tests every page in every state: no text is cut off, axe finds nothing, the keyboard suffices."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.gateway.conftest import World
from tests.gateway.pages.accessibility import AXE, LOOKS, cut, judge
from tests.gateway.pages.states import LONG, STATES, State, desktop
from tests.gateway.pages.users import Person

pytestmark = pytest.mark.needs("chromium")


def cases() -> list[object]:
    """Return the states; only ``make test-long`` checks those that are not quick."""
    return [
        pytest.param(one, id=one.name, marks=[] if one.quick else [pytest.mark.long])
        for one in STATES
    ]


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make install")
@pytest.mark.parametrize("state", cases())
async def test_every_page_passes_the_accessibility_checks(
    world: World,
    person: Person,
    state: State,
) -> None:
    async with state.show(world, person):
        for look in LOOKS:
            await look.take(person.page)
            assert await cut(person.page) == [], look.name
            if look.width == 320:
                assert (await judge(person.page)).violations == [], look.name


@pytest.mark.parametrize(
    ("name", "takes_keys", "first", "between"),
    [
        ("desktop", "canvas", "Fit to window", "Ctrl+Alt+Del"),
        ("terminal", ".xterm-helper-textarea", "Paste", "Menu"),
    ],
)
async def test_every_control_is_reachable_by_keyboard(
    world: World,
    person: Person,
    name: str,
    takes_keys: str,
    first: str,
    between: str,
) -> None:
    state = next(one for one in STATES if one.name == name)
    async with state.show(world, person):
        page = person.page
        screen = page.locator(takes_keys)
        await expect(screen).to_be_focused()
        # The screen takes every key except this way out, and its description names the shortcut.
        await expect(screen).to_have_accessible_description(re.compile("Ctrl.Alt.Shift"))
        for key in ("Tab", "Shift+Tab"):
            await page.keyboard.press(key)
            await expect(screen).to_be_focused()
        await page.keyboard.press("Control+Alt+Shift")
        reached = []
        for _ in range(10):
            focused = page.locator(":focus")
            reached.append(await focused.inner_text())
            if reached[-1] == "Sign out":
                break
            await page.keyboard.press("Tab")
        assert reached[0] == first
        assert reached[-1] == "Sign out"
        assert between in reached
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading")).to_have_text("Sign out of this session?")


@pytest.mark.parametrize("last", ["Control", "Alt", "Shift"])
async def test_the_way_out_does_not_need_the_flag_of_the_key_that_is_pressed(
    world: World, person: Person, last: str
) -> None:
    # Firefox on Linux often sets a modifier's flag only after that modifier's own event.
    state = next(one for one in STATES if one.name == "terminal")
    async with state.show(world, person):
        screen = person.page.locator(".xterm-helper-textarea")
        await expect(screen).to_be_focused()
        await screen.evaluate(
            """(screen, last) => {
                const event = {key: last, bubbles: true, ctrlKey: last !== "Control"};
                Object.assign(event, {altKey: last !== "Alt", shiftKey: last !== "Shift"});
                screen.dispatchEvent(new KeyboardEvent("keydown", event));
            }""",
            last,
        )
        await expect(person.page.locator("#paste")).to_be_focused()


COLOUR_OF = """([selector, pseudo]) =>
  getComputedStyle(document.querySelector(selector), pseudo).backgroundColor"""


@pytest.mark.parametrize(
    ("name", "selector", "pseudo", "beside"),
    [
        ("desktop", '[aria-pressed="true"]', None, ".tools button:not([aria-pressed])"),
        ("desktop", '.state[data-state="open"] > span', "::before", ".bar"),
        ("start-queued", ".bar-of-progress", "::before", ".card"),
        ("terminal", ".xterm-cursor", None, ".xterm-scrollable-element"),
    ],
    ids=["pressed", "connected", "progress", "cursor"],
)
async def test_states_shown_by_colour_are_visible_in_forced_colours(
    world: World, person: Person, name: str, selector: str, pseudo: str | None, beside: str
) -> None:
    state = next(one for one in STATES if one.name == name)
    # So that the cursor does not blink.
    await person.page.emulate_media(reduced_motion="reduce")
    async with state.show(world, person):
        page = person.page
        await page.emulate_media(forced_colors="active")
        colour = await page.evaluate(COLOUR_OF, [selector, pseudo])
        assert colour != await page.evaluate(COLOUR_OF, [beside, None])


async def test_a_narrow_bar_of_a_disconnected_desktop_begins_with_a_tool(
    world: World, person: Person
) -> None:
    state = next(one for one in STATES if one.name == "desktop-password")
    async with state.show(world, person):
        page = person.page
        await page.set_viewport_size({"width": 360, "height": 640})
        (left, first) = await page.evaluate(
            """() => {
              const left = (element) => element.getBoundingClientRect().left;
              const tools = document.querySelector(".tools");
              return [left(tools), left(tools.querySelector("button:not([hidden])"))];
            }"""
        )
        assert first == left


async def test_a_long_name_leaves_the_window_to_the_desktop(world: World, person: Person) -> None:
    async with desktop(world, person, name=LONG):
        page = person.page
        await page.set_viewport_size({"width": 320, "height": 568})
        heading = page.get_by_role("heading", level=1)
        box = await heading.bounding_box()
        assert box is not None
        assert box["height"] < 45, "two lines"
        await expect(heading).to_have_attribute("title", LONG)


@pytest.mark.parametrize("name", ["desktop", "terminal-ends-soon"])
async def test_at_400_percent_zoom_the_screen_keeps_half_of_the_window(
    world: World, person: Person, name: str
) -> None:
    state = next(one for one in STATES if one.name == name)
    async with state.show(world, person):
        page = person.page
        await page.set_viewport_size({"width": 320, "height": 180})
        box = await page.locator(".screen").bounding_box()
        assert box is not None
        assert box["height"] >= 90
        last = page.get_by_role("link", name="Sign out")
        await last.focus()
        await expect(last).to_be_in_viewport(ratio=1)
        if name == "terminal-ends-soon":
            await page.get_by_text("Menu", exact=True).click()
            await page.get_by_label("For screen readers").check()


async def test_an_ended_desktop_offers_no_tool_that_needs_its_picture(
    world: World, person: Person
) -> None:
    state = next(one for one in STATES if one.name == "desktop-ended")
    async with state.show(world, person):
        for gone in ("Fit to window", "Full screen", "Paste clipboard"):
            await expect(person.page.get_by_text(gone, exact=True)).to_be_hidden()
        await expect(person.page.get_by_label("Quality of the picture")).to_be_hidden()


async def test_a_browser_that_prefers_german_reads_german(
    world: World,
    person: Person,
) -> None:
    await person.context.set_extra_http_headers({"Accept-Language": "de-CH,de;q=0.9,en;q=0.8"})
    status = {"phase": "queued", "app": "Labor"}
    sid = await world.publish(state="starting", message="x", status=status)
    await person.follow_link(sid)
    heading = person.page.get_by_role("heading")
    await expect(heading).to_have_text("Labor wartet in der Warteschlange")
    await expect(person.page.locator("#steps li").first).to_contain_text("In der Warteschlange")

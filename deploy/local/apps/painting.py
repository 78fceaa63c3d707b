"""A picture that shows clicks and typed text, independent of how it is displayed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1024, 768
DOT_RADIUS = 9
_BACKGROUND = (22, 30, 40)
_HORIZON = (196, 78, 45)
_INK = (255, 196, 84)
_PALE = (226, 232, 238)
_CLOCK = (WIDTH - 210, 24, WIDTH - 24, 66)
_LINE = (40, HEIGHT - 70, WIDTH - 40, HEIGHT - 24)
_LINE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels. It does not contain its right and bottom edges."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        """The width in pixels."""
        return self.right - self.left

    @property
    def height(self) -> int:
        """The height in pixels."""
        return self.bottom - self.top


WHOLE = Box(0, 0, WIDTH, HEIGHT)


class Painting:
    """The picture. Each change returns the box that has to be shown again."""

    def __init__(self, title: str) -> None:
        self.image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
        self._draw = ImageDraw.Draw(self.image)
        self._large = ImageFont.load_default(34)
        self._small = ImageFont.load_default(20)
        self._typed = ""
        self._last: tuple[int, int] | None = None
        self._paint_mountain()
        self._draw.text((40, 24), title, _PALE, self._large)
        hint = "Click or drag to draw. Type to write."
        self._draw.text((40, 72), hint, _PALE, self._small)
        self._show_line()

    def _paint_mountain(self) -> None:
        for x in range(WIDTH):
            distance = abs(x - WIDTH / 2) / (WIDTH / 2)
            top = HEIGHT * (0.45 + 0.5 * distance**0.8) + 12 * math.sin(x / 23)
            share = max(0.0, 1 - 2.2 * distance)
            colour = tuple(
                int(low + (high - low) * share * 0.5)
                for low, high in zip(_BACKGROUND, _HORIZON, strict=True)
            )
            self._draw.line((x, top, x, HEIGHT), (colour[0] + 14, colour[1] + 14, colour[2] + 14))

    def press(self, x: int, y: int) -> Box:
        """Draw a dot at *x*, *y*, joined to the previous one while the button stays down."""
        x, y = min(max(x, 0), WIDTH - 1), min(max(y, 0), HEIGHT - 1)
        from_x, from_y = self._last or (x, y)
        self._draw.line((from_x, from_y, x, y), _INK, 2 * DOT_RADIUS)
        self._draw.ellipse((x - DOT_RADIUS, y - DOT_RADIUS, x + DOT_RADIUS, y + DOT_RADIUS), _INK)
        self._last = (x, y)
        margin = DOT_RADIUS + 1
        return Box(
            max(0, min(x, from_x) - margin),
            max(0, min(y, from_y) - margin),
            min(WIDTH, max(x, from_x) + margin),
            min(HEIGHT, max(y, from_y) + margin),
        )

    def release(self) -> None:
        """Record that the button was released."""
        self._last = None

    def key(self, keysym: int) -> Box | None:
        """Write the character of this X keysym; return None for keys that write nothing."""
        if keysym == 0xFF08:
            self._typed = self._typed[:-1]
        elif keysym == 0xFF0D:
            self._typed = ""
        elif 0x20 <= keysym <= 0x7E or 0xA0 <= keysym <= 0xFF:
            self._typed = (self._typed + chr(keysym))[-_LINE_LENGTH:]
        else:
            return None
        return self._show_line()

    def tick(self, clock: str) -> Box:
        """Show the time."""
        self._draw.rectangle(_CLOCK, _BACKGROUND)
        self._draw.text((_CLOCK[0], _CLOCK[1]), clock, _PALE, self._large)
        return Box(_CLOCK[0], _CLOCK[1], _CLOCK[2] + 1, _CLOCK[3] + 1)

    def _show_line(self) -> Box:
        self._draw.rectangle(_LINE, (12, 17, 24))
        self._draw.text((_LINE[0] + 14, _LINE[1] + 10), self._typed + "_", _INK, self._small)
        return Box(_LINE[0], _LINE[1], _LINE[2] + 1, _LINE[3] + 1)

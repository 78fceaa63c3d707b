"""Plots as SVG, written by hand: bars for costs, lines for growth.

Text and axes take the colour of the surrounding page, so they work in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_OURS: Final = "#d9480f"
_PALETTE: Final = ("#1971c2", "#2f9e44", "#7048e8", "#868e96", "#e8590c", "#0b7285")
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#444}.title{font-size:14px;font-weight:600}"
    ".axis{stroke:#999;stroke-width:1}.grid{stroke:#999;stroke-opacity:.25}"
    ".end{text-anchor:end}.middle{text-anchor:middle}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}}"
)


@dataclass(frozen=True, slots=True)
class Bars:
    """One panel of bars: a value for each label."""

    title: str
    unit: str
    values: Mapping[str, float]
    ours: str


@dataclass(frozen=True, slots=True)
class Lines:
    """One panel of lines: for each label, points (x, y)."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    ours: str


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<style>{_STYLE}</style>",
            *parts,
            "</svg>",
            "",
        )
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def round_number(value: float) -> str:
    """Return *value* with about three digits, for people."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# Bars

_ROW: Final = 20
_LABEL: Final = 190
_BAR: Final = 180
_PANEL: Final = _LABEL + _BAR + 60


def draw_bars(panels: Sequence[Bars]) -> str:
    """Return panels of bars, two in a row; shorter is cheaper."""
    rows = [panels[at : at + 2] for at in range(0, len(panels), 2)]
    heights = [44 + _ROW * max(len(panel.values) for panel in row) for row in rows]
    parts = []
    top = 0
    for row, height in zip(rows, heights, strict=True):
        for column, panel in enumerate(row):
            parts += _bars(panel, column * _PANEL, top)
        top += height
    return _svg(2 * _PANEL, top, parts)


def _bars(panel: Bars, left: int, top: int) -> list[str]:
    most = max(panel.values.values(), default=1.0) or 1.0
    parts = [_text(left + 8, top + 20, f"{panel.title} ({panel.unit})", "title")]
    for at, (label, value) in enumerate(sorted(panel.values.items(), key=lambda item: item[1])):
        y = top + 32 + at * _ROW
        width = max(1.0, value / most * _BAR)
        colour = _OURS if label == panel.ours else "#8aa0b4"
        x = left + _LABEL
        parts.append(_text(x - 6, y + 12, label, "end"))
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width:.1f}" height="14" rx="2" fill="{colour}"/>'
        )
        parts.append(_text(x + width + 4, y + 12, round_number(value)))
    return parts


# Lines

_TICKS: Final = 4
_WIDE: Final = 400
_HIGH: Final = 260


def draw_lines(panels: Sequence[Lines]) -> str:
    """Return panels of lines side by side, x in powers of ten."""
    parts: list[str] = []
    labels = list(dict.fromkeys(label for panel in panels for label in panel.series))
    colours = _colours(labels, panels[0].ours if panels else "")
    for at, panel in enumerate(panels):
        parts += _lines(panel, at * _WIDE, colours)
    for at, label in enumerate(labels):
        x = 60 + at * 150
        parts.append(
            f'<rect x="{x}" y="{_HIGH + 12}" width="14" height="4" fill="{colours[label]}"/>'
        )
        parts.append(_text(x + 20, _HIGH + 18, label))
    return _svg(max(1, len(panels)) * _WIDE, _HIGH + 32, parts)


def _colours(labels: Sequence[str], ours: str) -> dict[str, str]:
    others = [label for label in labels if label != ours]
    colours = {label: _PALETTE[at % len(_PALETTE)] for at, label in enumerate(others)}
    return colours | {ours: _OURS}


def _lines(panel: Lines, left: int, colours: Mapping[str, str]) -> list[str]:
    points = [point for series in panel.series.values() for point in series]
    if not points:
        return []
    low, high = (math.log10(f(x for x, _ in points)) for f in (min, max))
    tick = nice_step(max(y for _, y in points) / _TICKS)
    most = tick * _TICKS
    x0, x1, y0, y1 = left + 60, left + _WIDE - 20, _HIGH - 40, 40

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low) / (high - low) if high > low else 0.5
        return x0 + across * (x1 - x0), y0 - y / most * (y0 - y1)

    parts = [_text(left + 60, 22, panel.title, "title"), _line(x0, y0, x1, y0, "axis")]
    ticks = sorted({x for x, _ in points})
    parts += [_text(place(x, 0)[0], y0 + 16, _short(x), "middle") for x in ticks]
    for step in range(_TICKS + 1):
        y = tick * step
        parts.append(_line(x0, place(1, y)[1], x1, place(1, y)[1], "grid"))
        parts.append(_text(x0 - 6, place(1, y)[1] + 4, round_number(y), "end"))
    parts.append(_text((x0 + x1) / 2, _HIGH - 8, f"{panel.x}; y: {panel.y}", "middle"))
    for label, series in panel.series.items():
        track = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in sorted(series))
        parts.append(
            f'<polyline points="{track}" fill="none" stroke="{colours[label]}" stroke-width="2"/>'
        )
        for x, y in series:
            cx, cy = place(x, y)
            parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3" fill="{colours[label]}"/>')
    return parts


# Lines over time

_PLOT_WIDE: Final = 480
_PLOT_HIGH: Final = 240


@dataclass(frozen=True, slots=True)
class Series:
    """One line: points (hours, value), in order."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Time:
    """One panel of lines over time, each with a scale from zero."""

    title: str
    unit: str
    series: Sequence[Series]


def draw_times(panels: Sequence[Time]) -> str:
    """Return panels of lines over time, two in a row."""
    parts: list[str] = []
    for at, panel in enumerate(panels):
        parts += _time(panel, at % 2 * _PLOT_WIDE, at // 2 * _PLOT_HIGH)
    return _svg(2 * _PLOT_WIDE, (len(panels) + 1) // 2 * _PLOT_HIGH, parts)


def _time(panel: Time, left: int, top: int) -> list[str]:
    points = [point for series in panel.series for point in series.points]
    if not points:
        return []
    hours = max(at for at, _ in points) or 1.0
    tick = nice_step(max(max(value for _, value in points), 1.0) / _TICKS)
    x0, x1 = left + 60, left + _PLOT_WIDE - 110
    y0, y1 = top + _PLOT_HIGH - 40, top + 36

    def place(at: float, value: float) -> tuple[float, float]:
        return x0 + at / hours * (x1 - x0), y0 - value / (tick * _TICKS) * (y0 - y1)

    parts = [_text(x0, top + 22, f"{panel.title} ({panel.unit})", "title")]
    for step in range(_TICKS + 1):
        y = place(0, tick * step)[1]
        parts.append(_line(x0, y, x1, y, "grid" if step else "axis"))
        parts.append(_text(x0 - 6, y + 4, round_number(tick * step), "end"))
        x = hours * step / _TICKS
        parts.append(_text(place(x, 0)[0], y0 + 16, f"{x:.3g} h", "middle"))
    for at, series in enumerate(panel.series):
        colour = (_OURS, *_PALETTE)[at % (len(_PALETTE) + 1)]
        track = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in series.points)
        parts.append(
            f'<polyline points="{track}" fill="none" stroke="{colour}" stroke-width="1.2"/>'
        )
        y = y1 + 16 * at
        parts.append(f'<rect x="{x1 + 8}" y="{y}" width="12" height="4" fill="{colour}"/>')
        parts.append(_text(x1 + 24, y + 6, series.label))
    return parts


def nice_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5, times a power of ten, that is not below *least*."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= least)


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"

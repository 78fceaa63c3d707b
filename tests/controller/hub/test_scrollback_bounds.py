"""Tests that all scrollbacks of a hub together stay within their memory bound."""

from __future__ import annotations

from controller.hub.scrollback import SEGMENT_BYTES, Scrollback, Scrollbacks

PIECE = b"x" * SEGMENT_BYTES
MIB = 1 << 20


def fill(rings: Scrollbacks, ring: Scrollback, size: int) -> None:
    for _ in range(size // len(PIECE)):
        rings.append(ring, PIECE)


def test_the_longest_unattended_scrollbacks_are_trimmed_first() -> None:
    rings = Scrollbacks(shell_bytes=MIB, total_bytes=3 * MIB)
    first, second, third = (rings.make() for _ in range(3))
    for ring in (first, second, third):
        rings.attach(ring)
        fill(rings, ring, MIB)
    for ring in (second, first):
        rings.detach(ring)
    fourth = rings.make()
    rings.attach(fourth)
    fill(rings, fourth, MIB // 2)
    assert rings.bytes == sum(ring.size for ring in (first, second, third, fourth)) <= 3 * MIB
    assert second.size < first.size == third.size
    fill(rings, fourth, MIB // 2)
    fill(rings, third, MIB)
    assert first.size >= MIB - 2 * SEGMENT_BYTES, "the second had enough to give"
    # Attaching again makes a scrollback recent, so it is evicted later.
    rings.attach(second)
    fifth = rings.make()
    fill(rings, fifth, MIB)
    assert first.size <= 2 * SEGMENT_BYTES
    assert rings.bytes <= 3 * MIB


def test_if_all_are_attended_the_largest_scrollback_is_trimmed() -> None:
    rings = Scrollbacks(shell_bytes=2 * MIB, total_bytes=2 * MIB)
    large, small = rings.make(), rings.make()
    rings.attach(large)
    rings.attach(small)
    fill(rings, small, MIB // 4)
    fill(rings, large, 4 * MIB)
    assert small.size == MIB // 4
    assert rings.bytes <= 2 * MIB


def test_many_scrollbacks_keep_a_minimum_each() -> None:
    rings = Scrollbacks(shell_bytes=MIB, total_bytes=MIB)
    many = [rings.make() for _ in range(32)]
    for ring in many:
        fill(rings, ring, MIB // 2)
    assert all(0 < ring.size <= 2 * SEGMENT_BYTES for ring in many)


def test_a_closed_scrollback_is_not_counted() -> None:
    rings = Scrollbacks()
    ring, other = rings.make(), rings.make()
    fill(rings, ring, MIB)
    fill(rings, other, MIB)
    rings.forget(ring)
    rings.forget(ring)
    rings.append(ring, b"still read by somebody")
    rings.attach(ring)
    rings.detach(ring)
    assert rings.bytes == other.size

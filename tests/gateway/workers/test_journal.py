"""The journal: whoever keeps up lacks nothing, whoever does not is told, and it is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.journal import Journal


def read_all(journal: Journal, position: int) -> list[bytes] | None:
    """Return everything after *position*."""
    found: list[bytes] = []
    while piece := journal.since(position):
        found += piece
        position += len(piece)
    return None if piece is None else found


def test_a_reader_gets_what_came_after_its_position() -> None:
    journal = Journal()
    for frame in (b"a", b"b", b"c"):
        journal.append(frame)
    assert read_all(journal, 0) == [b"a", b"b", b"c"]
    assert read_all(journal, 2) == [b"c"]
    assert read_all(journal, journal.end) == []


def test_much_comes_in_pieces() -> None:
    journal = Journal()
    for number in range(1000):
        journal.append(b"%d" % number)
    assert len(journal.since(0) or ()) == 256
    assert read_all(journal, 0) == [b"%d" % number for number in range(1000)]


def test_a_cut_outdates_everybody_and_tells_who_lacked_nothing() -> None:
    journal = Journal()
    journal.append(b"a")
    caught_up, behind = journal.end, 0
    journal.cut()
    assert journal.since(caught_up) is journal.since(behind) is None
    assert journal.before_cut == caught_up
    journal.append(b"b")
    assert read_all(journal, journal.end - 1) == [b"b"]
    assert journal.since(caught_up) is None


@given(
    frames=st.lists(st.integers(1, 60), max_size=200),
    cuts=st.sets(st.integers(0, 199)),
    reads=st.lists(st.integers(0, 199)),
)
def test_whatever_happens_a_reader_lacks_nothing_or_is_told(
    frames: list[int], cuts: set[int], reads: list[int]
) -> None:
    journal = Journal(most_bytes=500)
    known: list[bytes] = []
    position = journal.end
    for number, size in enumerate(frames):
        frame = bytes([number % 256]) * size
        journal.append(frame)
        known.append(frame)
        assert journal._bytes == sum(map(len, journal._frames)) <= 500
        if number in cuts:
            journal.cut()
            known.clear()
        if number in reads:
            found = read_all(journal, position)
            if found is not None:
                assert found == known
            known, position = [], journal.end

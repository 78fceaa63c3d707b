from __future__ import annotations

import os

import pytest

from gateway.relay.http.pipes import Pipe, Pipes
from gateway.relay.transports import RESERVED, descriptor_ceiling

SIZE = 128 << 10


def taken(pipes: Pipes) -> Pipe:
    pipe = pipes.take()
    assert pipe is not None
    return pipe


def test_a_pipe_takes_its_size_without_waiting_and_is_not_inherited() -> None:
    pipes = Pipes(size=SIZE, most=1)
    pipe = taken(pipes)
    assert pipe.size == SIZE
    assert os.write(pipe.write_end, b"x" * SIZE * 2) == SIZE
    with pytest.raises(BlockingIOError):
        os.write(pipe.write_end, b"x")
    assert not os.get_inheritable(pipe.read_end)
    assert not os.get_inheritable(pipe.write_end)
    pipes.drop(pipe)


def test_an_empty_pipe_is_reused() -> None:
    pipes = Pipes(size=SIZE, most=1)
    pipe = taken(pipes)
    pipes.give(pipe)
    assert (pipes.open, pipes.lent) == (1, 0)
    assert pipes.take() is pipe
    pipes.drop(pipe)


def test_a_returned_pipe_with_bytes_is_closed() -> None:
    pipes = Pipes(size=SIZE, most=1)
    pipe = taken(pipes)
    os.write(pipe.write_end, b"somebody's")
    pipes.drop(pipe)
    assert pipes.open == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(pipe.read_end, 1)


def test_the_number_of_pipes_is_bounded_and_few_stay_idle() -> None:
    pipes = Pipes(size=SIZE, most=8)
    lent = [taken(pipes) for _ in range(8)]
    assert pipes.take() is None
    for pipe in lent:
        pipes.give(pipe)
    assert 0 < pipes.open < 8
    pipes.close()
    assert pipes.open == 0
    assert pipes.take() is None


def test_a_pipe_returned_after_close_is_closed() -> None:
    pipes = Pipes(size=SIZE, most=1)
    pipe = taken(pipes)
    pipes.close()
    pipes.give(pipe)
    assert pipes.open == 0


def test_pipes_do_not_use_the_reserve_of_descriptors() -> None:
    lowest = os.dup(0)
    os.close(lowest)
    # A quarter is kept where there are few.
    assert Pipes(size=SIZE, most=1, descriptors=(lowest + 1) * 4 // 3).take() is None
    pipes = Pipes(size=SIZE, most=1, descriptors=lowest + RESERVED * 8)
    pipes.drop(taken(pipes))
    assert descriptor_ceiling(10_000) == 10_000 - RESERVED
    assert descriptor_ceiling(400) == 300


def test_pipes_of_reduced_size_are_not_used() -> None:
    pipes = Pipes(size=4096, most=1)
    assert pipes.take() is None
    assert pipes.open == 0

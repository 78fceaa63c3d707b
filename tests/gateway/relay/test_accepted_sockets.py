from __future__ import annotations

import socket

import pytest

from gateway.relay.listening import accept


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_an_accepted_socket_has_the_options_of_the_loops(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    with (
        socket.create_server((host, 0), family=family) as listening,
        socket.create_connection(listening.getsockname()[:2]) as browser,
    ):
        taken, address = accept(listening)
        with taken:
            assert (taken.family, taken.type) == (family, socket.SOCK_STREAM)
            assert type(taken.family) is type(taken.type) is int
            assert address == browser.getsockname()
            browser.sendall(b"hello")
            assert taken.recv(5) == b"hello"
        assert browser.recv(5) == b""


def test_an_accept_without_connection_does_not_block() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            accept(listening)

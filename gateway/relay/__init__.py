"""The data path's I/O: downstream connections, upstream connections, and what joins them.

The path of a request::

    listening ──▶ http.downstream ──▶ http.admission ──▶ dial ──▶ http.upstream ──▶ app
                        ▲                    └──▶ a page, a bridge, or a tunnel after its 101
                        └──────────── response ◀──────────────┘

:mod:`gateway.core` decides (:mod:`gateway.core.downstream` is the state machine of a connection);
this package has transports, timers and tasks. :mod:`.gateway` assembles the parts, :mod:`.context`
is what connections share, :mod:`.turns` shares the loop among them. :mod:`.ending` closes
connections; :mod:`.epolls` reports peers that leave while they are not read. :mod:`.bridge` serves
desktops and terminals, :mod:`.tunnel` the WebSockets of web apps. A module imports only from the
layers below it, for types too: ``pyproject.toml`` has the layers.
"""

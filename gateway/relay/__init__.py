"""The data path's I/O: browsers' connections, apps' connections, and what joins them.

The way of a request::

    listening ──▶ http.downstream ──▶ http.admission ──▶ dial ──▶ http.upstream ──▶ app
                        ▲                    └──▶ a page, a bridge, or a tunnel after its 101
                        └──────────── response ◀──────────────┘

What is decided on the way stands in :mod:`gateway.core` (:mod:`gateway.core.downstream` is the
machine of a connection); here are transports, timers and tasks. :mod:`.gateway` assembles the
parts, :mod:`.context` is what connections share, :mod:`.turns` shares the loop among them, and
:mod:`.ending` is every way in which one ends. :mod:`.bridge` are desktops and terminals,
:mod:`.tunnel` the WebSockets of web apps. No module imports one that stands above it, for types
neither: ``pyproject.toml`` has the layers.
"""

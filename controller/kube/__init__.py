"""Kubernetes, as far as the controller calls it; objects are dicts as their JSON is.

- ``kinds``: the resources that are called.
- ``client``: get, list, create, PUT with resourceVersion, merge and JSON patch, delete with
  preconditions; nothing else is called.
- ``transport``: requests, with credentials that are read again before they expire.
- ``library``: what is used of ``kubernetes_asyncio``, without its models; a proxy, read once.
- ``errors``: what every call may raise; nothing of the client library gets past this package.
- ``decoding``: objects, of each what is declared; lists in parts.
- ``loop_turn``: long work in many turns of the event loop.
- ``watch``: a stream of a kind's objects that never ends: it lists again by itself when it must.
- ``exec``: a command in a container, over WebSocket.
"""

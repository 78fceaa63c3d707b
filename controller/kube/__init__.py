"""The controller's Kubernetes client. Objects are dicts, as in their JSON.

- ``kinds``: the resources that are called.
- ``client``: get, list, create, PUT with resourceVersion, merge and JSON patch, delete with
  preconditions; no other verbs.
- ``transport``: requests, with credentials that are read again before they expire.
- ``library``: the parts of ``kubernetes_asyncio`` that are used, without its models; connections.
- ``errors``: the errors of every call; no error of the client library leaves this package.
- ``decoding``: objects, reduced to the declared fields; lists in parts; turns of the event loop.
- ``watch``: an endless stream of a kind's objects, which lists again by itself when necessary.
- ``exec``: a command in a container, over WebSocket.
- ``lease``: a Lease for leader election. ``capacity``: the allocatable resources of the nodes.
"""

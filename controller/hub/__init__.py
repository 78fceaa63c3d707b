"""The terminal hub: keeps shells in pods alive, to which gateways attach.

A shell is one ``pods/exec`` stream. The hub holds it instead of a gateway, so that a reloaded page,
a restarted gateway and a second viewer all find the same shell.

Without I/O:

- ``scrollback``: the ring of a shell's output. It is cut only where a terminal can begin to read;
  all rings together are bounded.
- ``protocol``: the messages of an attached WebSocket.
- ``claims``: verifies attach tokens, and knows which grants were revoked.

With I/O:

- ``shell``: one shell. It reads the stream into the scrollback at the pace of its clients; after an
  interrupt of a flood, without waiting for them (``interrupts``).
- ``attached``: one client. It reads the scrollback at its own pace (``window``) and sends input.
- ``held``: all shells of this process, kept equal to the store's terminals of this hub.
- ``opening``: starts the best shell that a container has.
- ``server``: the HTTP server and the role as a whole, which a process runs like this::

    async with serving_hub(
        store=store, executor=PodExec(kube), link_keys=settings.link_keys,
        listen=settings.hub_listen, advertise=settings.hub_advertise, registry=registry,
    ) as hub:
        ...  # hub.address is where it listens, hub.problems() why it is not ready

docs/terminals.md says what is promised.
"""

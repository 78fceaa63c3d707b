"""The terminal hub: keeps shells in pods alive and lets gateways attach to them.

A shell is one ``pods/exec`` stream. It lives here, not in a gateway, so that a browser's reload,
a gateway's restart and a second pair of eyes all find the same shell.

- ``scrollback`` is the ring of what a shell has written; it is cut only where a terminal may begin
  to read, and those of all shells are kept within a bound. ``protocol`` is what is said over an
  attached WebSocket. ``claims`` decides which attach tokens are taken, and knows whose grants were
  revoked. These do no I/O.
- ``shell`` is one shell: it reads the stream into its scrollback, paced by its clients, and by none
  of them after an interrupt of a flood (``interrupts``).
- ``attached`` is one client: it reads the scrollback at its own pace (``window``), and its keys go
  to the shell.
- ``held`` is all shells of this process, kept equal to what the store says this hub holds.
- ``opening`` starts the best shell that a container has.
- ``server`` is the HTTP door and the role as a whole, which a process plays like this::

    async with (
        PodExec.connect(kube.configuration, renew=kube.renew_credentials) as executor,
        serving_hub(
            store=store, executor=executor, link_keys=settings.link_keys,
            listen=settings.hub_listen, advertise=settings.hub_advertise, registry=registry,
        ) as hub,
    ):
        ...  # hub.address is where it listens, hub.problems() why it is not ready

docs/terminals.md says what is promised.
"""

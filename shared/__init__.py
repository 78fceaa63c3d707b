"""The contract between controller and gateway: what both need, and nothing that only one uses.

Pure, no I/O:

- ``routes``: Route, Target and the RouteTable, and what stands in it beside.
- ``events``: ProxyEvents, the change notices of the table.
- ``tokens``: session tokens and service tokens. Keys and the time are arguments.
- ``link``: what controller, hub and gateways prove or hide from each other with the link key.
- ``reports``: what gateways report of themselves and of sessions. ``audit``: who did what.
- ``networks``, ``numbers``, ``errors``, ``version``.

I/O:

- ``bus``: Redis, where the table lives and the events travel.
- ``jose``: signatures, and where public keys come from.
- ``settings``: how both processes are configured. ``runtime``: how they are run.
- ``log``, ``metrics``: what operators read.
"""

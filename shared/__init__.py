"""The contract between controller and gateway: what both need, and nothing that only one uses.

Pure, no I/O:

- ``routes``: Route, Target and the RouteTable that a gateway serves from.
- ``events``: ProxyEvents, the change notices of that table.
- ``jws``, ``tokens``: signatures and keys; session tokens and service tokens. Keys and the time are
  arguments.
- ``signed_table``, ``signing_keys``: one signature over a whole table, and the keys for it.
- ``link``: what controller, hub and gateways prove or hide from each other with the link key.

I/O:

- ``bus``: Redis, where the table lives and the events travel.
- ``jwks``: where the orchestrator's public keys come from.
- ``settings``, ``log``, ``metrics``: how both processes are configured, heard and watched.
"""

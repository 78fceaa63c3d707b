"""Interactive sessions: opened by the API, routed by what the cluster shows, told to gateways.

- ``service``: opens, shows, ends and revokes, in the store.
- ``routes``: where a session lives, as a function of its row, its job and its pod. No I/O.
- ``desired``: reads all that from store and informer; assigns terminals to hubs.
- ``snapshot``: whose routes are to be looked at next, and what the store says of them.
- ``publisher``: keeps what gateways are told equal to that, over Redis; ``interval``: when.
- ``gateways``: what they have been told, by this process or another, and what they report.
- ``control``: what plugins may do with a job's sessions.
- ``terminals``: how a hub learns which shells it holds.
"""

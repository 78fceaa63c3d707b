"""Interactive sessions: opened by the API, routed by the cluster's state, published to gateways.

- ``service``: opens, shows, ends and revokes sessions in the store, for the API and for plugins;
  ``session_requests``: the sessions that a request asks for, and why they are refused. No I/O.
- ``routes``: the route of a session, as a function of its row, its job and its pod. No I/O.
- ``statuses``: the status that a session shows to people. No I/O.
- ``desired``: reads store and informer, and computes all routes; assigns terminals to hubs.
- ``snapshot``: the jobs whose routes are due, the store's state of them, and the live hubs.
- ``publisher``: keeps Redis equal to the desired routes; ``restored``: after a restored backup.
- ``gateways``: waits for published routes; reports of gateways; notices of revocations.
- ``sign_outs``: sign-outs of users at gateways. ``queue_positions``: for start pages.
- ``terminals``: a hub's access to the store: heartbeats, and its terminals.
"""

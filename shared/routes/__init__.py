"""Routes, and the table that gateways serve from. No I/O.

- ``route``: the fields of a route, and its encoding.
- ``table``: routes by session and host, and revocations.
- ``statuses``: the status of a session for people, and the status of ended sessions.
- ``signed_table``: one signature over a whole table.
"""

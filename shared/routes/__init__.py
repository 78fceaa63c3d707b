"""Routes, and the table of them that gateways serve from. Pure, no I/O.

- ``route``: where one session lives: its fields, and how it is written and read.
- ``table``: routes by session and host, and what was revoked.
- ``statuses``: what people are shown of a session, and how sessions ended.
- ``signed_table``: one signature over a whole table.
"""

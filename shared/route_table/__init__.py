"""What stands in the table of :mod:`shared.routes` beside routes. Pure, no I/O.

- ``statuses``: what people are shown of a session, and how sessions ended.
- ``signed_table``: one signature over a whole table.
"""

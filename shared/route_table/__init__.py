"""The table that a gateway serves from, and how it changes. Pure, no I/O.

- ``routes``: Route, Target and the RouteTable. ``statuses``: what people are shown of a session.
- ``events``: ProxyEvents, the change notices of the table.
- ``signed_table``: one signature over a whole table. ``ended_sessions``: how sessions ended.
"""

"""The contract between controller and gateway: code that both processes use.

Without I/O:

- ``routes``: Route, Target, Status and the RouteTable.
- ``events``: ProxyEvents, the changes of the table.
- ``tokens``: session tokens and service tokens; keys and the time are arguments.
- ``link``: attach tokens and sealed values, made with the link key.
- ``reports``: reports of gateways about themselves and about sessions.
- ``audit``: audit records.
- ``bounded``, ``networks``, ``text``, ``errors``, ``version``.

With I/O:

- ``bus``: Redis, which holds the table and carries the events.
- ``jose``: JSON Web Signatures and key sets.
- ``connector``: connections of the HTTP client.
- ``settings``: settings from the environment.
- ``runtime``: process start, signals, listeners, metrics, health and readiness.
- ``tls``: TLS contexts of clients.
- ``log``: logs.
"""

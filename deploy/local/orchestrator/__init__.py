"""A reference orchestrator: the smallest one that does everything that Fumarole asks of one.

An orchestrator knows its users, decides what each may do, and is the only one that both processes
believe. It is short so that it can be read before a real one is written:

- ``keys``: the signing key, and the key set that both processes fetch.
- ``tokens``: service tokens for the controller's API, session tokens for the gateway.
- ``controller``: a client of the controller's API.
- ``sessions``: who may open what; this is the decision that nobody else makes.
- ``web``, ``handlers``: a page where a person picks an app, sees its job start, opens, extends,
  shares and stops it, and reads its log and history.

It keeps nothing but its key: jobs are the controller's to remember. Its users need no password, so
it is for trying things on one machine.
"""

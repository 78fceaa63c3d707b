"""The reference orchestrator: the smallest one that does everything that Fumarole needs of one.

An orchestrator knows its users and decides what each of them may do. It is the only party whose
decisions the controller and the gateway accept. Read this one before you write a real one:

- ``keys``: the signing key, and the key set that controller and gateway fetch.
- ``tokens``: service tokens for the controller's API, session tokens for the gateway.
- ``controller``: a client of the controller's API.
- ``sessions``: decides which user may open which app. Nothing else makes this decision.
- ``web``, ``handlers``: a page on which a user picks an app, sees its job start, opens, extends,
  shares and stops it, and reads its log and history.

It stores only its key, since the controller stores the jobs. Its users need no password, so use it
only to try things on one machine.
"""

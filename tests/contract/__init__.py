"""A black-box exam of the gateway, written from its contracts alone.

The gateway runs as a process; nothing of it is imported. Tokens, events and what is in Redis are
made here, by code of our own, so that a mistake in the code that both processes share is found
too. Both ends of the gateway are raw sockets that record every byte.

``streams``, ``messages`` and ``frames`` speak TCP, HTTP and WebSocket to the letter; ``tokens`` is
the orchestrator, ``bus`` the controller, ``upstream`` the apps; ``rig`` starts Redis and gateway
and puts them together. What is a list stands in ``data``, one line a case.
"""

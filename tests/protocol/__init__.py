"""The protocol between publisher and followers as a whole: a simulation, a model, a chaos run.

- ``virtual``: an event loop whose time passes only when nobody has anything to do.
- ``memory``: a Redis in memory that can be told to fail; ``test_memory`` holds it to a real one.
- ``world``: a leader and followers around it, and what must hold of them.
"""

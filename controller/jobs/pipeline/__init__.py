"""Plugins: their interface, the order in which their hooks run, and the border around each call.

- ``plugin``, ``builder``: what a plugin implements and what it changes.
- ``plugin_loading``: finds those that run, in order; ``plugin_checks``: what each must be.
- ``pipeline``: runs the hooks in order and records what ran.
- ``border``: deadlines for hooks, and checks of everything they return and make.

A job meets them at its acceptance (``on_create`` as a check), at each submission (``on_create``
again), at its start, at due times, at its end and at its removal. Source:
docs/plugins/write-your-own.md.
"""

"""Plugins: their interface, the order of their hooks, and the border around each call.

- ``plugin``, ``builder``: what a plugin implements, and what it changes, which is checked.
- ``plugin_models``, ``plugin_metrics``: what it declares, and what it counts.
- ``plugin_loading``: finds the plugins and orders them; ``plugin_checks``: checks their classes.
- ``pipeline``: runs the hooks in order and records which ran.
- ``border``: deadlines for hooks, and checks of what they return.

Plugins see a job at its acceptance (``on_create`` as a check), at each submission (``on_create``
again), at its start, at due times, at its end and at its removal. Source:
docs/plugins/write-your-own.md.
"""

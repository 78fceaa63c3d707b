"""Plugins: their interface, the order of their hooks, and the border around each call.

- ``plugin``: the interface of plugins. ``builder``: the plan that plugins change, and its checks.
- ``plugin_models``, ``plugin_metrics``: a plugin's own settings, job fields, kinds and metrics.
- ``plugin_loading``: finds and orders the plugins; ``plugin_checks``: checks their classes.
- ``pipeline``: runs the hooks in order.
- ``border``: deadlines for hooks, checks of what they return, and records of those that ran.

Plugins see a job at its acceptance (``on_create`` as a check), at each submission (``on_create``
again), at its start, at due times, at its end and at its removal. Source:
docs/plugins/write-your-own.md.
"""

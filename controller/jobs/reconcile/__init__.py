"""Brings each job from what is to what should be: observe, decide, act, requeue.

- ``workqueue``, ``reconciler``: which job is looked at when, by which worker.
- ``observe``: reads a job from store and cache. ``lifecycle``: the next step (no I/O).
- ``actions``: does a step; those that make or end an attempt by ``submitting`` and ``ending``.
- ``plugin_calls``: hooks of plugins are called beside the worker, which looks again later.
- ``adoption``: VolcanoJobs that the store does not know. ``monitoring``: due hooks of plugins.

Sources: controller-runtime's Reconciler; docs/controller.md.
"""

"""Reconciles jobs: observe, decide, act, requeue.

- ``workqueue``: the jobs to reconcile. ``sources``: the store's changes and the resync fill it.
- ``reconciler``: the workers, and the loop of steps for one job.
- ``observe``: reads a job from store and cache. ``lifecycle``: decides the next step (no I/O).
- ``actions``: does a step; ``submitting`` and ``ending`` do those that begin or end an attempt.
- ``plugin_calls``: runs plugin hooks in tasks of their own, so that no worker waits for them.
- ``adoption``: VolcanoJobs that the store does not know. ``monitoring``: due hooks of plugins.

Sources: controller-runtime's Reconciler; docs/controller.md.
"""

"""JobManagement: what a job may say, what plugins make of it, and how it lives and ends.

- ``model``, ``parameters``, ``problems``, ``accepted``: a job as asked for and as kept.
- ``plugin``, ``builder``, ``pipeline``: the five hooks, what they change, and their order.
- ``submission``: takes jobs into the store; what is there was accepted.
- ``picture``: what the cluster shows, by two watches. ``sight``: a job in store and picture.
- ``lifecycle``: states as a table, and the next step as a function of what is seen (no I/O).
- ``actions``: does a step. ``cluster``, ``ground``: in the cluster, so that twice does no harm.
- ``workqueue``, ``reconciler``: who looks at which job when.
- ``adoption``: what the store does not know: adopted, or removed with evidence.
- ``monitoring``, ``housekeeping``: what happens by the clock.

Flow: submission → store → reconciler: sight → lifecycle → actions → cluster → picture → again.
"""

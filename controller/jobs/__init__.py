"""JobManagement: what a job may say, what plugins make of it, and how it lives and ends.

- ``model``, ``parameters``, ``problems``, ``accepted``: a job as asked for and as kept.
- ``plugin``, ``builder``, ``pipeline``: the five hooks, what they change, and their order.
- ``submission``: takes jobs into the store; what is there was accepted. ``wishes``: that one
  ends, waits, goes on, has more time.
- ``picture``: what the cluster shows, by watches. ``sight``: a job in store and picture.
- ``states``, ``lifecycle``, ``explanations``: states as a table, the next step as a function of
  what is seen, and what people are told (no I/O).
- ``actions``, ``submitting``, ``ending``: do a step, by ``records`` in the store and by
  ``cluster``, ``ground`` in the cluster, so that twice does no harm.
- ``runs``, ``usage``, ``demand``, ``retry``: what is written down, entered and said of it (no
  I/O). ``ledger``: enters what was used.
- ``workqueue``, ``reconciler``: who looks at which job when.
- ``adoption``: what the store does not know: adopted, or removed with evidence.
- ``monitoring``, ``housekeeping``, ``sweeping``: what happens by the clock.

Flow: submission → store → reconciler: sight → lifecycle → actions → cluster → picture → again.
"""

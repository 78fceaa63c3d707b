"""Webhooks: what becomes of jobs, sent to receivers that the deployment names.

The leader has a ``dispatcher`` for each receiver. It reads the outbox of updates from the
receiver's cursor on, asks ``deliveries`` what is sent next (no I/O), hands each message to a
``sender``, which signs it, and notes in the store, fenced by the leader's term, what was accepted.

A message is sent at least once: what was accepted just before a leader died is sent again, with
the same ``webhook-id``. The updates of a job come in their order, each after the one before was
accepted. Jobs do not wait for each other, receivers neither.
"""

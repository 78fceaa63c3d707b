"""Webhooks: updates of jobs, sent to receivers that the deployment configures.

The leader has a ``dispatcher`` for each receiver. It reads the outbox of updates from the
receiver's cursor on, and asks ``deliveries`` for the next message (no I/O). A ``sender`` signs and
sends it. The dispatcher stores which updates were accepted, fenced by the leader's term.

A message is sent at least once: if a leader dies right after a message was accepted, the next one
sends it again with the same ``webhook-id``. The updates of one job are sent in order, each after
the previous one was accepted. Jobs do not wait for each other, and neither do receivers.
"""

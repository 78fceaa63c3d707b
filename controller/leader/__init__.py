"""The leader: its election (``election``), its tasks (``leader``), and the ``watchdog``.

``term`` makes the parts that run while this process leads.

``standby`` follows the cluster in every replica, so that a new leader's cache is warm.

``discovery`` reads what the cluster's Volcano supports, which only the leader stores, and which
permissions the controller has.
"""

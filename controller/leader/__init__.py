"""The leader: elected (``election``), with its loops (``leader``), and watched (``watchdog``).

``standby`` follows the cluster in every replica, so that whoever is elected knows it already.

``discovery`` reads what the cluster's Volcano can do, which the leader alone writes down, and what
the controller may do there.
"""

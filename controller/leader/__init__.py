"""The leader: elected (``election``), with its loops (``leader``), and watched (``watchdog``).

``discovery`` reads what the cluster's Volcano can do, which the leader alone writes down.
"""

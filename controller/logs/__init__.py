"""Pods' logs, kept so that they outlive their pods.

The leader's ``keeper`` decides for each pod whether its log is followed or read (``wanted``), and
hands what ``live`` receives to a ``writer``. A writer cuts the log into segments, puts each into
the ``storage`` (a folder or S3) under a name that is used once, and then commits it to the store,
fenced by the leader's term: a segment that the store does not list is no part of any log. So a
deposed leader can write into the storage whatever it likes.

``reading`` serves the API from both: a pod that is there, and what was stored of one that is gone.
A log's lines have the kubelet's timestamps (``records``), by which each of them goes on where
another one stopped.
"""

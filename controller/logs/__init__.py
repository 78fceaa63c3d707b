"""Pods' logs, stored so that they outlive their pods.

The leader's ``keeper`` decides for each pod whether its log is followed or read (``wanted``), and
passes what ``live`` receives to a ``writer``. A writer splits the log into segments. It puts each
into the ``storage`` (a folder or S3) under a name that is used once, and then commits it to the
store, fenced by the leader's term. A segment that the store does not list is not part of any log.
So writes of a deposed leader have no effect.

``reading`` serves the API: from the pod while it exists, else from the storage. The lines of a log
have the kubelet's timestamps (``records``), by which a reader or writer resumes.
"""

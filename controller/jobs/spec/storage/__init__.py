"""Where a job's files are.

- ``paths``: paths that owners write. ``volumes``: which folder of which claim each leads to.
- ``files``: all of a job's, with the folders that others have claimed.
"""

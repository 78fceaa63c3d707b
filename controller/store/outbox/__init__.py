"""Series that others read in order: updates of jobs, and usage entries.

Numbers become visible in the order of commits, so that a reader of one number has seen all earlier
ones.
"""

"""What others read in order: ``update_rows`` and ``usage_entries``, and their numbers.

Numbers become visible in the order of commits, so that a reader who has seen one misses none
before it.
"""

"""Queries on the installation itself.

- ``identity``: who this store is. ``leadership``: the term, which fences writes of an old leader.
- ``volcano_features``: what the cluster takes. ``submission_pause``: whether jobs are taken.
"""

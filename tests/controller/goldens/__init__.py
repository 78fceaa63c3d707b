"""Manifests as they are made, kept in files, so that a change of one is seen in a review.

``cases`` says of which jobs; ``render`` makes the texts; ``rules`` are what any of them must be,
found out without the code that makes them. ``make goldens`` writes the files and the examples in
docs/plugins anew; that is a commit of its own.
"""

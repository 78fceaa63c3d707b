"""Golden manifests: generated manifests are kept in files, so that a review shows changes.

- ``cases`` lists the jobs.
- ``render`` makes the texts.
- ``rules`` states what every manifest must satisfy, without the code that makes manifests.

``make goldens`` writes the files and the examples in docs/plugins anew. Commit the result
separately.
"""

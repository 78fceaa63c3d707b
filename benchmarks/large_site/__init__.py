"""A large site: the cost of 10,000 jobs with 50,000 pods for the controller.

``python -m benchmarks.large_site [--jobs 10000] [--pods 5]`` prints one line of JSON.

- ``shapes``: a pod as a real API server returns it, ``managedFields`` included: 12 KB.
- ``front``: stands before the embedded API server, and adds many copies of one job and its pods.
- ``copies``: makes copies of one job, its pods, and its rows in the controller's store.
- ``measured``: the controller itself, which also records which jobs it observed, how long its loop
  stalled, and in which part the processor was.
- ``run``: puts these together, and measures.
"""

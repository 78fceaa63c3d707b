"""A large site: what 10,000 jobs with 50,000 pods cost the controller.

``python -m benchmarks.large_site [--jobs 10000] [--pods 5]`` prints one line of JSON.

- ``shapes``: a pod as a real API server returns it, ``managedFields`` included: 12 KB.
- ``front``: stands before the embedded API server, and shows many copies of one job and its pods.
- ``copies``: of one job, its pods, and its rows in the controller's store.
- ``measured``: the controller itself, which also notes what it looked at, for how long its loop
  stood still, and in which part of it the processor was.
- ``run``: puts these together, and measures.
"""

"""Tests of the Kubernetes client, in the same layout as the source."""

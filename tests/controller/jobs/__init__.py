"""Tests of jobs, in the same layout as the source."""

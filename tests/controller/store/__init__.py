"""Tests of the store, in the same layout as the source."""

"""Tests of sessions, in the same layout as the source."""

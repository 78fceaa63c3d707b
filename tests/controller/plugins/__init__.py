"""Tests of the plugins, in the same layout as the source."""

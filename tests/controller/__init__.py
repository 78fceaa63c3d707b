"""Tests of the controller, in the same layout as the source."""

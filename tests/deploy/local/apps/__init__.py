"""Tests of the demo's apps."""

"""Tests of what `make demo` runs."""

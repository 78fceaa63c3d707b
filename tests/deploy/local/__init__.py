"""Tests of the programs that `make demo` runs."""

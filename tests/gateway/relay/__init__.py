"""Tests of the data path's I/O."""

"""Tests of the pages' build."""

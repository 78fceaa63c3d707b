"""Tests of the whole system: real processes, real apps, a real browser."""

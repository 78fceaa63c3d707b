"""Tests of the contracts between controller and gateway."""

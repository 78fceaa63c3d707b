"""Tests of the VolcanoJob builder and observer, in the same layout as the source."""

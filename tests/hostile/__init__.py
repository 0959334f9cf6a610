"""Hostile values in every parameter of every public call; the whole sweep is `python -m tests.hostile`."""

"""Shared pytest set-up of this repository."""

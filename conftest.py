"""Shared pytest set-up of this repository."""

pytest_plugins = ["pytester"]

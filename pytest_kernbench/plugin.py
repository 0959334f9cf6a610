"""Hooks of the pytest plugin, and nothing else. PYTEST_DONT_REWRITE"""

"""The same decode here and on the interpreters of other projects: `python -m benchmarks.peers`. PYTEST_DONT_REWRITE"""

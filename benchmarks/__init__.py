"""What the simulator costs beside what others cost, in one run: `python -m benchmarks`. PYTEST_DONT_REWRITE"""

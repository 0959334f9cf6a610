"""What we count on paper, to hold kernels against; the simulator that runs them is pytest-kernbench's."""

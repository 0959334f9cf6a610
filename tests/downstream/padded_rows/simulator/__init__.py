"""The host's side: tilings and the answers in float64; the simulator that runs kernels is pytest-kernbench's."""

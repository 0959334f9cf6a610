"""Kernels of the coprocessor."""

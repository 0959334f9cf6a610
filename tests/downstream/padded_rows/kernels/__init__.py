"""The kernels of this repository; each is a function with the keyword argument `asc`."""

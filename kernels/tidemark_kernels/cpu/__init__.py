"""C kernels for processors: compiled on the machine that runs them, at first use."""

"""Computes: turns a step plan into tokens. `interface` is what the engine knows of a worker."""

"""Decides: which sequence computes what in the next step, and in which pages. Standard library only."""

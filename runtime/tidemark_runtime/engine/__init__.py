"""Turns the wheel: schedule, execute, update. A process of its own; `client` is its other end."""

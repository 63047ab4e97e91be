"""The capacity load test of a running engine: sends requests over HTTP, on time, and tells what came back and when.

Knows nothing of the engine's insides and imports none of them; who sends what and when it reads as the simulation does.
"""

"""Ops on tensors of an accelerator: each checks its arguments, allocates what it was not given, and launches.

Every public function `name` here has a plain `reference` of the same name, cases in the tests that a test counts, and
its compiled forms in `tuning`. Under Triton's interpreter the same functions take tensors of the processor.
"""

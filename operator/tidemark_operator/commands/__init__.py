"""The verbs of `tidemark` that need the operator."""

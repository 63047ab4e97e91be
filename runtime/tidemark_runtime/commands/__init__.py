"""What `tidemark` verbs of the runtime do; the only place that prints."""

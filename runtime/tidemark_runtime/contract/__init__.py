"""What other parts may rely on: HTTP paths, the `/status` document, metric names. Imported by the operator."""

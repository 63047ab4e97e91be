"""Composes layers: checkpoints read, families of architectures, linear layers in the form the step asks for."""

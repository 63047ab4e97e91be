"""The loop: which object needs a look (`queue`), what is done then (`reconciler`), what wakes it (`loop`)."""

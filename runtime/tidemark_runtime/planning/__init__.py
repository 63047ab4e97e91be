"""Memory arithmetic, standard library only: shared by the engine, the operator and the command line."""

"""`python -m tidemark_operator`: the same as the command `tidemark`."""

from __future__ import annotations

from tidemark_operator import cli

if __name__ == "__main__":
    cli.main()

"""The command `tidemark`, whose pods run the stand-in engine instead of the real one."""

from __future__ import annotations

import sys
from pathlib import Path

from tidemark_operator import cli
from tidemark_operator.cluster.local import translate

ENGINE = Path(__file__).with_name("stand_in_engine.py")

if __name__ == "__main__":
    translate.PROGRAMS = {"tidemark": (sys.executable, str(ENGINE))}
    sys.exit(cli.run(sys.argv[1:]))

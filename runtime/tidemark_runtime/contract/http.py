"""Paths, port and headers of an engine's HTTP server."""

from __future__ import annotations

CONTAINER_PORT = 8000
"""Port inside a pod."""

LIVE_PATH = "/health/live"
READY_PATH = "/health/ready"
STATUS_PATH = "/status"
METRICS_PATH = "/metrics"
CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
MODELS_PATH = "/v1/models"
TOKENIZE_PATH = "/v1/tokenize"
ADMIN_CONFIG_PATH = "/admin/config"

CONSOLE_PATH = "/"
"""The page a person opens."""
CONSOLE_DATA_PATH = "/console/data"
"""What it shows, as JSON (`contract.console`)."""
CONSOLE_FILES = (
    *("bar.js", "console.css", "console.js", "dark.css", "dom.js", "facts.js", "icon.svg", "lists.js"),
    *("poll.js", "rates.js", "table.js", "text.js", "theme.js", "words.js"),
)
"""What the page is made of, each below `CONSOLE_PREFIX`."""
CONSOLE_PREFIX = "/console/"

OPEN_PATHS = frozenset({LIVE_PATH, READY_PATH, STATUS_PATH, METRICS_PATH, CONSOLE_PATH, CONSOLE_DATA_PATH}) | {
    CONSOLE_PREFIX + name for name in CONSOLE_FILES
}
"""Answered without an API key: probes, the operator, Prometheus and whoever opens the console have none."""

ADMIN_PREFIX = "/admin/"
"""Below it an admin token is needed and an API key is worth nothing; without a token file nothing is there."""

REQUEST_ID_HEADER = "x-request-id"

PRIORITY_HEADER = "x-tidemark-priority"
"""Of a request: what it asks for, -100 to 100, larger goes first. Of an answer: what it had."""
RETRY_COUNT_HEADER = "x-tidemark-retry-count"
"""How often a client has sent this request before."""
OPENAI_RETRY_COUNT_HEADER = "x-stainless-retry-count"
"""The same, as OpenAI's clients say it by themselves."""
DEGRADED_HEADER = "x-tidemark-degraded"
"""Of an answer: what a degrade rule has taken from it, and which one."""

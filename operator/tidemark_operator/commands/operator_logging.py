"""How `tidemark operator` logs: a line of text for people, or of JSON for what collects logs. To standard error."""

from __future__ import annotations

import datetime
import json
import logging
import sys

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        made = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            made["exception"] = self.formatException(record.exc_info)
        return json.dumps(made, ensure_ascii=False)


def configure(format_: str, level: str) -> None:
    """For the whole process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("kopf", "httpx", "httpcore", "asyncio", "kubernetes", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))

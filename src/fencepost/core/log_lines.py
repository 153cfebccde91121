"""The log of a command that runs for long: lines of text, or of JSON, on standard error.

A library leaves the configuration of logging to its program. So only commands and the workers of a server call
`configure_logs`; tests/server/test_observer.py and tests/consumers/test_command_line.py check what they print.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone


class JsonLines(logging.Formatter):
    """A JSON object for each line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logs(form: str, level: str = "info") -> None:
    """Log to standard error what is at least this severe, in this form: "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler])

"""What a server process writes to its standard error: lines of text, or of JSON."""

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


def configure(form: str) -> None:
    """Log to standard error in this form."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])

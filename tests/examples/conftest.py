from __future__ import annotations

from tests.decisions.addresses import address, postgres_url

__all__ = ["address", "postgres_url"]

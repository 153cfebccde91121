from __future__ import annotations

from tests.decisions.addresses import address

__all__ = ["address"]

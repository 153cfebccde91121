"""The audit: proof from the recorded conditions that every decision in the log was safe.

proving     `audit`: the whole proof, and what it says about the boundaries
supposing   `what_if`: what another boundary would have done to the recorded decisions
boundaries  the conditions of recorded appends as questions, answered by one sort, and the shapes of their queries
log_checks  positions, ids, ranges of appends and checksums
"""

from __future__ import annotations

from .proving import Audit, Violation, audit
from .supposing import WhatIf, what_if

__all__ = ["Audit", "Violation", "WhatIf", "audit", "what_if"]

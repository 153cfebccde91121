"""How often tests repeat what they try at random.

`make test` repeats less, so that it can be run often. `make test-thorough` sets FENCEPOST_TEST_THOROUGH=1 and runs the
same tests with many more cases. Hypothesis draws new cases in every run, so short runs add up.
"""

from __future__ import annotations

import os

THOROUGH = os.environ.get("FENCEPOST_TEST_THOROUGH") == "1"


def times(often: int, thorough: int) -> int:
    """How many times to try: `often` in `make test`, `thorough` in `make test-thorough`."""
    return thorough if THOROUGH else often

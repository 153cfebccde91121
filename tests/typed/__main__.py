"""`python -m tests.typed`: compare what both checkers find in the samples with the marks."""

from __future__ import annotations

import sys

from .checkers import CHECKERS, differences


def main() -> int:
    found = [difference for checker in CHECKERS for difference in differences(checker)]
    print("\n".join(found) if found else f"typed samples: as marked, by {' and '.join(CHECKERS)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

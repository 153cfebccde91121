"""The protocol of group commit, model-checked in its small configuration.

The real protocol violates nothing. Each planted bug violates the property that is there to catch
it, and so shows that the property can fail. `make models` checks a larger configuration.
"""

from __future__ import annotations

import pytest
from models.tlc import MODELS, check

BUGS = {
    "blind-batch": "ConditionsHold",
    "no-catch-up": "ConditionsHold",
    "no-collision": "AcknowledgedKept",
    "early-acknowledgement": "AcknowledgedKept",
    "torn-transaction-kept": "WholeTransactions",
    "unsynced-tail-read": "NoGapDelivered",
    "unsynced-recovery": "NoGapDelivered",
    "deaf-to-others": "a temporal property",  # its configuration names one only: Delivery
}


def test_the_protocol_violates_nothing() -> None:
    assert check("Small") == "nothing"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_violates_the_property_that_is_there_to_catch_it(bug: str) -> None:
    assert check("Small", f"bugs/{bug}.cfg") == BUGS[bug]


def test_every_planted_bug_is_checked() -> None:
    assert {path.stem for path in (MODELS / "bugs").glob("*.cfg")} == set(BUGS)


def test_the_configuration_for_the_temporal_property_names_delivery_only() -> None:
    properties = [line for line in (MODELS / "bugs/deaf-to-others.cfg").read_text().splitlines() if "PROPERT" in line]
    assert properties == ["PROPERTIES Delivery"]

"""The store against a model of it, in sequences of verbs that Hypothesis makes up."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from ..machine import StoreMachine
from ..stores import Store
from .base import Contract


class Modelled(Contract):
    durable: ClassVar[bool] = False
    """Whether the store outlives its handles."""

    examples: ClassVar[int] = 25
    """How many sequences are tried."""

    def test_any_sequence_of_verbs_agrees_with_the_model(self) -> None:
        def open_store() -> Store:
            self._opened = self.open_store()
            return self._opened

        machine = StoreMachine.bound_to(open_store, self.open_again, durable=self.durable, gapless=self.gapless)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=self.examples,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

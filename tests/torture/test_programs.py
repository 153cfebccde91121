"""Each torture program, for a moment. `make torture` runs them for minutes."""

from __future__ import annotations

import pytest
from tests.torture.programs import program_names, run_program

SECONDS = 3.0


@pytest.mark.parametrize("name", program_names())
def test_a_short_attack_breaks_no_promise(name: str) -> None:
    assert run_program(name, SECONDS, seed=1)

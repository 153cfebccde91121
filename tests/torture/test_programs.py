"""Each torture program, for a moment. `make torture` runs them for minutes."""

from __future__ import annotations

import pytest
from tests.torture.programs import program_names, run_program

SECONDS = 3.0


# tests/postgres/slow has failovers; a single one takes longer than all other programs together.
@pytest.mark.parametrize("name", [name for name in program_names() if name != "failover"])
def test_a_short_attack_breaks_no_promise(name: str) -> None:
    assert run_program(name, SECONDS, seed=1)

"""What tasks ask for in one turn of the loop is done in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencepost.gathering import Turns


class TestTurns:
    async def test_what_is_asked_for_in_one_turn_is_done_at_once(self) -> None:
        batches: list[list[int]] = []

        def act(numbers: Sequence[int]) -> list[str]:
            batches.append(list(numbers))
            return [str(number) for number in numbers]

        turns = Turns(act, most=16)

        async def ask(number: int) -> str:
            return await turns.ask(number)

        for _ in range(2):
            assert await asyncio.gather(*map(ask, range(3))) == ["0", "1", "2"]
        assert batches == [[0, 1, 2], [0, 1, 2]]

    async def test_others_have_their_turn_between_two_batches(self) -> None:
        seen: list[object] = []

        def act(numbers: Sequence[int]) -> list[int]:
            seen.append(list(numbers))
            return list(numbers)

        turns = Turns(act, most=2)
        asked = [turns.ask(number) for number in range(5)]
        await asyncio.sleep(0)
        seen.append("another")
        assert await asyncio.gather(*asked) == [0, 1, 2, 3, 4]
        assert seen == [[0, 1], "another", [2, 3], [4]]

    async def test_who_was_cancelled_is_left_out(self) -> None:
        turns: Turns[int, int] = Turns(list, most=16)
        first, second = turns.ask(1), turns.ask(2)
        first.cancel()
        assert await second == 2

    async def test_a_failure_reaches_everybody_and_the_next_turn_is_another(self) -> None:
        failures = [ValueError("planted")]

        def act(numbers: Sequence[int]) -> list[int]:
            if failures:
                raise failures.pop()
            return list(numbers)

        turns = Turns(act, most=16)
        for asked in (turns.ask(1), turns.ask(2)):
            with pytest.raises(ValueError, match="planted"):
                await asked
        assert await turns.ask(3) == 3

    def test_loops_do_not_disturb_each_other(self) -> None:
        turns: Turns[int, int] = Turns(list, most=16)

        async def abandon() -> None:
            turns.ask(1)  # and the loop ends

        async def ask() -> int:
            return await turns.ask(2)

        asyncio.run(abandon())
        assert asyncio.run(ask()) == 2

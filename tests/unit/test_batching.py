"""Requests that tasks submit in one turn of the event loop run as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fencepost.core.group_commit import LoopBatcher


class TestLoopBatcher:
    async def test_requests_of_one_turn_of_the_loop_are_one_batch(self) -> None:
        batches: list[list[int]] = []

        def act(numbers: Sequence[int]) -> list[str]:
            batches.append(list(numbers))
            return [str(number) for number in numbers]

        batcher = LoopBatcher(act, most=16)

        async def ask(number: int) -> str:
            return await batcher.submit(number)

        for _ in range(2):
            assert await asyncio.gather(*map(ask, range(3))) == ["0", "1", "2"]
        assert batches == [[0, 1, 2], [0, 1, 2]]

    async def test_other_tasks_run_between_two_batches(self) -> None:
        seen: list[object] = []

        def act(numbers: Sequence[int]) -> list[int]:
            seen.append(list(numbers))
            return list(numbers)

        batcher = LoopBatcher(act, most=2)
        asked = [batcher.submit(number) for number in range(5)]
        await asyncio.sleep(0)
        seen.append("another")
        assert await asyncio.gather(*asked) == [0, 1, 2, 3, 4]
        assert seen == [[0, 1], "another", [2, 3], [4]]

    async def test_a_cancelled_request_is_left_out(self) -> None:
        batcher: LoopBatcher[int, int] = LoopBatcher(list, most=16)
        first, second = batcher.submit(1), batcher.submit(2)
        first.cancel()
        assert await second == 2

    async def test_a_failure_reaches_every_request_of_the_batch_and_the_next_batch_runs(self) -> None:
        failures = [ValueError("planted")]

        def act(numbers: Sequence[int]) -> list[int]:
            if failures:
                raise failures.pop()
            return list(numbers)

        batcher = LoopBatcher(act, most=16)
        for asked in (batcher.submit(1), batcher.submit(2)):
            with pytest.raises(ValueError, match="planted"):
                await asked
        assert await batcher.submit(3) == 3

"""Many callers, one at a time, in an order that a seed decides.

Each call runs in a thread of its own, but only the one that holds the baton runs: at every step
of the simulated cluster the seed says who goes on. So ordinary blocking code meets every
interleaving of its steps, and the same seed gives the same run again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Task(Generic[Result]):
    def __init__(self, call: Callable[[], Result]) -> None:
        self.call = call
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class Schedule:
    """`run` the calls; give `step` to the cluster as its hook."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._waiting: list[Task[object]] = []
        self._tasks: dict[int, Task[object]] = {}
        self._over = threading.Event()
        self.steps = 0

    def run(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of the calls, in their order; the first error of any of them is raised."""
        if not calls:
            return []
        tasks = [Task(call) for call in calls]
        threads = [threading.Thread(target=self._carry_out, args=(task,), daemon=True) for task in tasks]
        self._over.clear()
        self._waiting = list(tasks)  # type: ignore[arg-type]
        for task, thread in zip(tasks, threads, strict=True):
            thread.start()
            assert thread.ident is not None
            self._tasks[thread.ident] = task  # type: ignore[assignment]
        self._next()
        self._over.wait()
        for thread in threads:
            thread.join()
        self._tasks.clear()
        for task in tasks:
            if task.error is not None:
                raise task.error
        return [task.result for task in tasks]  # type: ignore[misc]

    def step(self, name: str) -> None:
        """A step of the task that runs: perhaps another one goes on first."""
        task = self._tasks.get(threading.get_ident())
        if task is None:
            return  # called from outside of any run
        self.steps += 1
        chosen = self._random.randrange(len(self._waiting) + 1)
        if chosen < len(self._waiting):
            following, self._waiting[chosen] = self._waiting[chosen], task
            following.turn.release()
            task.turn.acquire()

    def _carry_out(self, task: Task[Result]) -> None:
        task.turn.acquire()
        try:
            task.result = task.call()
        except BaseException as error:
            task.error = error
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.pop(self._random.randrange(len(self._waiting))).turn.release()
        else:
            self._over.set()

"""What the decisions layer costs: a decision, beside the same store calls written by hand.

The store is real, its engine answers at once: what is left is Python, ours and that of whoever
writes the calls by hand. Both read the same boundary, decode, decide, encode, and append under
the same condition; the difference is what `@decision` adds. CPU time of the thread, and of many
rounds, taken in turns, the least disturbed: `python -m benchmarks.decisions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from time import thread_time
from typing import Any, NamedTuple

import msgspec
from examples.wallet.domain import Balance, DepositMade, WalletOpened, withdraw

from fencepost import AppendCondition, Event, EventStore, Placed, Query, QueryItem, SequencedEvent
from fencepost.core.engine import Capability
from fencepost.core.verdicts import Append, Verdict
from fencepost.decisions import decision, encode
from fencepost.decisions.inspection import Decision

from .machine import facts

ROUNDS = 60
CYCLES = 300
BUDGET_US = 25


class Cost(NamedTuple):
    """CPU time of one decision, written by hand and by the layer."""

    work: str
    by_hand_us: float
    decision_us: float

    @property
    def layer_us(self) -> float:
        return self.decision_us - self.by_hand_us


class Instant:
    """An engine that has one wallet's few events at hand and accepts everything."""

    capabilities = Capability.GROUP_COMMIT

    def __init__(self, events: Sequence[SequencedEvent]) -> None:
        self._rows = [(each.position, each.type, json.dumps(sorted(each.tags)), each.data) for each in events]

    def commit(self, appends: Sequence[Append]) -> Sequence[Verdict]:
        return [Placed(100, 100) for _ in appends]

    def scan(self, query: Query, **bounds: Any) -> Iterator[Sequence[SequencedEvent]]:
        # Made anew, as an engine does: the tags of a stored event are decoded when they are asked for.
        yield [SequencedEvent(position, type, tags, data, 0) for position, type, tags, data in self._rows]

    def head(self) -> int:
        return 99

    def wait(self, after: int, timeout_s: float) -> int:
        return 99

    def interrupt(self) -> None: ...

    def checkpoint(self, name: str) -> int:
        return 0

    def close(self) -> None: ...


HANDLED = Balance.definition.types
encode_json = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder(dict[str, Any]).decode


def by_hand(store: EventStore, wallet: str, operation: str, once: bool) -> None:
    boundary = QueryItem(types=HANDLED, tags={f"wallet_id:{wallet}"})
    earlier = QueryItem(types={"WithdrawalMade"}, tags={f"withdrawal_id:{operation}"}) if once else None
    reading = store.read(Query((boundary,) if earlier is None else (boundary, earlier)))
    amount = 0
    for event in reading:
        data = decode_json(event.data)
        if event.type == "WalletOpened":
            amount = data["initial_balance"]
        elif event.type == "DepositMade":
            amount += data["amount"]
        else:
            if once and f"withdrawal_id:{operation}" in event.tags:
                return
            amount -= data["amount"]
    assert amount >= 1
    data = encode_json({"wallet_id": wallet, "withdrawal_id": operation, "amount": 1, "description": ""})
    event = Event("WithdrawalMade", data=data, tags={f"wallet_id:{wallet}", f"withdrawal_id:{operation}"})
    condition = AppendCondition(Query((boundary,)), reading.head)
    store.append([event], condition, unless=None if earlier is None else Query((earlier,)))


def least_us(*works: Callable[[], None]) -> list[float]:
    """CPU time of each, a cycle; taken in turns."""
    least = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for index, work in enumerate(works):
            began = thread_time()
            for _ in range(CYCLES):
                work()
            least[index] = min(least[index], (thread_time() - began) / CYCLES * 1e6)
    return least


def costs() -> Iterator[Cost]:
    once: Decision[..., Any] = withdraw
    plain = decision(withdraw.function)
    numbers = count()
    for events in (1, 10):
        store = EventStore(Instant(history(events)))
        for name, rule, searched in (("", plain, False), (", `once=`", once, True)):

            def hand_written(store: EventStore = store, searched: bool = searched) -> None:
                by_hand(store, "w1", f"x{next(numbers)}", searched)

            def decided(store: EventStore = store, rule: Decision[..., Any] = rule) -> None:
                rule(store, Balance("w1"), withdrawal_id=f"x{next(numbers)}", amount=1)

            yield Cost(f"{events} event{'s' if events > 1 else ''} read{name}", *least_us(hand_written, decided))


def main() -> None:
    print("  ".join(f"{name}: {value}" for name, value in facts("msgspec").items()))
    print(f"{'decision':34}{'by hand':>10}{'@decision':>11}{'the layer':>11}   budget {BUDGET_US} us")
    for each in costs():
        print(f"{each.work:34}{each.by_hand_us:>7.1f} us{each.decision_us:>8.1f} us{each.layer_us:>8.1f} us")


def history(events: int) -> list[SequencedEvent]:
    typed = [WalletOpened("w1", "Ada", 1_000), *(DepositMade("w1", f"d{n}", 1, "") for n in range(events - 1))]
    rows = [encode(each) for each in typed]
    return [SequencedEvent(at, each.type, each.tags, each.data, 0) for at, each in enumerate(rows, start=1)]


if __name__ == "__main__":
    main()

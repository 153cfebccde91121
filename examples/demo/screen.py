"""What you see: the wallets while they are attacked, and the two attacks side by side.

On a terminal the wallets move; elsewhere each attack leaves its last picture, so that a log of it
reads as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from pyspark.sql import Row
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fencepost.testing.clients import History

from .attack import Attack, Count, Plan
from .watch import Balances

BAR_WIDTH = 30
FULL = 200  # the balance that fills a bar
FRAMES_PER_S = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attack has ended."""

    plan: Plan
    balances: Balances
    counts: dict[Count, int]
    histories: list[History]

    @property
    def appends(self) -> int:
        return self.counts[Count.WITHDRAWN] + self.counts[Count.DEPOSITED]

    @property
    def rate(self) -> float:
        return self.appends / self.plan.seconds

    @property
    def lowest(self) -> int:
        return min(self.balances.lowest.values())


def watch_live(console: Console, attack: Attack, balances: Balances) -> None:
    """Show the attack until it ends."""
    began: float | None = None
    with Live(console=console, refresh_per_second=FRAMES_PER_S, auto_refresh=False) as live:
        while attack.running:
            if began is None and attack.count(Count.DEPOSITED) + attack.count(Count.WITHDRAWN):
                began = monotonic()  # the processes take a moment to start
            passed = 0.0 if began is None else monotonic() - began
            live.update(_attack_view(attack, balances, passed), refresh=console.is_terminal)
            sleep(1 / FRAMES_PER_S)
        live.update(_attack_view(attack, balances, attack.plan.seconds), refresh=True)


def _attack_view(attack: Attack, balances: Balances, passed: float) -> RenderableType:
    plan = attack.plan
    counts = {what: attack.count(what) for what in Count}
    line = Text.assemble(
        (f"{counts[Count.WITHDRAWN]:,}", "bold"),
        " withdrawals   ",
        (f"{counts[Count.DECLINED]:,}", "bold"),
        " declined",
    )
    if plan.conditions:
        line.append(f"   {counts[Count.CONFLICTS]:,}", "bold yellow")
        line.append(" conflicts caught and retried")
    done = min(passed / plan.seconds, 1.0)
    progress = Table.grid(padding=(0, 1))
    progress.add_row(ProgressBar(total=1.0, completed=done, width=BAR_WIDTH), Text(f"{passed:.1f} s", "dim"))
    return Padding(Group(_wallets_view(balances), line, progress), (0, 2))


def _wallets_view(balances: Balances) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("wallet")
    table.add_column("", width=BAR_WIDTH)
    table.add_column("balance", justify="right", min_width=8)
    table.add_column("lowest ever", justify="right")
    for name, balance in balances.now.items():
        lowest = balances.lowest.get(name, balance)
        table.add_row(name, _bar(balance), Text(f"{balance:,}", _colour(balance)), Text(f"{lowest:,}", _colour(lowest)))
    return table


def _bar(balance: int) -> Text:
    length = min(round(abs(balance) / FULL * BAR_WIDTH), BAR_WIDTH)
    return Text("█" * length, _colour(balance))


def _colour(balance: int) -> str:
    return "bold red" if balance < 0 else "green"


def heading(console: Console, title: str, text: str) -> None:
    console.print()
    console.print(Text(title, "bold cyan"))
    console.print(Padding(Text(text), (0, 2)))
    console.print()


def compare(console: Console, without: Outcome, guarded: Outcome) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("without conditions", justify="right")
    table.add_column("with conditions", justify="right", style="bold")
    rows: Sequence[tuple[str, Callable[[Outcome], str]]] = [
        ("withdrawals stored", lambda outcome: f"{outcome.counts[Count.WITHDRAWN]:,}"),
        ("conflicts caught and retried", _conflicts),
        ("durable appends a second", lambda outcome: f"{outcome.rate:,.0f}"),
        ("wallets ever overdrawn", lambda outcome: f"{outcome.balances.overdrawn} of {len(outcome.plan.wallets)}"),
    ]
    for name, cell in rows:
        table.add_row(name, cell(without), cell(guarded))
    lowest = [Text(f"{outcome.lowest:,}", _colour(outcome.lowest)) for outcome in (without, guarded)]
    table.add_row("lowest balance ever", *lowest)
    console.print(Padding(table, (0, 2, 1, 2)))


def folded(console: Console, rows: Sequence[Row], outcome: Outcome) -> None:
    """What Spark has folded, beside what the subscriber has seen while it happened."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("wallet", "folded on Spark", "seen by the subscriber", "withdrawals", "last event"):
        table.add_column(name, justify="left" if name == "wallet" else "right")
    for row in rows:
        seen = outcome.balances.now[row["wallet"]]
        cells = (row["amount"], seen, row["withdrawals"], row["position"])
        table.add_row(row["wallet"], *[f"{cell:,}" for cell in cells])
    console.print(Padding(table, (0, 2, 1, 2)))


def _conflicts(outcome: Outcome) -> str:
    return f"{outcome.counts[Count.CONFLICTS]:,}" if outcome.plan.conditions else "unnoticed"


def verdict(console: Console, holds: bool, text: str) -> None:
    mark = Text("✔ ", "bold green") if holds else Text("✘ ", "bold red")
    console.print(Padding(Text.assemble(mark, text), (0, 2)))

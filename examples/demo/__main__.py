"""Runs the demo's parts one after the other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from shutil import rmtree

from rich.console import Console

import fencepost
from fencepost.testing.clients import ClientStore

from . import pipeline, screen
from .attack import Count, Plan, attacking
from .proof import Claim, file_is_sound, history_is_right
from .screen import Outcome
from .wallet import Wallet
from .watch import Balances, watching

WALLETS = ("ada", "brook", "chen", "dara")
BEGIN_WITH = 200  # what is in each wallet before the attack


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    folder = Path(options.folder)
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    picture = folder / "money.png"
    console.print()
    console.print("[bold]Fencepost[/bold]: can concurrent withdrawals overdraw a wallet?")
    attackers = f"{options.processes} processes with {options.threads} threads each"
    console.print(f"  {len(WALLETS)} wallets in one SQLite file, attacked by {attackers}.")

    screen.heading(
        console,
        "1. Without conditions",
        "Read the balance, check it, append the withdrawal. Everybody does it right, and at the same time.",
    )
    without = _attack(console, options, str(folder / "without.db"), conditions=False, seconds=options.seconds / 2)
    screen.heading(
        console,
        "2. With conditions",
        "The same code, but each append says what it rests on: no other withdrawal since the balance was read.",
    )
    guarded = _attack(console, options, str(folder / "wallets.db"), conditions=True, seconds=options.seconds)

    screen.heading(console, "3. What happened", "Both attacks, as the log has it:")
    screen.compare(console, without, guarded)
    claims = [_never_negative(guarded)]
    with console.status("checking the history and the file"):
        claims.append(history_is_right(guarded.plan.path, guarded.histories))
        claims.append(file_is_sound(guarded.plan.path))
    for claim in claims:
        screen.verdict(console, claim.holds, claim.text)

    screen.heading(
        console,
        "4. The same on Spark",
        "The log folded by the projection class that a service would decide with, audited, and drawn.",
    )
    with console.status("starting Spark") as status, pipeline.started() as spark:
        status.update("folding")
        folded = pipeline.folded(spark, guarded.plan.path)
        screen.folded(console, folded, guarded)
        told = [pipeline.agrees(folded, guarded)]
        status.update("querying")
        told.append(pipeline.queried(spark, guarded.plan.path, folded))
        status.update("auditing")
        told.append(pipeline.audited(spark, guarded.plan.path))
        status.update("drawing")
        pipeline.draw(spark, {"without conditions": without.plan.path, "with conditions": guarded.plan.path}, picture)
    for claim in told:
        screen.verdict(console, claim.holds, claim.text)
    claims += told
    console.print(f"\n  The picture: [bold]{picture}[/bold]")
    console.print(f"  Look at it yourself: [bold].venv/bin/fencepost stats {guarded.plan.path}[/bold]\n")
    return 0 if all(claim.holds for claim in claims) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="Wallets under attack.")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long the attack with conditions lasts")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=4, help="in each process")
    parser.add_argument("--folder", default="build/demo", help="emptied, then filled with the stores")
    return parser.parse_args()


def _attack(console: Console, options: argparse.Namespace, path: str, *, conditions: bool, seconds: float) -> Outcome:
    plan = Plan(path, conditions, seconds, WALLETS, options.processes, options.threads)
    balances = Balances(WALLETS)
    # What is recorded with each append, the audit proves again at the end.
    with fencepost.open(path, record_conditions=conditions) as store:
        bank, watcher = ClientStore(store, "bank"), ClientStore(store, "watcher")
        bank.append([Wallet(name).deposit(BEGIN_WITH) for name in WALLETS])
        with watching(watcher, balances), attacking(plan) as attack:
            screen.watch_live(console, attack, balances)
            histories = attack.histories()
    counts = {what: attack.count(what) for what in Count}
    return Outcome(plan, balances, counts, [*histories, bank.history, watcher.history])


def _never_negative(outcome: Outcome) -> Claim:
    if outcome.lowest >= 0:
        return Claim(True, f"no balance was ever below zero, in {outcome.balances.events:,} events")
    return Claim(False, f"{outcome.balances.overdrawn} wallets were overdrawn")


if __name__ == "__main__":
    sys.exit(main())

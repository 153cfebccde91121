"""Unique usernames: a name belongs to one account, and stays reserved for some days after the account is closed.

The boundary is the set of events that carry the name as a tag. Nothing else is read or locked, so
registrations of different names never conflict.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import fencepost
from fencepost import SequencedEvent
from fencepost.decisions import Projection, Tag, decision, event, now, on

RETENTION = timedelta(days=3)


@event
class AccountRegistered:
    username: Tag


@event
class AccountClosed:
    username: Tag


class UsernameTaken(Exception):
    def __init__(self, username: str) -> None:
        super().__init__(f"the username {username!r} is taken")
        self.username = username


class Claim(Projection):
    """Whether an account has the name, or had it until recently."""

    username: Tag
    held: bool = False
    released_at: datetime | None = None

    @on
    def _(self, event: AccountRegistered) -> None:
        self.held = True

    @on
    def _(self, event: AccountClosed, stored: SequencedEvent) -> None:
        self.held, self.released_at = False, stored.recorded_at

    @property
    def is_free(self) -> bool:
        return not self.held and (self.released_at is None or now() - self.released_at >= RETENTION)


@decision
def register(claim: Claim) -> AccountRegistered:
    if not claim.is_free:
        raise UsernameTaken(claim.username)
    return AccountRegistered(claim.username)


@decision
def close(claim: Claim) -> AccountClosed | None:
    return AccountClosed(claim.username) if claim.held else None


def main() -> None:
    with fencepost.open("memory:") as store:
        register(store, Claim("ada"))
        close(store, Claim("ada"))
        for name in ("ada", "bob"):
            try:
                register(store, Claim(name))
                print(f"{name} is registered")
            except UsernameTaken as refusal:
                print(f"refused: {refusal}")


if __name__ == "__main__":
    main()

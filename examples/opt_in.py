"""Opt-in tokens: a sign-up is confirmed with a token that is valid once, and only for an hour.

There is no table of tokens. The token is a tag of the event that requested the confirmation. The events
with that tag show whether the token is still valid.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import fencepost
from fencepost.decisions import Projection, Tag, decision, event, now, on

VALIDITY = timedelta(minutes=60)


@event
class SignUpRequested:
    email: Tag
    token: Tag
    name: str
    requested_at: datetime


@event
class SignUpConfirmed:
    email: Tag
    token: Tag
    name: str


class TokenInvalid(Exception):
    """The token is unknown, used, or too old; the message says which."""


class Token(Projection):
    token: Tag
    email: str = ""
    name: str = ""
    requested_at: datetime | None = None
    used: bool = False

    @on
    def _(self, event: SignUpRequested) -> None:
        self.email, self.name, self.requested_at = event.email, event.name, event.requested_at

    @on
    def _(self, event: SignUpConfirmed) -> None:
        self.used = True


@decision
def request_sign_up(*, email: str, name: str, token: str) -> SignUpRequested:
    return SignUpRequested(email, token, name, now())


@decision
def confirm_sign_up(token: Token) -> SignUpConfirmed:
    if token.requested_at is None:
        raise TokenInvalid("no sign-up has this token")
    if token.used:
        raise TokenInvalid("the sign-up was confirmed already")
    if now() - token.requested_at > VALIDITY:
        raise TokenInvalid("the token is too old; sign up again")
    return SignUpConfirmed(token.email, token.token, token.name)


def main() -> None:
    with fencepost.open("memory:") as store:
        request_sign_up(store, email="ada@example.org", name="Ada", token="t1")
        for token in ("t1", "t1", "t2"):
            try:
                confirm_sign_up(store, Token(token))
                print(f"{token} confirmed the sign-up")
            except TokenInvalid as refusal:
                print(f"{token} was refused: {refusal}")


if __name__ == "__main__":
    main()

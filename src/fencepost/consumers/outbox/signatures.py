"""Signatures of webhooks: proof that a body was sent by a holder of a secret, and when.

The header is `t=1763362800,v1=HEX,v1=HEX`: the time in seconds since 1970 and an HMAC-SHA256 for each active secret,
over the time, a full stop and the body. To rotate, a sender first signs with the new and the old secret, the
receivers change to the new one, and then the sender drops the old one. The time is signed, too, so a
receiver can refuse a request that was recorded and is sent again later.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ...errors import InvalidInput
from ..errors import ConsumerError

HEADER: Final = "Fencepost-Signature"
FEWEST_BYTES: Final = 16
MOST_SECRETS: Final = 5
TOLERANCE_S: Final = 300.0
FORM: Final = re.compile(r"t=(\d{1,15})((?:,v\d+=[0-9a-f]{1,128}){1,20})")


class SignatureRefused(ConsumerError):
    """The body is not signed with one of the secrets, or was signed too long ago; the message says which."""


def checked_secrets(secrets: Iterable[str | bytes]) -> tuple[bytes, ...]:
    if isinstance(secrets, (str, bytes)):
        raise InvalidInput("secrets", "a list of secrets is needed, not a single one")
    checked = tuple(each.encode() if isinstance(each, str) else bytes(each) for each in secrets)
    if not 1 <= len(checked) <= MOST_SECRETS:
        raise InvalidInput("secrets", f"1 to {MOST_SECRETS} are needed, not {len(checked)}")
    if min(map(len, checked)) < FEWEST_BYTES:
        raise InvalidInput("secrets", f"each needs at least {FEWEST_BYTES} bytes")
    return checked


def sign(body: bytes, secrets: Sequence[bytes], *, at_s: int) -> str:
    """The header for a body that is sent at this time."""
    return f"t={at_s}," + ",".join(f"v1={_digest(body, secret, at_s)}" for secret in secrets)


def verify_signature(
    body: bytes,
    header: str | None,
    secrets: Iterable[str | bytes],
    *,
    tolerance_s: float = TOLERANCE_S,
    now_s: float | None = None,
) -> int:
    """Check the header `Fencepost-Signature` of a request, for receivers. Returns the time at which it was signed.

    `body` is the body as received, before any parsing. Raises `SignatureRefused` if no active secret fits, or if the
    time differs from `now_s`, by default the clock of this machine, by more than `tolerance_s`.
    """
    known = checked_secrets(secrets)
    found = FORM.fullmatch(header) if header else None
    if found is None:
        raise SignatureRefused(f"the header {HEADER} is missing or malformed")
    at_s = int(found[1])
    given = [each.removeprefix("v1=") for each in found[2].split(",") if each.startswith("v1=")]
    # Every pair is compared, so that the time which this takes says nothing about the secrets.
    fits = [hmac.compare_digest(_digest(body, secret, at_s), each) for secret in known for each in given]
    if not any(fits):
        raise SignatureRefused("the body is not signed with an active secret")
    age_s = (time.time() if now_s is None else now_s) - at_s
    if abs(age_s) > tolerance_s:
        raise SignatureRefused(f"the signature is {age_s:.0f} s old; the tolerance is {tolerance_s:.0f} s")
    return at_s


def _digest(body: bytes, secret: bytes, at_s: int) -> str:
    return hmac.new(secret, b"%d." % at_s + body, "sha256").hexdigest()

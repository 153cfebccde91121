"""A receiver accepts what a holder of an active secret has signed a short time ago, and nothing else."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from fencepost import InvalidInput
from fencepost.consumers.outbox import SignatureRefused, verify_signature
from fencepost.consumers.outbox.signatures import sign

OLD, NEW, OTHER = b"old-secret-old-secret", b"new-secret-new-secret", b"other-secret-other-secret"
BODY = b'{"id": 1}'
NOW_S = 1_763_362_800


def test_the_signature_is_the_hmac_of_time_and_body() -> None:
    digest = hmac.new(NEW, b"1763362800." + BODY, hashlib.sha256).hexdigest()
    assert sign(BODY, [NEW], at_s=NOW_S) == f"t=1763362800,v1={digest}"


@pytest.mark.parametrize("known", [[NEW], [OLD], [NEW, OLD], [OTHER, NEW], [NEW.decode()]])
def test_during_a_rotation_old_and_new_receivers_accept(known: list[str | bytes]) -> None:
    assert verify_signature(BODY, sign(BODY, [NEW, OLD], at_s=NOW_S), known, now_s=NOW_S) == NOW_S


def test_another_body_secret_or_time_is_refused() -> None:
    header = sign(BODY, [NEW], at_s=NOW_S)
    for body, given, known in [
        (BODY + b" ", header, NEW),
        (BODY, header, OTHER),
        (BODY, header.replace(str(NOW_S), str(NOW_S + 1)), NEW),
        (BODY, header.replace("v1=", "v2="), NEW),
    ]:
        with pytest.raises(SignatureRefused, match="active secret"):
            verify_signature(body, given, [known], now_s=NOW_S)


@pytest.mark.parametrize("off_s", [-301, 301])
def test_a_request_that_is_sent_again_much_later_is_refused(off_s: int) -> None:
    header = sign(BODY, [NEW], at_s=NOW_S)
    verify_signature(BODY, header, [NEW], now_s=NOW_S + 300)
    with pytest.raises(SignatureRefused, match="tolerance"):
        verify_signature(BODY, header, [NEW], now_s=NOW_S + off_s)
    verify_signature(BODY, header, [NEW], now_s=NOW_S + off_s, tolerance_s=1000)


@pytest.mark.parametrize("header", [None, "", "t=1", "v1=ab", "t=x,v1=ab", "t=1,v1=ä", "t=1,v1=" + "a" * 5000])
def test_a_malformed_header_is_refused(header: str | None) -> None:
    with pytest.raises(SignatureRefused, match="Fencepost-Signature"):
        verify_signature(BODY, header, [NEW])


@pytest.mark.parametrize("secrets", ["one-secret-one-secret", [], [b"short"], [NEW] * 6])
def test_secrets_are_a_list_of_long_ones(secrets: list[bytes]) -> None:
    with pytest.raises(InvalidInput, match="secrets"):
        verify_signature(BODY, "t=1,v1=ab", secrets)

"""The error codes of FoundationDB that the simulator raises, and what `on_error` makes of them."""

from __future__ import annotations

from typing import Final

TOO_OLD: Final = 1007
FUTURE_VERSION: Final = 1009
NOT_COMMITTED: Final = 1020
COMMIT_UNKNOWN_RESULT: Final = 1021
TRANSACTION_CANCELLED: Final = 1025
TRANSACTION_TIMED_OUT: Final = 1031
TOO_MANY_WATCHES: Final = 1032
WATCHES_DISABLED: Final = 1034
ACCESSED_UNREADABLE: Final = 1036
PROCESS_BEHIND: Final = 1037
DATABASE_LOCKED: Final = 1038
CLUSTER_VERSION_CHANGED: Final = 1039
COMMIT_PROXY_MEMORY_LIMIT: Final = 1042
BATCH_THROTTLED: Final = 1051
GRV_PROXY_MEMORY_LIMIT: Final = 1078
OPERATION_CANCELLED: Final = 1101
TAG_THROTTLED: Final = 1213
PROXY_TAG_THROTTLED: Final = 1223
MOVE_KEYS_RETRIES: Final = 1235  # of FoundationDB 7.3; from 7.4 on, a hot shard that is throttled
CLIENT_INVALID_OPERATION: Final = 2000
KEY_OUTSIDE_LEGAL_RANGE: Final = 2004
INVERTED_RANGE: Final = 2005
RANGE_LIMITS_INVALID: Final = 2012
FUTURE_NOT_SET: Final = 2015
USED_DURING_COMMIT: Final = 2017
NO_COMMIT_VERSION: Final = 2021
BLOCKED_FROM_NETWORK_THREAD: Final = 2026
TRANSACTION_TOO_LARGE: Final = 2101
KEY_TOO_LARGE: Final = 2102
VALUE_TOO_LARGE: Final = 2103

DESCRIPTIONS: Final = {
    TOO_OLD: "Transaction is too old to perform reads or be committed",
    FUTURE_VERSION: "Request for future version",
    NOT_COMMITTED: "Transaction not committed due to conflict with another transaction",
    COMMIT_UNKNOWN_RESULT: "Transaction may or may not have committed",
    TRANSACTION_CANCELLED: "Operation aborted because the transaction was cancelled",
    TRANSACTION_TIMED_OUT: "Operation aborted because the transaction timed out",
    TOO_MANY_WATCHES: "Too many watches currently set",
    WATCHES_DISABLED: "Watches cannot be set if read your writes is disabled",
    ACCESSED_UNREADABLE: "Read or wrote an unreadable key",
    PROCESS_BEHIND: "Storage process does not have recent mutations",
    DATABASE_LOCKED: "Database is locked",
    CLUSTER_VERSION_CHANGED: "Cluster has been upgraded to a new protocol version",
    COMMIT_PROXY_MEMORY_LIMIT: "CommitProxy commit memory limit exceeded",
    BATCH_THROTTLED: "Batch GRV request rate limit exceeded",
    GRV_PROXY_MEMORY_LIMIT: "GRV proxy memory limit exceeded",
    OPERATION_CANCELLED: "Asynchronous operation cancelled",
    TAG_THROTTLED: "Transaction tag is being throttled",
    PROXY_TAG_THROTTLED: "Transaction tag is being throttled at the proxy",
    MOVE_KEYS_RETRIES: "Too many retries to finish moving keys",
    CLIENT_INVALID_OPERATION: "Invalid API call",
    KEY_OUTSIDE_LEGAL_RANGE: "Key outside legal range",
    INVERTED_RANGE: "Range begin key larger than end key",
    RANGE_LIMITS_INVALID: "Range limits not valid",
    FUTURE_NOT_SET: "Future not ready",
    USED_DURING_COMMIT: "Operation issued while a commit was outstanding",
    BLOCKED_FROM_NETWORK_THREAD: "Detected a deadlock in a callback called from the network thread",
    NO_COMMIT_VERSION: "Transaction is read-only and therefore does not have a commit version",
    TRANSACTION_TOO_LARGE: "Transaction exceeds byte limit",
    KEY_TOO_LARGE: "Key length exceeds limit",
    VALUE_TOO_LARGE: "Value length exceeds limit",
}

# The cluster refuses work because it has too much of it. A client waits longer after these.
THROTTLED: Final = frozenset(
    {COMMIT_PROXY_MEMORY_LIMIT, BATCH_THROTTLED, GRV_PROXY_MEMORY_LIMIT, TAG_THROTTLED, PROXY_TAG_THROTTLED}
)

RETRYABLE: Final = THROTTLED | frozenset(
    {
        TOO_OLD,
        FUTURE_VERSION,
        NOT_COMMITTED,
        COMMIT_UNKNOWN_RESULT,
        PROCESS_BEHIND,
        DATABASE_LOCKED,
    }
)


class FDBError(Exception):
    """As `fdb.FDBError`, whose description is bytes, so that its text shows them as such."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    @property
    def description(self) -> bytes:
        return DESCRIPTIONS.get(self.code, "Unknown error").encode()

    def __str__(self) -> str:
        return f"{self.description!r} ({self.code})"

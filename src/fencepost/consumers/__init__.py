"""Consumers: handlers that follow the log, with checkpoints, leases, retries and dead letters."""

from .automations import Automation, Timer, automation, timers
from .checking import TypesChecked, Unreadable, check_types
from .control import dead_letters, discard, pause, repartition, replay, reset, resume, step
from .declaring import Consumer, Failures, consumer
from .errors import (
    CommandRefused,
    ConsumerError,
    ItemCancelled,
    LeaseLost,
    NoSuchConsumer,
    PartitionsDiffer,
    TargetRefused,
    WaitTimedOut,
)
from .observations import BatchHandled, HandlingFailed, HandlingGivenUp, LeadChanged, Stalled, TimerFired
from .reactions import Reaction
from .read_models import ReadModel
from .records import DeadLetter
from .running import Runner, run, run_async, start
from .status import ConsumerStatus, PartitionStatus, status
from .verifying import Drift, verify

__all__ = [
    "Automation",
    "BatchHandled",
    "CommandRefused",
    "Consumer",
    "ConsumerError",
    "ConsumerStatus",
    "DeadLetter",
    "Drift",
    "Failures",
    "HandlingFailed",
    "HandlingGivenUp",
    "ItemCancelled",
    "LeadChanged",
    "LeaseLost",
    "NoSuchConsumer",
    "PartitionStatus",
    "PartitionsDiffer",
    "Reaction",
    "ReadModel",
    "Runner",
    "Stalled",
    "TargetRefused",
    "Timer",
    "TimerFired",
    "TypesChecked",
    "Unreadable",
    "WaitTimedOut",
    "automation",
    "check_types",
    "consumer",
    "dead_letters",
    "discard",
    "pause",
    "repartition",
    "replay",
    "reset",
    "resume",
    "run",
    "run_async",
    "start",
    "status",
    "step",
    "timers",
    "verify",
]

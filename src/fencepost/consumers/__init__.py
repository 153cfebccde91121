"""Consumers: handlers that follow the log, with checkpoints, leases, retries and dead letters.

`__all__` is for programs. The names that are imported `as` themselves are for the server, Spark and the command alone.
"""

from .automations import Automation, Timer, automation, timers
from .builder import Builder as Builder
from .consumer_status import ConsumerStatus, PartitionStatus, status
from .control import dead_letter as dead_letter
from .control import dead_letters, discard, pause, repartition, replay, reset, resume, step
from .control_state import DeadLetter
from .declaration import Consumer, Failures, consumer
from .drift import Drift, verify
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
from .runner import Runner, run, run_async, start
from .type_check import MOST_FAILURES as MOST_FAILURES
from .type_check import Trial as Trial
from .type_check import TypesChecked, Unreadable, check_types
from .type_check import event_classes as event_classes

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

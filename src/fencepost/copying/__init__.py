"""Copy a log from one store to another, and check a store of any engine by reading it.

    parts      cuts a log into parts that one restore can take, by events and by bytes
    copying    `copy_log`: resumable, and verified by reading the target again and comparing digests
    checking   `check_log`: what can be checked through the interface of a store alone

Everything here works on `EventStore`, so it works for every engine, and for a store behind a server.
"""

from .checking import Checked, check_log
from .copying import Copied, copy_log
from .parts import AppendsUpto, Part, log_parts, no_collections

__all__ = ["AppendsUpto", "Checked", "Copied", "Part", "check_log", "copy_log", "log_parts", "no_collections"]

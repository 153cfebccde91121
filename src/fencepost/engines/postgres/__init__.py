"""The PostgreSQL engine: the same store, on the database that most teams already run.

The server keeps the log and judges the appends, in the functions of postgres.sql; this package carries
batches there and events back, keeps connections, and turns faults into errors with a name.
"""

try:
    import psycopg as psycopg
except ImportError as error:
    raise ImportError("PostgreSQL needs the extra 'postgres': pip install 'fencepost[postgres]'") from error

from .engine import PostgresEngine
from .install import install
from .load import load

__all__ = ["PostgresEngine", "install", "load"]

"""The same for Airflow 3: export the log, then refresh and verify beside each other, and audit at the end.

Copy this file into the folder of DAGs. The commands run in an environment with `fencepost[spark]`. Retries are
safe, because every step continues where the last attempt ended, and changes nothing if there is nothing to do. With
max_active_runs=1 no run waits for the locks of another one.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

STORE = "/data/wallet.db"
LAKE = "/data/wallet-lake"
VIEW = "/data/balances"

with DAG(
    "wallets",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(hours=1)},
) as dag:
    export = BashOperator(task_id="export", bash_command=f"fencepost lake export {STORE} {LAKE} --json")
    refresh = BashOperator(
        task_id="refresh", bash_command=f"python /opt/fencepost/examples/refresh_balances.py lake:{LAKE} {VIEW}"
    )
    verify = BashOperator(task_id="verify", bash_command=f"fencepost lake verify {LAKE} --json")
    # `audit` exits with 4 for a violation and with 5 if no condition was recorded: both fail the task.
    audit = BashOperator(task_id="audit", bash_command=f"fencepost audit lake:{LAKE} --json", retries=0)

    export >> [refresh, verify]
    verify >> audit

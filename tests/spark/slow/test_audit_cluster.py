"""The audit of a PostgreSQL store, run on a real cluster."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tests.spark.slow.conftest import Cluster
from tests.spark.test_auditing import fill
from tests.support.postgres import PostgresServer

import fencepost

pytestmark = pytest.mark.timeout(900)  # several JVMs start in each, which takes long on a busy machine

AUDIT = """
import sys
import fencepost.spark
from fencepost import Query
master, secret = sys.argv[1:]
spark = fencepost.spark.session(master, config={
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "700m", "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4", "spark.executor.cores": "1",
})
store = open(secret).read()
found = fencepost.spark.audit(spark, store)
print("checksums", found.checksums)
print("found", found.appends, found.covered, [(each.kind, each.position) for each in found.violations])
print("what if", fencepost.spark.what_if(spark, store, Query.of(tags={"wallet:*"})).conflicts)
"""


def test_a_planted_violation_is_found_on_a_cluster(cluster: Cluster, server: PostgresServer, tmp_path: Path) -> None:
    with fencepost.open(server.url(), schema="audited", create=True, record_conditions=True) as store:
        fill(store)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("UPDATE audited.event SET tags = '{wallet:a}' WHERE position = 5")
    (tmp_path / "address").write_text(f"{server.url()}?schema=audited")
    done = cluster.run(AUDIT, str(tmp_path / "address"))
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "found 10 10 [('condition', 7)]" in done.stdout
    assert "what if 1" in done.stdout
    assert "checksums of pages" in done.stdout

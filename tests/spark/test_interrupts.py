"""Ctrl-C at any moment: it ends what Spark does, and the session is none the worse for it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fencepost.spark.spark_session import interruptible, jobs_of


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """What stands before is back afterwards, whatever the test has interrupted."""
    before = signal.getsignal(signal.SIGINT)
    yield
    now = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert now == before


def interrupted_after(seconds: float, work: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        work()
    finally:
        timer.join()


def slow_job(spark: SparkSession) -> None:
    """Minutes, unless it is cancelled."""

    def crawl(number: int) -> int:
        time.sleep(60)
        return number

    spark.sparkContext.parallelize(range(4), 4).map(crawl).count()


def test_a_job_is_cancelled_and_the_session_lives(spark: SparkSession) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible(jobs_of(spark)):
        interrupted_after(1.5, lambda: slow_job(spark))
    assert time.monotonic() - began < 50
    assert spark.range(10).count() == 10


def test_between_short_calls_it_is_raised_once_and_no_call_is_hurt(spark: SparkSession) -> None:
    chance = random.Random(5)

    def chat() -> None:
        while True:
            assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
            time.sleep(0.002)

    for _ in range(20):
        with pytest.raises(KeyboardInterrupt), interruptible():
            interrupted_after(chance.uniform(0.0, 0.02), chat)
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    time.sleep(0.3)  # an interrupt that came a second time would come now


def test_one_that_is_caught_in_the_block_does_not_come_again_at_its_end(spark: SparkSession) -> None:
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            interrupted_after(0.1, lambda: time.sleep(5))
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_one_that_came_within_the_last_call_is_raised_at_the_end_of_the_block(spark: SparkSession) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        interrupted_after(0.2, lambda: spark._jvm.java.lang.Thread.sleep(1_000))
    assert spark.range(10).count() == 10


def test_what_fails_by_itself_fails_as_it_would(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="nowhere"), interruptible(jobs_of(spark)):
        spark.table("nowhere")


def test_what_another_handler_made_of_an_interrupt_is_one() -> None:
    def torn() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise Py4JError("Gateway must be connected to send cancel cmd.")  # noqa: B904

    with pytest.raises(KeyboardInterrupt), interruptible():
        torn()


def test_another_thread_is_left_alone(spark: SparkSession) -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with interruptible(jobs_of(spark)):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]

"""What follows the course subscriptions: a table of courses, and a waiting list that is offered seats by itself.

`courses` is a read model of the projection that the decisions use. `offering` is an automation: when the capacity of
a course grows, it decides whether the first student of the waiting list gets a seat. The decision and the consumer's
checkpoint are one append, so each change of capacity is reacted to exactly once, whatever crashes.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from examples.courses import (
    Capacity,
    CapacityChanged,
    Load,
    Refused,
    StudentSubscribed,
    Subscription,
    change_capacity,
    define_course,
    subscribe,
)

import fencepost
from fencepost import EventStore
from fencepost.consumers import Consumer, Reaction, ReadModel, consumer, start
from fencepost.decisions import Projection, Tag, decision, event, on


@event
class StudentWaits:
    course_id: Tag
    student_id: Tag


class WaitingList(Projection):
    """The students who wait for a seat of the course, in order."""

    course_id: Tag
    students: list[str] = []  # noqa: RUF012  made anew for each instance

    @on
    def _(self, event: StudentWaits) -> None:
        if event.student_id not in self.students:
            self.students.append(event.student_id)

    @on
    def _(self, event: StudentSubscribed) -> None:
        if event.student_id in self.students:
            self.students.remove(event.student_id)


@decision
def wait_for_seat(waiting: WaitingList, *, student_id: str) -> StudentWaits | None:
    return None if student_id in waiting.students else StudentWaits(waiting.course_id, student_id)


@decision
def give_seats(course: Capacity, waiting: WaitingList) -> list[StudentSubscribed]:
    free = max(0, course.capacity - course.taken)
    return [StudentSubscribed(course.course_id, student) for student in waiting.students[:free]]


@consumer("offering")
def offering(event: CapacityChanged, store: Reaction) -> None:
    give_seats(store, Capacity(event.course_id), WaitingList(event.course_id))


def consumers(views: str) -> tuple[ReadModel, Consumer]:
    """The consumers of this example, with the read model in the given SQLite file."""
    return ReadModel(Capacity, by="course_id", into=views, table="courses"), offering


def rows(views: str) -> list[tuple[str, int, int]]:
    connection = sqlite3.connect(views)
    try:
        return connection.execute("SELECT course_id, capacity, taken FROM courses ORDER BY course_id").fetchall()
    finally:
        connection.close()


def subscribe_or_wait(store: EventStore, course_id: str, student_id: str) -> None:
    try:
        subscribe(store, Capacity(course_id), Load(student_id), Subscription(course_id, student_id))
        print(f"{student_id} subscribed")
    except Refused as refusal:
        wait_for_seat(store, WaitingList(course_id), student_id=student_id)
        print(f"{student_id} waits: {refusal}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        views = str(Path(folder) / "views.db")
        courses, automation = consumers(views)
        with fencepost.open(Path(folder) / "courses.db") as store, start(store, courses, automation):
            define_course(store, Capacity("rust"), capacity=1)
            for student in ("ada", "bob"):
                subscribe_or_wait(store, "rust", student)
            courses.wait_for(store, store.head())
            print(rows(views))
            changed = change_capacity(store, Capacity("rust"), capacity=2)
            while store.checkpoint("offering") < changed.position:
                courses.wait_for(store, store.head())
            courses.wait_for(store, store.head())
            print(rows(views))


if __name__ == "__main__":
    main()

"""An event-sourced aggregate, for readers who know them: one entity, one boundary, one object.

A projection over all events of an entity is an aggregate: it has the state, its methods check the rules
and return events, and one decision runs any of the methods. The difference is that this boundary is a choice,
and can be narrowed later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fencepost
from fencepost.decisions import Projection, Tag, decision, event, on


@event
class CourseDefined:
    course_id: Tag
    title: str
    capacity: int


@event
class CourseRenamed:
    course_id: Tag
    title: str


@event
class StudentSubscribed:
    course_id: Tag
    student_id: Tag


class CourseFull(Exception):
    pass


class Course(Projection, snapshot_every=50):
    """The aggregate: what has happened to a course, and what may happen next."""

    course_id: Tag
    title: str = ""
    capacity: int = 0
    students: frozenset[str] = frozenset()

    @on
    def _(self, event: CourseDefined) -> None:
        self.title, self.capacity = event.title, event.capacity

    @on
    def _(self, event: CourseRenamed) -> None:
        self.title = event.title

    @on
    def _(self, event: StudentSubscribed) -> None:
        self.students |= {event.student_id}

    def define(self, title: str, capacity: int) -> CourseDefined:
        return CourseDefined(self.course_id, title, capacity)

    def rename(self, title: str) -> CourseRenamed | None:
        return None if title == self.title else CourseRenamed(self.course_id, title)

    def subscribe(self, student_id: str) -> StudentSubscribed | None:
        if student_id in self.students:
            return None
        if len(self.students) >= self.capacity:
            raise CourseFull(f"course {self.course_id!r} has its {self.capacity} students")
        return StudentSubscribed(self.course_id, student_id)


@decision
def change(course: Course, act: Callable[[Course], Any]) -> Any:
    """Load the course, let it act, save what it did: `change(store, Course("c1"), lambda c: c.rename("Rust"))`."""
    return act(course)


def main() -> None:
    with fencepost.open("memory:") as store:
        change(store, Course("c1"), lambda course: course.define("Rust", 1))
        for student in ("ada", "bob"):
            try:
                change(store, Course("c1"), lambda course, student=student: course.subscribe(student))
                print(f"{student} subscribed")
            except CourseFull as refusal:
                print(f"{student} was refused: {refusal}")


if __name__ == "__main__":
    main()

"""An event-sourced aggregate, for those who come from there: one entity, one boundary, one object.

Nothing is lost by having no aggregates: a projection over everything that happens to an entity is
one. It has the state, its methods hold the rules and return events, and a single decision runs
any of them. The difference is that this boundary is a choice here, and can be narrowed later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

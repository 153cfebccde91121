"""Course subscriptions: rules that span courses and students, in one decision.

A course has a capacity, a student takes at most ten courses, and no student subscribes to a course
twice. No single aggregate could check all three rules. Here each rule has its own projection, and the
decision conflicts only with events that one of the projections reads.
"""

from __future__ import annotations

import fencepost
from fencepost.decisions import Projection, Tag, decision, event, on

MAX_COURSES = 10


@event
class CourseDefined:
    course_id: Tag
    capacity: int


@event
class CapacityChanged:
    course_id: Tag
    capacity: int


@event
class StudentSubscribed:
    course_id: Tag
    student_id: Tag


class Refused(Exception):
    """The rules do not allow it; the message says why."""


class Capacity(Projection):
    """Whether there is such a course, for how many, and how many have come."""

    course_id: Tag
    defined: bool = False
    capacity: int = 0
    taken: int = 0

    @on
    def _(self, event: CourseDefined) -> None:
        self.defined, self.capacity = True, event.capacity

    @on
    def _(self, event: CapacityChanged) -> None:
        self.capacity = event.capacity

    @on
    def _(self, event: StudentSubscribed) -> None:
        self.taken += 1


class Load(Projection):
    """How many courses a student takes."""

    student_id: Tag
    courses: int = 0

    @on
    def _(self, event: StudentSubscribed) -> None:
        self.courses += 1


class Subscription(Projection):
    """Whether this student takes this course."""

    course_id: Tag
    student_id: Tag
    exists: bool = False

    @on
    def _(self, event: StudentSubscribed) -> None:
        self.exists = True


@decision
def define_course(course: Capacity, *, capacity: int) -> CourseDefined:
    if course.defined:
        raise Refused(f"course {course.course_id} is defined already")
    return CourseDefined(course.course_id, capacity)


@decision
def change_capacity(course: Capacity, *, capacity: int) -> CapacityChanged | None:
    if not course.defined:
        raise Refused(f"there is no course {course.course_id}")
    if capacity < course.taken:
        raise Refused(f"{course.taken} students have subscribed already")
    return None if capacity == course.capacity else CapacityChanged(course.course_id, capacity)


@decision
def subscribe(course: Capacity, load: Load, subscription: Subscription) -> StudentSubscribed:
    if not course.defined:
        raise Refused(f"there is no course {course.course_id}")
    if subscription.exists:
        raise Refused(f"{load.student_id} has subscribed to {course.course_id} already")
    if course.taken >= course.capacity:
        raise Refused(f"course {course.course_id} is full")
    if load.courses >= MAX_COURSES:
        raise Refused(f"{load.student_id} takes {load.courses} courses already")
    return StudentSubscribed(course.course_id, load.student_id)


def main() -> None:
    with fencepost.open("memory:") as store:
        define_course(store, Capacity("rust"), capacity=1)
        for student in ("ada", "ada", "bob"):
            try:
                subscribe(store, Capacity("rust"), Load(student), Subscription("rust", student))
                print(f"{student} subscribed")
            except Refused as refusal:
                print(f"{student} was refused: {refusal}")


if __name__ == "__main__":
    main()

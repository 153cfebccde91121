"""The examples of the catalogue: each rule as a sentence, and the races that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import fencepost
from examples import aggregate, courses, double_submission, invoices, opt_in, prices, usernames
from fencepost.decisions import project
from fencepost.testing import given

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return or raise, made at the same time."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


class TestCourses:
    DEFINED = courses.CourseDefined("c1", capacity=2)

    def subscribing(self, *events: object, student: str = "ada") -> Any:
        return given(*events).when(
            courses.subscribe,
            courses.Capacity("c1"),
            courses.Load(student),
            courses.Subscription("c1", student),
        )

    def test_a_student_subscribes(self) -> None:
        self.subscribing(self.DEFINED).then(courses.StudentSubscribed("c1", "ada"))

    def test_not_to_a_course_that_there_is_not(self) -> None:
        self.subscribing().then(courses.Refused("there is no course c1"))

    def test_not_twice(self) -> None:
        self.subscribing(self.DEFINED, courses.StudentSubscribed("c1", "ada")).then(
            courses.Refused("ada has subscribed to c1 already")
        )

    def test_not_when_it_is_full(self) -> None:
        others = [courses.StudentSubscribed("c1", name) for name in ("bob", "eve")]
        self.subscribing(self.DEFINED, others).then(courses.Refused("course c1 is full"))
        self.subscribing(self.DEFINED, others, courses.CapacityChanged("c1", 3)).then(
            courses.StudentSubscribed("c1", "ada")
        )

    def test_not_to_more_than_ten(self) -> None:
        ten = [courses.StudentSubscribed(f"other-{number}", "ada") for number in range(10)]
        self.subscribing(self.DEFINED, ten).then(courses.Refused("ada takes 10 courses already"))

    def test_a_course_is_defined_once(self) -> None:
        given().when(courses.define_course, courses.Capacity("c1"), capacity=2).then(self.DEFINED)
        given(self.DEFINED).when(courses.define_course, courses.Capacity("c1"), capacity=2).then(courses.Refused)

    def test_the_capacity_changes_but_not_below_what_is_taken(self) -> None:
        taken = [courses.StudentSubscribed("c1", name) for name in ("bob", "eve")]
        changing = courses.change_capacity, courses.Capacity("c1")
        given(self.DEFINED, taken).when(*changing, capacity=1).then(courses.Refused)
        given(self.DEFINED, taken).when(*changing, capacity=2).then_nothing()
        given(self.DEFINED, taken).when(*changing, capacity=3).then(courses.CapacityChanged("c1", 3))
        given().when(*changing, capacity=3).then(courses.Refused("there is no course c1"))

    def test_a_race_for_the_last_places_does_not_overbook(self, address: str) -> None:
        with fencepost.open(address) as store:
            courses.define_course(store, courses.Capacity("c1"), capacity=2)

            def subscribe(student: str) -> Callable[[], Any]:
                scope = courses.Capacity("c1"), courses.Load(student), courses.Subscription("c1", student)
                return lambda: courses.subscribe(store, *scope)

            outcomes = at_once(*(subscribe(f"student-{number}") for number in range(6)))
            assert sum(isinstance(outcome, courses.Refused) for outcome in outcomes) == 4
            assert project(store, courses.Capacity("c1")).taken == 2


class TestUsernames:
    def test_a_free_name_is_registered(self) -> None:
        given().when(usernames.register, usernames.Claim("ada")).then(usernames.AccountRegistered("ada"))

    def test_a_taken_one_is_not(self) -> None:
        given(usernames.AccountRegistered("ada")).when(usernames.register, usernames.Claim("ada")).then(
            usernames.UsernameTaken("ada")
        )

    def test_another_persons_name_does_not_matter(self) -> None:
        given(usernames.AccountRegistered("bob")).when(usernames.register, usernames.Claim("ada")).then(
            usernames.AccountRegistered("ada")
        )

    def test_a_name_that_was_given_up_is_free_after_some_days(self) -> None:
        history = given(usernames.AccountRegistered("ada")).at(NOON).and_(usernames.AccountClosed("ada"))
        soon, later = NOON + timedelta(days=2, hours=23), NOON + timedelta(days=3)
        history.at(soon).when(usernames.register, usernames.Claim("ada")).then(usernames.UsernameTaken)
        history.at(later).when(usernames.register, usernames.Claim("ada")).then(usernames.AccountRegistered("ada"))

    def test_closing_is_for_accounts_that_there_are(self) -> None:
        given().when(usernames.close, usernames.Claim("ada")).then_nothing()
        given(usernames.AccountRegistered("ada")).when(usernames.close, usernames.Claim("ada")).then(
            usernames.AccountClosed("ada")
        )

    def test_one_of_many_gets_the_name(self, address: str) -> None:
        with fencepost.open(address) as store:
            outcomes = at_once(*[lambda: usernames.register(store, usernames.Claim("ada"))] * 6)
            assert sum(isinstance(outcome, usernames.UsernameTaken) for outcome in outcomes) == 5


class TestInvoices:
    def test_numbers_count_from_1(self) -> None:
        given().when(invoices.issue, invoices.Numbers(), order_id="o1", amount=5).then(
            invoices.InvoiceIssued("o1", 1, 5)
        )
        given(invoices.InvoiceIssued("o1", 1, 5)).when(
            invoices.issue, invoices.Numbers(), order_id="o2", amount=6
        ).then(invoices.InvoiceIssued("o2", 2, 6))

    def test_an_order_has_one_invoice(self) -> None:
        earlier = invoices.InvoiceIssued("o1", 1, 5)
        given(earlier).when(invoices.issue, invoices.Numbers(), order_id="o1", amount=5).then_already(earlier)

    def test_a_race_leaves_no_gap_and_no_double(self, address: str) -> None:
        with fencepost.open(address) as store:

            def issue(order: int) -> Callable[[], Any]:
                return lambda: invoices.issue(store, invoices.Numbers(), order_id=f"o{order}", amount=1)

            outcomes = at_once(*(issue(order) for order in range(8)))
            assert sorted(outcome.event.number for outcome in outcomes) == list(range(1, 9))


class TestOptIn:
    REQUESTED = opt_in.SignUpRequested("ada@example.org", "t1", "Ada", NOON)

    def confirming(self, *events: object, after: timedelta = timedelta()) -> Any:
        return given(*events).at(NOON + after).when(opt_in.confirm_sign_up, opt_in.Token("t1"))

    def test_a_sign_up_is_requested(self) -> None:
        given().at(NOON).when(opt_in.request_sign_up, email="ada@example.org", name="Ada", token="t1").then(
            self.REQUESTED
        )

    def test_its_token_confirms_it(self) -> None:
        confirmed = opt_in.SignUpConfirmed("ada@example.org", "t1", "Ada")
        self.confirming(self.REQUESTED, after=timedelta(minutes=60)).then(confirmed)

    def test_but_not_too_late(self) -> None:
        late = timedelta(minutes=60, seconds=1)
        self.confirming(self.REQUESTED, after=late).then(opt_in.TokenInvalid("the token is too old; sign up again"))

    def test_nor_twice(self) -> None:
        confirmed = opt_in.SignUpConfirmed("ada@example.org", "t1", "Ada")
        self.confirming(self.REQUESTED, confirmed).then(opt_in.TokenInvalid("the sign-up was confirmed already"))

    def test_nor_with_another_token(self) -> None:
        other = opt_in.SignUpRequested("ada@example.org", "t2", "Ada", NOON)
        self.confirming(other).then(opt_in.TokenInvalid("no sign-up has this token"))


class TestPrices:
    def ordering(self, history: Any, **displayed: int) -> Any:
        products = [prices.Prices(name) for name in displayed]
        return history.when(prices.order, products, order_id="o1", displayed=displayed)

    def test_the_price_on_display_is_paid(self) -> None:
        self.ordering(given(prices.PriceSet("tea", 3), prices.PriceSet("cup", 8)), tea=3, cup=8).then(
            prices.ProductsOrdered("o1", ["tea", "cup"], 11)
        )

    def test_another_price_is_not(self) -> None:
        history = given(prices.PriceSet("tea", 3), prices.PriceSet("cup", 8))
        self.ordering(history, tea=3, cup=7).then(prices.PriceInvalid("cup", 7))
        self.ordering(given(), tea=3).then(prices.PriceInvalid("tea", 3))

    def test_the_former_price_is_good_for_a_while(self) -> None:
        history = given(prices.PriceSet("tea", 3)).at(NOON).and_(prices.PriceSet("tea", 4))
        self.ordering(history.at(NOON + timedelta(minutes=10)), tea=3).then(prices.ProductsOrdered("o1", ["tea"], 3))
        self.ordering(history.at(NOON + timedelta(minutes=11)), tea=3).then(prices.PriceInvalid)
        self.ordering(history.at(NOON + timedelta(minutes=11)), tea=4).then(prices.ProductsOrdered("o1", ["tea"], 4))

    def test_a_price_that_stays_is_not_set_again(self) -> None:
        given(prices.PriceSet("tea", 3)).when(prices.set_price, prices.Prices("tea"), price=3).then_nothing()
        given(prices.PriceSet("tea", 3)).when(prices.set_price, prices.Prices("tea"), price=4).then(
            prices.PriceSet("tea", 4)
        )


class TestDoubleSubmission:
    PLACED = double_submission.OrderPlaced("o1", "form-1", ("tea",))

    def test_the_first_submission_orders(self) -> None:
        given().when(double_submission.place_order, order_id="o1", form_token="form-1", items=("tea",)).then(
            self.PLACED
        )

    def test_the_second_gets_the_first_order(self) -> None:
        given(self.PLACED).when(
            double_submission.place_order, order_id="o2", form_token="form-1", items=("tea",)
        ).then_already(self.PLACED)

    def test_nothing_is_no_order(self) -> None:
        given().when(double_submission.place_order, order_id="o1", form_token="form-1", items=()).then(ValueError)

    def test_both_at_once_order_once(self, address: str) -> None:
        with fencepost.open(address) as store:

            def submit(number: int) -> Callable[[], Any]:
                return lambda: double_submission.place_order(
                    store, order_id=f"o{number}", form_token="form-1", items=("tea",)
                )

            outcomes = at_once(*(submit(number) for number in range(6)))
            assert len({outcome.event.order_id for outcome in outcomes}) == 1
            assert store.head() == 1


class TestAggregate:
    def test_it_acts_and_is_changed(self, address: str) -> None:
        course = aggregate.Course("c1")
        with fencepost.open(address) as store:
            aggregate.change(store, course, lambda course: course.define("Python", 2))
            aggregate.change(store, course, lambda course: course.rename("Rust"))
            for student in ("ada", "bob", "ada"):
                aggregate.change(store, course, lambda course, student=student: course.subscribe(student))
            with pytest.raises(aggregate.CourseFull):
                aggregate.change(store, course, lambda course: course.subscribe("eve"))
            now = project(store, course)
            assert (now.title, now.students, now.position) == ("Rust", {"ada", "bob"}, 4)
            assert store.head() == 4

"""The real `umadb` client gets the same answers from this server as from UmaDB's own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

handler = signal.getsignal(signal.SIGINT)
import umadb  # noqa: E402

signal.signal(signal.SIGINT, handler)  # importing umadb replaces it

from tests.support.thorough import times  # noqa: E402

from fencepost import InvalidInput, SequencedEvent  # noqa: E402
from fencepost.server.umadb import mapping  # noqa: E402
from fencepost.server.umadb import protobuf as messages  # noqa: E402

from .running import STARTS_S, RunningServer, free_port  # noqa: E402

BOTH = ["fencepost", "umadb"]
NIL = UUID(int=0)


@pytest.fixture(params=BOTH)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[umadb.Client]:
    port = free_port()
    if request.param == "fencepost":
        with RunningServer(str(tmp_path / "log.db"), grpc_port=port):
            yield connected(port)
        return
    command = [Path(sys.executable).with_name("umadb"), "--listen", f"127.0.0.1:{port}", "--db-path", tmp_path / "uma"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield connected(port)
    finally:
        server.terminate()
        server.wait(STARTS_S)


def connected(port: int) -> umadb.Client:
    deadline = time.monotonic() + STARTS_S
    while True:
        try:
            client = umadb.Client(f"http://127.0.0.1:{port}")
            client.head()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return client


def event(type: str = "T", *tags: str, data: bytes = b"d", **more: Any) -> umadb.Event:
    return umadb.Event(event_type=type, data=data, tags=list(tags), **more)


def query(*items: tuple[list[str], list[str]]) -> umadb.Query:
    return umadb.Query(items=[umadb.QueryItem(types=types, tags=tags) for types, tags in items])


def shown(found: umadb.SequencedEvent) -> tuple[Any, ...]:
    one = found.event
    tracked = found.tracking_info
    tracking = None if tracked is None else (tracked.source, tracked.position)
    return (
        found.position,
        one.event_type,
        bytes(one.data),
        sorted(one.tags),
        one.uuid,
        sorted(one.metadata.items()),
        tracking,
    )


def read(client: umadb.Client, *args: Any, **options: Any) -> list[tuple[Any, ...]]:
    return [shown(found) for found in client.read(*args, **options)]


def positions(client: umadb.Client, *args: Any, **options: Any) -> list[int]:
    return [found.position for found in client.read(*args, **options)]


def test_an_empty_store_has_no_head(client: umadb.Client) -> None:
    assert client.head() is None
    assert read(client) == []


def test_events_are_appended_and_read_back(client: umadb.Client) -> None:
    id = UUID(int=7)
    metadata = {"z": "1", "a": "2", "m": ""}
    assert client.append([event("A", "x", data=b"\x00\xff"), event("B", "y", "x", uuid=id, metadata=metadata)]) == 2
    assert read(client) == [
        (1, "A", b"\x00\xff", ["x"], None, [], None),
        (2, "B", b"d", ["x", "y"], id, [("a", "2"), ("m", ""), ("z", "1")], None),
    ]
    assert client.head() == 2


def test_no_events_are_appended_at_position_0(client: umadb.Client) -> None:
    assert client.append([]) == 0
    assert client.head() is None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [1, 2, 3]),
        (query(), [1, 2, 3]),
        (query(([], [])), [1, 2, 3]),
        (query((["A"], [])), [1, 3]),
        (query(([], ["x"])), [1, 2]),
        (query((["A"], ["x"])), [1]),
        (query(([], ["x", "y"])), [2]),
        (query((["B"], []), ([], ["z"])), [2, 3]),
        (query((["C"], [])), []),
    ],
)
def test_a_query_finds_the_same_events(client: umadb.Client, asked: Any, expected: list[int]) -> None:
    client.append([event("A", "x"), event("B", "x", "y"), event("A", "z")])
    assert positions(client, asked) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": 1}, [1, 2, 3, 4, 5]),
        ({"start": 3}, [3, 4, 5]),
        ({"start": 6}, []),
        ({"limit": 2}, [1, 2]),
        ({"start": 2, "limit": 2}, [2, 3]),
        ({"backwards": True}, [5, 4, 3, 2, 1]),
        ({"backwards": True, "limit": 2}, [5, 4]),
        ({"backwards": True, "start": 3}, [3, 2, 1]),
        ({"backwards": True, "start": 3, "limit": 1}, [3]),
        ({"limit": 0}, []),
    ],
)
def test_a_reading_starts_and_ends_at_the_same_positions(
    client: umadb.Client, options: dict[str, Any], expected: list[int]
) -> None:
    client.append([event() for _ in range(5)])
    assert positions(client, **options) == expected


@pytest.mark.parametrize("options", [{}, {"limit": 2}, {"start": 4}, {"limit": 10}])
def test_a_reading_tells_the_head(client: umadb.Client, options: dict[str, Any]) -> None:
    client.append([event("A") for _ in range(5)])
    _, head = client.read(**options).collect_with_head()
    expected = {(): 5, ("limit",): min(options.get("limit", 5), 5), ("start",): 5}
    assert head == expected[tuple(options)]


def test_a_large_reading_arrives_whole(client: umadb.Client) -> None:
    for _ in range(5):
        client.append([event(data=b"x" * 100) for _ in range(1_000)])
    assert positions(client) == list(range(1, 5_001))


def test_a_failed_condition_is_an_integrity_error(client: umadb.Client) -> None:
    client.append([event("A", "x")])
    condition = umadb.AppendCondition(query((["A"], ["x"])))
    with pytest.raises(umadb.IntegrityError):
        client.append([event("A", "x")], condition)
    with pytest.raises(umadb.IntegrityError):
        client.append([event("A", "x")], umadb.AppendCondition(query()))
    assert client.append([event("A", "x")], umadb.AppendCondition(query((["A"], ["x"])), after=1)) == 2
    assert client.append([event("A", "x")], umadb.AppendCondition(query((["B"], ["x"])))) == 3
    assert client.head() == 3


def test_a_repeated_append_with_the_same_uuids_returns_the_first_position(client: umadb.Client) -> None:
    events = [event("A", "x", uuid=UUID(int=number)) for number in (1, 2)]
    condition = umadb.AppendCondition(query(([], ["x"])))
    assert client.append(events, condition) == 2
    assert client.append(events, condition) == 2
    assert client.head() == 2
    with pytest.raises(umadb.IntegrityError):
        client.append([event("A", "x", uuid=UUID(int=3))], condition)


def test_tracking_is_kept_and_must_grow(client: umadb.Client) -> None:
    assert client.get_tracking_info("upstream") is None
    client.append([event()], None, umadb.TrackingInfo("upstream", 7))
    assert client.get_tracking_info("upstream") == 7
    for position in (7, 3):
        with pytest.raises(umadb.IntegrityError):
            client.append([event()], None, umadb.TrackingInfo("upstream", position))
    client.append([event()], None, umadb.TrackingInfo("upstream", 8))
    assert client.get_tracking_info("upstream") == 8
    assert client.get_tracking_info("other") is None
    assert [found[-1] for found in read(client)] == [("upstream", 7), ("upstream", 8)]


def test_tracking_is_kept_without_events_and_may_begin_at_0(client: umadb.Client) -> None:
    assert client.append([], None, umadb.TrackingInfo("upstream", 0)) == 0
    assert client.get_tracking_info("upstream") == 0
    with pytest.raises(umadb.IntegrityError):
        client.append([], None, umadb.TrackingInfo("upstream", 0))
    assert client.append([], None, umadb.TrackingInfo("upstream", 5)) == 0
    assert client.get_tracking_info("upstream") == 5
    assert client.head() is None


def test_the_nil_uuid_means_no_id(client: umadb.Client) -> None:
    assert [client.append([event("T", uuid=NIL)]) for _ in range(3)] == [1, 2, 3]
    assert client.append([event("U", uuid=UUID(int=9)), event("U", uuid=NIL)]) == 5
    assert [found.event.uuid for found in client.read()] == [NIL, NIL, NIL, UUID(int=9), NIL]


def test_tags_come_back_in_the_order_in_which_they_were_sent(client: umadb.Client) -> None:
    sent = [["b", "a"], ["a", "b"], ["z", "a", "z"], [], ["m"]]
    client.append([event("T", *tags) for tags in sent])
    assert [found.event.tags for found in client.read()] == sent
    assert [found.event.tags for found in islice(client.subscribe(), 5)] == sent
    assert positions(client, query(([], ["a", "z"]))) == [3]


def test_a_subscription_begins_on_a_store_in_which_nothing_happens(client: umadb.Client) -> None:
    begun: list[Any] = []
    thread = threading.Thread(target=lambda: begun.append(client.subscribe(query((["never"], [])))), daemon=True)
    thread.start()
    thread.join(STARTS_S)
    assert begun
    begun[0].cancel()


def test_a_subscription_gives_the_past_and_each_new_event(client: umadb.Client) -> None:
    client.append([event("A"), event("B"), event("A")])
    subscription = client.subscribe(query((["A"], [])), after=1)
    assert next(subscription).position == 3
    client.append([event("B"), event("A")])
    assert next(subscription).position == 5
    subscription.cancel()


def test_many_events_arrive_by_subscription_in_order(client: umadb.Client) -> None:
    client.append([event() for _ in range(3_000)])
    assert [found.position for found in islice(client.subscribe(), 3_000)] == list(range(1, 3_001))


def test_the_server_is_healthy(client: umadb.Client) -> None:
    assert client.check_health() == umadb.ServingStatus.SERVING
    assert client.check_health("umadb.v1.DCB") == umadb.ServingStatus.SERVING
    watch = client.watch_health()
    assert next(watch) == umadb.ServingStatus.SERVING
    watch.cancel()


@pytest.mark.parametrize(
    "refused",
    [
        lambda client: client.append([event("")]),
        lambda client: client.append([event("T", "")]),
        lambda client: client.append([event("T", *(f"t{number}" for number in range(21)))]),
        lambda client: client.append([event("T" * 2_000)]),
        lambda client: client.append([event(data=b"x" * 2_000_000)]),
        lambda client: client.append([event(metadata={"a": "x" * 20_000})]),
        lambda client: client.append([event()], None, umadb.TrackingInfo("s" * 256, 1)),
    ],
)
def test_what_our_limits_refuse_changes_nothing(tmp_path: Path, refused: Callable[[umadb.Client], Any]) -> None:
    port = free_port()
    with RunningServer(str(tmp_path / "log.db"), grpc_port=port):
        client = connected(port)
        with pytest.raises(Exception, match=r"limit|allowed|bytes"):
            refused(client)
        assert client.head() is None


def test_metadata_keeps_its_order_and_a_key_twice_is_refused() -> None:
    given = messages.Event(event_type="T", metadata=[messages.MetadataEntry(key=key, value="v") for key in "zam"])
    (stored,) = mapping.events_from([given], None)
    response = messages.ReadResponse()
    mapping.add_events(response, [SequencedEvent(1, "T", stored.tags, b"", 0, None, stored.metadata)])
    assert [entry.key for entry in response.events[0].event.metadata] == ["z", "a", "m"]
    given.metadata.append(messages.MetadataEntry(key="z", value="again"))
    with pytest.raises(InvalidInput, match="twice"):
        mapping.events_from([given], None)


def test_the_old_name_of_the_service_is_answered(tmp_path: Path) -> None:
    port = free_port()
    with RunningServer(str(tmp_path / "log.db"), grpc_port=port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            "/umadb.UmaDBService/Append",
            request_serializer=messages.AppendRequest.SerializeToString,
            response_deserializer=messages.AppendResponse.FromString,
        )
        request = messages.AppendRequest(events=[messages.Event(event_type="T")])
        assert call(request, timeout=20).position == 1


def test_an_error_carries_its_kind_in_the_status_details(tmp_path: Path) -> None:
    port = free_port()
    with RunningServer(str(tmp_path / "log.db"), grpc_port=port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream(
            "/umadb.v1.DCB/Read",
            request_serializer=messages.ReadRequest.SerializeToString,
            response_deserializer=messages.ReadResponse.FromString,
        )
        with pytest.raises(grpc.RpcError) as refused:
            list(call(messages.ReadRequest(subscribe=True), timeout=20))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        details = dict(refused.value.trailing_metadata())["grpc-status-details-bin"]
        assert messages.ErrorResponse.FromString(details).error_type == 6


calls = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(
            st.tuples(
                st.sampled_from("ABC"),
                st.lists(st.sampled_from("xyz"), max_size=3),
                st.sampled_from([None, NIL]),
                st.dictionaries(st.sampled_from("km"), st.sampled_from(["", "v"]), max_size=2),
            ),
            min_size=1,
            max_size=3,
        ),
        st.none() | st.tuples(st.sampled_from("ABCQ"), st.lists(st.sampled_from("xyz"), max_size=2), st.integers(0, 9)),
        st.none() | st.tuples(st.sampled_from(["s", "t"]), st.integers(0, 6)),
    ),
    st.tuples(
        st.just("read"),
        st.lists(
            st.tuples(st.lists(st.sampled_from("ABC"), max_size=2), st.lists(st.sampled_from("xyz"), max_size=2)),
            max_size=2,
        ),
        st.none() | st.integers(0, 9),
        st.none() | st.integers(0, 5),
        st.booleans(),
    ),
    st.tuples(st.just("track"), st.sampled_from(["s", "t"]), st.none() | st.integers(0, 6)),
)


def called(client: umadb.Client, call: tuple[Any, ...]) -> Any:
    """What the client gets, with the kind of an error in place of its text."""
    try:
        if call[0] == "append":
            _, given, condition, tracking = call
            if condition is not None:  # for UmaDB, an append with the nil UUID repeats a conflicting one that has it
                given = [(type, tags, None, metadata) for type, tags, _, metadata in given]
            events = [event(type, *tags, uuid=uuid, metadata=metadata) for type, tags, uuid, metadata in given]
            return client.append(
                events,
                condition and umadb.AppendCondition(query(([condition[0]], condition[1])), after=condition[2]),
                tracking and umadb.TrackingInfo(*tracking),
            )
        if call[0] == "track":
            if call[2] is not None:
                client.append([], None, umadb.TrackingInfo(*call[1:]))
            return client.get_tracking_info(call[1]), client.head()
        _, items, start, limit, backwards = call
        reading = client.read(query(*items), start=start, limit=limit, backwards=backwards)
        events, head = reading.collect_with_head()
        return [(*shown(each), each.event.tags) for each in events], head
    except umadb.IntegrityError:
        return "integrity"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[umadb.Client]]:
    folder = tmp_path_factory.mktemp("umadb")
    ours, theirs = free_port(), free_port()
    command = [Path(sys.executable).with_name("umadb"), "--listen", f"127.0.0.1:{theirs}", "--db-path", folder / "uma"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with RunningServer("memory:", grpc_port=ours):
            yield [connected(ours), connected(theirs)]
    finally:
        process.terminate()
        process.wait(STARTS_S)


@settings(max_examples=times(15, 300), deadline=None)
@given(st.lists(calls, min_size=1, max_size=12))
def test_random_calls_get_the_same_answers_as_from_umadb(servers: list[umadb.Client], made: list[Any]) -> None:
    """The examples share one store at each server, so later ones find what earlier ones stored, at both alike."""
    for call in made:
        ours, theirs = [called(client, call) for client in servers]
        assert ours == theirs, call

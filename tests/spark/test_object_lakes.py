"""Lakes in an object store, on a mock of S3.

Spark's tasks are plain calls here; slow/test_object_lakes_on_spark.py has Spark.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import from_url
from tests.cli.conftest import Cli
from tests.cli.conftest import cli as cli
from tests.spark.conftest import stored
from tests.support.mock_s3 import MockS3, mock_s3
from tests.support.processes import same_path

import fencepost
from fencepost import AppendCondition, Event, InvalidInput, Query, StoreError, StoreUnavailable
from fencepost.engines.lake import segments
from fencepost.engines.lake.entries import LakeFile
from fencepost.engines.lake.files import existing_manifest, strays, write_lake_manifest
from fencepost.engines.lake.paths import storage_of
from fencepost.spark import lake
from fencepost.spark.lake import compacting, exporting, verifying
from fencepost.storage import objects
from fencepost.storage.objects import Objects

URL = "s3://bucket/lakes/wallet"
MANIFEST = "bucket/lakes/wallet/manifest.json"
NO_SPARK: Any = None


def here(spark: Any, inputs: Sequence[Any], work: Callable[[Any], LakeFile]) -> list[LakeFile]:
    """The tasks of a round, in this process."""
    return [work(each) for each in inputs]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockS3]:
    for module in (exporting, compacting, verifying):
        monkeypatch.setattr(module, "on_spark", here)
    with mock_s3() as mock:
        for name, value in mock.environment.items():
            monkeypatch.setenv(name, value)
        yield mock


def export(log: str, **options: Any) -> lake.Exported:
    return lake.export(NO_SPARK, log, URL, **{"chunk": 200, **options})


def test_the_mock_decides_conditions_as_s3_does(s3: MockS3) -> None:
    store = from_url("s3://bucket/x", client_options={"allow_http": True})
    first = obstore.put(store, "m", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "m", b"2", mode="create")
    obstore.put(store, "m", b"3", mode={"e_tag": first["e_tag"]})
    for name in ("m", "missing"):
        with pytest.raises(PreconditionError):
            obstore.put(store, name, b"4", mode={"e_tag": first["e_tag"]})
    assert s3.objects["bucket/x/m"].content == b"3"


def test_exports_hold_the_log_row_by_row(s3: MockS3, log: str, cli: Cli, tmp_path: Any) -> None:
    with fencepost.open(log, record_conditions=True) as store:
        assert export(log) == lake.Exported(3, 511, 511)
        store.append([Event("Late", tags={"wallet:w3"})], AppendCondition(Query.of(tags={"none"})))
        assert export(log) == lake.Exported(1, 1, 512)
        assert export(log) == lake.Exported(0, 0, 512)
        query = Query.of(tags={"wallet:w3"})
        with fencepost.open("lake:s3a://bucket/lakes/wallet/") as kept:
            assert list(kept.read()) == list(store.read())
            assert list(kept.read(query, after=150, upto=512)) == list(store.read(query, after=150, upto=512))
            assert list(kept.recorded()) == list(store.recorded())
            with pytest.raises(StoreError, match="read-only"):
                kept.append([Event("A")])
    assert lake.verify(NO_SPARK, URL) == []
    with fencepost.open(str(tmp_path / "restored.db")) as restored:
        lake.restore(URL, restored)
        assert list(restored.read()) == stored(log)
    assert cli("copy", f"lake:{URL}", str(tmp_path / "copied.db")).lines[0]["verified"]
    assert stored(str(tmp_path / "copied.db")) == stored(log)


@pytest.mark.parametrize(("how", "said"), [("flipped", "SHA-256"), ("short", "bytes, and"), ("missing", "missing")])
def test_verify_finds_damage(s3: MockS3, log: str, how: str, said: str) -> None:
    export(log)
    path = existing_manifest(URL).files[1].path
    kept = s3.objects[f"bucket/lakes/wallet/{path}"]
    middle = len(kept.content) // 2
    if how == "missing":
        del s3.objects[f"bucket/lakes/wallet/{path}"]
    elif how == "short":
        kept.content = kept.content[:-1]
    else:
        kept.content = kept.content[:middle] + bytes([kept.content[middle] ^ 1]) + kept.content[middle + 1 :]
    (problem,) = lake.verify(NO_SPARK, URL)
    assert problem.startswith(path)
    assert said in problem
    with fencepost.open("memory:") as store, pytest.raises(fencepost.StoreCorrupt):
        lake.restore(URL, store)


def held_commit(s3: MockS3, work: Callable[[], Any], meanwhile: Callable[[], Any]) -> Any:
    """The result of `work`, whose next put of the manifest is held back until `meanwhile` was done."""
    arrived, release, holder = threading.Event(), threading.Event(), list[int]()

    def before(method: str, key: str) -> None:
        if (method, key) == ("PUT", MANIFEST) and not holder:
            holder.append(1)
            arrived.set()
            release.wait()

    with ThreadPoolExecutor(1) as pool:
        s3.before = before
        result = pool.submit(work)
        try:
            assert arrived.wait(60), "the manifest was never written"
            meanwhile()
        finally:
            release.set()
        return result.result()


def test_of_two_exports_one_commits_and_the_other_reports_it(
    s3: MockS3, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PATIENCE_S", 0.0)
    export(log, upto=100)
    done = []
    with pytest.raises(StoreUnavailable, match=f"{URL}: another process is exporting into this lake"):
        held_commit(s3, lambda: export(log), lambda: done.append(export(log)))
    assert done == [lake.Exported(3, 411, 511)]
    assert lake.verify(NO_SPARK, URL) == []
    assert len(strays(storage_of(URL), existing_manifest(URL))) == 3, "the files of the one that lost"


def test_an_export_that_lost_looks_again_and_finds_nothing_to_do(s3: MockS3, log: str) -> None:
    export(log, upto=100)
    assert held_commit(s3, lambda: export(log), lambda: export(log)) == lake.Exported(0, 0, 511)
    with fencepost.open(f"lake:{URL}") as kept:
        assert list(kept.read()) == stored(log)


def test_a_live_export_whose_files_were_removed_never_commits_them(s3: MockS3, log: str) -> None:
    """`retain_s=0` removes at once what the manifest does not list, also the files of an export that is alive."""
    export(log, upto=100)

    def remove() -> None:
        assert strays(storage_of(URL), existing_manifest(URL))
        lake.compact(NO_SPARK, URL, retain_s=0)
        assert strays(storage_of(URL), existing_manifest(URL)) == []

    assert held_commit(s3, lambda: export(log), remove) == lake.Exported(3, 411, 511), "it wrote them again"
    assert lake.verify(NO_SPARK, URL) == []


def test_the_files_of_a_live_export_stay_for_an_hour(s3: MockS3, log: str) -> None:
    export(log, upto=100)
    found = []

    def meanwhile() -> None:
        lake.compact(NO_SPARK, URL)
        found.extend(strays(storage_of(URL), existing_manifest(URL)))
        assert lake.verify(NO_SPARK, URL) == []

    assert held_commit(s3, lambda: export(log), meanwhile) == lake.Exported(3, 411, 511)
    assert len(found) == 3


KILLED = """
import os, signal, sys
import obstore
from tests.spark.test_object_lakes import URL, export, here
from fencepost.spark.lake import compacting, exporting
exporting.on_spark = compacting.on_spark = here
put = obstore.put
def killing(store, path, *args, **options):
    if path == "manifest.json":
        os.kill(os.getpid(), signal.SIGKILL)
    return put(store, path, *args, **options)
obstore.put = killing
export(sys.argv[1])
"""


def test_an_export_that_is_killed_before_its_commit_changes_nothing(s3: MockS3, log: str) -> None:
    export(log, upto=100)
    before = existing_manifest(URL)
    killed = subprocess.run([sys.executable, "-c", KILLED, log], env=same_path(), capture_output=True, timeout=240)
    assert killed.returncode == -9, killed.stderr
    assert existing_manifest(URL) == before
    left = strays(storage_of(URL), before)
    assert len(left) == 3
    for key in s3.keys("/events/"):
        s3.objects[key].written_s -= 7_200
    assert [problem.partition(":")[0] for problem in lake.verify(NO_SPARK, URL)] == left
    assert export(log) == lake.Exported(3, 411, 511)
    assert strays(storage_of(URL), existing_manifest(URL)) == []
    assert lake.verify(NO_SPARK, URL) == []


def test_a_reader_of_an_older_manifest_is_not_disturbed_by_a_compaction(s3: MockS3, log: str) -> None:
    for upto in (100, 200, 300):
        export(log, upto=upto, compact=False)
    with fencepost.open(f"lake:{URL}") as kept:
        reading = iter(kept.read())
        begun = [next(reading)]
        assert lake.compact(NO_SPARK, URL, chunk=300) == lake.Compacted(3, 1)
        assert begun + list(reading) == stored(log)[:300]
        assert list(kept.read()) == stored(log)[:300]
    assert len(s3.keys("/events/")) == 4
    assert lake.compact(NO_SPARK, URL, chunk=300, retain_s=0) == lake.Compacted(1, 1)
    assert len(s3.keys("/events/")) == 1
    assert s3.keys("/retired/") == []
    assert lake.verify(NO_SPARK, URL) == []


def test_a_commit_whose_answer_was_lost_is_recognised(s3: MockS3, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends the request again, and the store answers that the condition does not hold any more."""
    put_if = Objects._put_if

    def twice(self: Objects, *arguments: Any) -> Any:
        put_if(self, *arguments)
        return put_if(self, *arguments)

    export(log, upto=100)
    monkeypatch.setattr(exporting, "PATIENCE_S", 0.0)
    monkeypatch.setattr(Objects, "_put_if", twice)
    assert export(log) == lake.Exported(3, 411, 511)


def test_a_store_that_ignores_conditions_is_refused(s3: MockS3, log: str) -> None:
    s3.ignores_conditions = True
    with pytest.raises(StoreError, match="ignores the headers If-Match"):
        export(log)
    assert s3.keys() == []


def test_a_large_file_is_sent_in_parts(s3: MockS3, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 1_024)
    export(log)
    assert ("POST", f"bucket/lakes/wallet/{existing_manifest(URL).files[0].path}") in s3.requests
    assert lake.verify(NO_SPARK, URL) == []


def test_a_long_list_of_files_has_segments(s3: MockS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_FILES", 4)
    monkeypatch.setattr(segments, "OPEN_FILES", 2)
    files = tuple(
        LakeFile(path=f"{at}", after=at, upto=at + 1, first=at + 1, last=at + 1, rows=1, bytes=0, sha256="")
        for at in range(9)
    )
    manifest = write_lake_manifest(storage_of(URL), fencepost.engines.lake.entries.LakeManifest(files=files[:6]))
    write_lake_manifest(storage_of(URL), msgspec.structs.replace(manifest, files=files))
    found = existing_manifest(URL)
    assert (found.files, len(found.segments)) == (files, 1)


def test_a_lake_that_cannot_be_reached_or_does_not_exist(s3: MockS3, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnavailable, match="no such lake"):
        fencepost.open("lake:s3://bucket/other")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(objects, "RETRY_S", 0.0)
    with pytest.raises(StoreUnavailable, match=r"^s3://bucket/other/manifest\.json: "):
        fencepost.open("lake:s3://bucket/other")


def test_no_secret_leaves_the_process(s3: MockS3) -> None:
    storage = storage_of(URL)
    assert storage.read_manifest() is None
    for secret in (b"hunter2", b"S3Store"):
        assert secret not in pickle.dumps(storage), "the client of this process, with its credentials"
    assert pickle.loads(pickle.dumps(storage)) == storage
    assert "hunter2" not in repr(storage)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"iceberg": True}, "^iceberg_catalog: missing; s3://bucket/lakes/wallet is in an object store"),
        ({"iceberg": True, "iceberg_catalog": "other"}, "^iceberg_catalog: .* has no catalog 'other'"),
        ({"iceberg_catalog": "other"}, "^iceberg_catalog: it is for an Iceberg table"),
        ({"iceberg_table": "a.b"}, "^iceberg_table: it names a table of a catalog, and iceberg_catalog is missing"),
    ],
)
def test_a_table_without_its_catalog_is_refused_before_anything_is_written(
    s3: MockS3, log: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        export(log, **options)
    assert s3.keys() == []


def test_a_checkpoint_in_an_object_store_is_refused(s3: MockS3, log: str, cli: Cli) -> None:
    ran = cli("lake", "follow", log, URL, "--once")
    assert (ran.code, "--checkpoint is needed" in ran.err) == (2, True)
    assert s3.keys() == []

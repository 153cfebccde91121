"""How writes fall on shards, as docs/explanation/scale.md says, by the model and on the simulator."""

from __future__ import annotations

from pathlib import Path

from benchmarks.shards import model, simulated, table

SCALE = (Path(__file__).parents[2] / "docs/explanation/scale.md").read_text()


def test_the_table_in_the_documentation_is_the_one_that_the_model_gives() -> None:
    assert table() in SCALE


def test_the_busiest_shard_gets_its_share_of_a_partition() -> None:
    one, sixteen = model(1), model(16)
    assert one[0] > 3, "the event, the head and the token of every append"
    assert sixteen[0] < 0.3
    assert sixteen[15] > 0.2, "sixteen shards get about the same"


def test_on_the_simulator_partitions_spread_the_writes() -> None:
    assert simulated(16, stored=1_000) < simulated(1, stored=1_000) / 4

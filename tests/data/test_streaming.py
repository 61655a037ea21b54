"""A folder too large for memory is read from a store that is made of it once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mtm
from mtm.core.errors import ConfigError, DataError
from mtm.core.reading import Reading
from mtm.data import loading

WIDTH = 16


def write_shards(folder: Path, shards: int, steps: int) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for shard in range(shards):
        values = rng.random(steps * WIDTH, np.float32)
        table = {
            "episode": np.repeat(np.arange(4), steps // 4) + 4 * shard,
            "states": pa.FixedSizeListArray.from_arrays(values, WIDTH),
            "actions": pa.FixedSizeListArray.from_arrays(values[: steps * 2], 2),
            "rewards": values[:steps],
        }
        pq.write_table(pa.table(table), folder / f"shard-{shard:04d}.parquet")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MTM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MTM_STREAM_ABOVE", "1000")
    return tmp_path / "cache" / "stores"


def stores(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*/manifest.json"))


def test_streamed_is_what_is_in_memory(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_shards(tmp_path / "logs", 5, 40)
    streamed = loading.load(folder)
    assert "is read from a store, made once in" in capsys.readouterr().err.replace("\n", "")
    assert streamed.blocks is not None
    monkeypatch.setenv("MTM_STREAM_ABOVE", str(1 << 30))
    whole = loading.load(folder)
    assert whole.blocks is None
    assert streamed.fingerprint == whole.fingerprint
    assert streamed.metadata == whole.metadata
    assert np.array_equal(streamed.arrays["states"], whole.arrays["states"])


def test_the_store_is_made_once_and_again_when_a_file_changes(cache: Path, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "logs", 3, 40)
    loading.load(folder)
    (first,) = stores(cache)
    written = first.stat().st_mtime_ns
    loading.load(folder)
    assert [file.stat().st_mtime_ns for file in stores(cache)] == [written]
    loading.load(folder, Reading(columns={"states": "states"}))
    assert len(stores(cache)) == 2  # read in two ways
    (folder / "shard-0002.parquet").unlink()
    assert loading.load(folder).num_episodes == 8
    assert first not in stores(cache)
    assert len(stores(cache)) == 2


def test_a_damaged_shard_leaves_no_store(cache: Path, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "logs", 3, 40)
    shard = folder / "shard-0001.parquet"
    shard.write_bytes(shard.read_bytes()[:-30])
    with pytest.raises(DataError, match="shard-0001.parquet cannot be read as Parquet"):
        loading.load(folder)
    assert not stores(cache)


def test_a_limit_that_is_none(cache: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MTM_STREAM_ABOVE", "much")
    with pytest.raises(ConfigError, match="MTM_STREAM_ABOVE is 'much'"):
        loading.load(write_shards(tmp_path / "logs", 1, 40))


def test_training_from_shards(cache: Path, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "logs", 4, 80)
    config = mtm.preset("tiny")
    run = mtm.train(
        str(folder), config.__class__(**{**vars(config), "steps": 2}), tmp_path / "run", silent=True
    )
    assert run.modalities.names[:1] == ("states",)
    assert stores(cache)


MEASURE = """
import re, sys
from pathlib import Path
from mtm.data.loading import load

def own_memory():  # what no file backs, so that it cannot be given back
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

import pyarrow.parquet, mtm.data.trajectories
before = own_memory()
data = load(sys.argv[1])
print(own_memory() - before, data.num_steps)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_folder(cache: Path, tmp_path: Path) -> None:
    used, sizes = [], []
    for shards in (16, 48):  # the smaller has more steps than are hashed at a time
        folder = write_shards(tmp_path / f"logs-{shards}", shards, 20_000)
        sizes.append(sum(file.stat().st_size for file in folder.iterdir()))
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(folder)],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=True,
        )
        memory, steps = (int(word) for word in done.stdout.split())
        assert steps == shards * 20_000
        used.append(memory)
    assert used[1] - used[0] < 0.25 * (sizes[1] - sizes[0])

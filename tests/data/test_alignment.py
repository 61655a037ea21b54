"""Sensors of several rates come to one clock by the rule that is stated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mtm.cli import main
from mtm.core.errors import ConfigError, DataError
from mtm.core.reading import Reading
from mtm.data import loading
from mtm.data.alignment import Stream, align
from mtm.data.formats.stamped_tables import read_streams


def stream(name: str, times: list[float], values: list, episodes: list[int] | None = None):
    labels = np.zeros(len(times), int) if episodes is None else np.array(episodes)
    return Stream(name, f"{name}.csv", labels, np.array(times, float), np.array(values))


CLOCK = stream("clock", [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("rule", "tolerance", "times", "expected"),
    [
        ("hold", 10.0, [0.0, 1.5, 4.5], [0, 0, 10, 10, 10]),
        ("hold", 1.0, [0.0, 1.5, 4.5], [0, 0, 10, None, None]),  # older than a second
        ("interpolate", 10.0, [0.0, 2.5, 5.0], [0, 4, 8, 12, 16]),
        ("interpolate", 1.0, [0.0, 2.5, 4.0], [0, None, None, 10 + 10 / 3, 20]),
        ("absent", 10.0, [0.0, 1.6, 4.4], [0, None, 10, None, 20]),  # within half a period
        ("absent", 0.3, [0.0, 1.6, 4.2], [0, None, None, None, 20]),
    ],
)
def test_each_rule(rule: str, tolerance: float, times: list, expected: list) -> None:
    data = align(
        [CLOCK, stream("slow", times, [0.0, 10.0, 20.0])],
        1.0,
        rules={"slow": rule},
        tolerances={"slow": tolerance},
    )
    wanted = [np.nan if value is None else value for value in expected]
    np.testing.assert_allclose(data.episode(0)["slow"], wanted, rtol=1e-6)


def test_the_clock_begins_and_ends_where_all_streams_are() -> None:
    fast = stream("fast", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    late = stream("late", [0.15, 0.35, 0.55], [[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
    data = align([fast, late], 10.0)
    assert data.num_steps == 4
    np.testing.assert_allclose(data.episode(0)["fast"], [1.5, 2.5, 3.5, 4.5], rtol=1e-6)
    np.testing.assert_allclose(data.episode(0)["late"][:, 1], [0, 1, 2, 3], atol=1e-6)
    assert data.metadata.notes == {"fps": "10"}


def test_an_episode_may_lack_a_stream_and_classes_are_held() -> None:
    states = stream("states", [0, 1, 2, 0, 1], [0.0, 1.0, 2.0, 5.0, 6.0], [0, 0, 0, 1, 1])
    gear = stream("gear", [0.0, 1.4, 2.5], [1, 2, 0])
    data = align([states, gear], 1.0, reading=Reading(roles={"gear": "action"}))
    assert data.lengths.tolist() == [3, 2]
    assert data.episode(0)["gear"].tolist() == [1, 1, 2]
    assert data.episode(1)["gear"].mask.all()
    assert data.modality("gear").role == "action"


@pytest.mark.parametrize(
    ("streams", "settings", "error", "message"),
    [
        ([stream("a", [0, 2, 1], [0.0] * 3)], {}, DataError, "a.csv: episode 0, step 2: the time"),
        ([stream("a", [0, 0], [0.0] * 2)], {}, DataError, "episode 0, step 1.*not above"),
        ([stream("a", [0, np.nan], [0.0] * 2)], {}, DataError, "step 1: the time stamp is nan"),
        (
            [stream("a", [0, 1, 0], [0.0] * 3, [0, 1, 0])],
            {},
            DataError,
            "a.csv: episode 0 is in two places",
        ),
        (
            [CLOCK, stream("b", [7, 8], [0.0, 1.0])],
            {},
            DataError,
            "b.csv: episode 0, step 0: begins at 7 s, when clock.csv has ended",
        ),
        ([stream("a", [0, 1e12], [0.0] * 2)], {}, DataError, "Are the time stamps seconds"),
        ([CLOCK], {"rules": {"clock": "guess"}}, ConfigError, "unknown rule of 'clock'"),
        ([CLOCK], {"rules": {"clok": "hold"}}, ConfigError, "Did you mean 'clock'"),
        ([CLOCK], {"tolerances": {"clock": -1.0}}, ConfigError, "0 or more is needed"),
        (
            [stream("a", [0, 1], [1, 2])],
            {"rules": {"a": "interpolate"}},
            ConfigError,
            "'a' holds integers",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(streams, settings, error, message: str) -> None:
    with pytest.raises(error, match=message):
        align(streams, 1.0, **settings)


def test_align_files_as_a_user_types_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joints, force = tmp_path / "joints.csv", tmp_path / "force.parquet"
    times = np.arange(0, 1.001, 0.01)
    rows = "\n".join(f"{t:.3f},{np.sin(t)},{np.cos(t)}" for t in times)
    joints.write_text(f"timestamp,q,dq\n{rows}\n")
    nanoseconds = pa.array((np.arange(0, 1.001, 0.04) * 1e9).astype(int), pa.duration("ns"))
    pq.write_table(pa.table({"t": nanoseconds, "f": np.arange(26.0)}), force)
    out = str(tmp_path / "out.npz")
    words = ["--clock", "50", "--rule", "force=hold", "joints=interpolate"]
    words += ["--tolerance", "force=0.05", "--reading.roles", "force=action"]
    assert main(["data", "align", str(joints), str(force), out, *words]) == 0
    told = capsys.readouterr().out
    assert "1 episodes, 51 steps at 50 Hz" in told
    assert "100.0% present" in told
    data = loading.load(out)
    ticks = np.arange(51) / 50
    np.testing.assert_allclose(data.arrays["joints"][:, 0], np.sin(ticks), atol=1e-4)
    np.testing.assert_array_equal(data.arrays["force"].reshape(-1), np.arange(51) // 2)
    assert data.modality("force").role == "action"
    assert main(["data", "align", str(joints), out, "--clock", "50"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_columns_of_one_table_sampled_at_different_times(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("stamp,trial,x,y,u\n0,7,0,0,\n10,7,,,1.5\n20,7,2,4,\n30,7,3,6,2.5\n")
    own = Reading(columns={"states": ("x", "y"), "u": "u"}, episode="trial")
    states, u = read_streams([file], own, unit="ms")
    assert states.times.tolist() == pytest.approx([0, 0.02, 0.03])
    assert u.times.tolist() == pytest.approx([0.01, 0.03])
    assert states.episodes.tolist() == [7, 7, 7]
    with pytest.raises(DataError, match="no file has all of the columns of 'z': z"):
        read_streams([file], Reading(columns={"z": "z"}))
    with pytest.raises(DataError, match="unknown column 'when'"):
        read_streams([file], own, time="when")


def test_odd_tables_are_told(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    for content, message in (
        ("timestamp,x\n0,left\n", "column 'x' holds string"),
        ("when,x\n0,1\n", "no column of time stamps"),
        ("timestamp,x\n,1\n1,2\n", "column 'timestamp' is null in row 0"),
        ("timestamp,x\n0,1,2\n", "cannot be read as CSV"),
        ("timestamp,x\n", "has no rows"),
        ("timestamp\n0\n", "no column beside"),
    ):
        file.write_text(content)
        with pytest.raises(DataError, match=message):
            read_streams([file], Reading())
    file.write_bytes(b"timestamp,\xa9\n0,1\n")
    with pytest.raises(DataError, match="cannot be read as CSV: 'utf-8' codec"):
        read_streams([file], Reading())
    other = tmp_path / "log.txt"
    other.write_text("x")
    with pytest.raises(DataError, match="unknown kind of file '.txt'"):
        read_streams([other], Reading())

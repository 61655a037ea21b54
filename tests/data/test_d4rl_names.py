"""D4RL's data sets by name: the catalogue, the cache, the download, and damaged files."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtm.core.errors import DataError
from mtm.data import loading
from mtm.data.environment_ids import matching_environment
from mtm.data.formats import d4rl, d4rl_catalog
from mtm.data.formats.d4rl_catalog import CATALOG

NAME, FILE = "hopper-medium-replay-v2", "hopper_medium_replay-v2.hdf5"

LAYOUT = {
    "observations": np.arange(20, dtype=np.float32).reshape(10, 2),
    "actions": np.zeros((10, 1), np.float32),
    "rewards": np.ones(10, np.float32),
    "terminals": np.isin(np.arange(10), [3]),
    "timeouts": np.isin(np.arange(10), [7]),
    "infos/qpos": np.zeros((10, 3)),
}


def write(path: Path, arrays: dict = LAYOUT, **attributes) -> Path:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, values in arrays.items():
            options = {"compression": "gzip"} if np.ndim(values) else {}
            file.create_dataset(key, data=values, **options)
        file.attrs.update(attributes)
    return path


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """D4RL's folder, empty; and no mirror outside this machine."""
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("MTM_D4RL_MIRRORS", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(d4rl_catalog, "ORIGIN", "http://127.0.0.1:9/origin")
    monkeypatch.setattr(d4rl_catalog, "COPY", "http://127.0.0.1:9/copy")
    return tmp_path / "cache"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The base URL of a server that has a small file, which the catalogue lists in D4RL's place."""
    content = write(tmp_path / "served" / FILE).read_bytes()
    small = CATALOG[NAME]._replace(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(CATALOG, NAME, small)
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_catalogue() -> None:
    locomotion = ("random", "medium", "medium-replay", "full-replay", "medium-expert", "expert")
    assert set(CATALOG) == {
        *(f"{f}-{q}-v2" for f in ("halfcheetah", "hopper", "walker2d", "ant") for q in locomotion),
        *(
            f"{family}-{quality}-v1"
            for family in ("pen", "door", "hammer", "relocate")
            for quality in ("human", "cloned", "expert")
        ),
    }
    assert all(len(bytes.fromhex(entry.sha256)) == 32 for entry in CATALOG.values())
    assert len({entry.sha256 for entry in CATALOG.values()}) == len(CATALOG)
    assert all(entry.size > 1_000_000 for entry in CATALOG.values())


@pytest.mark.parametrize(
    ("name", "file", "folder", "env_id", "horizon"),
    [
        (NAME, FILE, "gym_mujoco_v2", "Hopper-v4", 1000),
        ("walker2d-medium-v2", "walker2d_medium-v2.hdf5", "gym_mujoco_v2", "Walker2d-v4", 1000),
        ("pen-human-v1", "pen-human-v1.hdf5", "hand_dapg_v1", "AdroitHandPen-v1", 100),
        ("door-cloned-v1", "door-cloned-v1.hdf5", "hand_dapg_v1", "AdroitHandDoor-v1", 200),
    ],
)
def test_an_entry(
    monkeypatch: pytest.MonkeyPatch, name: str, file: str, folder: str, env_id: str, horizon: int
) -> None:
    entry = CATALOG[name]
    assert (entry.name, entry.file_name) == (name, file)
    assert (entry.env_id, entry.horizon) == (env_id, horizon)
    monkeypatch.setenv("MTM_D4RL_MIRRORS", "http://first/d4rl/, https://second,,")
    assert entry.urls() == [
        f"http://first/d4rl/{file}",
        f"https://second/{file}",
        f"http://rail.eecs.berkeley.edu/datasets/offline_rl/{folder}/{file}",
        f"https://huggingface.co/datasets/imone/D4RL/resolve/main/{file}",
    ]


def test_a_name_is_downloaded_once(
    cache: Path, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTM_D4RL_MIRRORS", mirror)
    first = loading.load(f"d4rl:{NAME}")
    assert first.lengths.tolist() == [4, 4, 2]
    assert first.metadata.env_id == "Hopper-v4"
    assert first.metadata.horizon == 1000
    assert first.metadata.source == FILE
    assert (cache / FILE).is_file()
    monkeypatch.delenv("MTM_D4RL_MIRRORS")  # nobody has it now
    assert loading.load(f"d4rl:{NAME}").fingerprint == first.fingerprint


@pytest.mark.parametrize("file", [FILE, f"{NAME}.hdf5"])
def test_both_spellings_are_found(cache: Path, file: str) -> None:
    write(cache / file)
    data = loading.load(f"d4rl:{NAME}")
    assert (data.metadata.env_id, data.metadata.horizon) == ("Hopper-v4", 1000)


def test_a_file_that_is_not_in_the_catalogue_is_taken_from_the_cache(cache: Path) -> None:
    write(cache / "antmaze_umaze-v0.hdf5")
    data = loading.load("d4rl:antmaze-umaze-v0")
    assert (data.num_steps, data.metadata.env_id) == (10, None)


@pytest.mark.parametrize("name", ["hopper-medum-v2", "../secret", "", "a" * 300, "x\0"])
def test_unknown_names(cache: Path, name: str) -> None:
    write(cache.with_name("secret.hdf5"))
    cache.mkdir()
    with pytest.raises(DataError, match="unknown D4RL data set .* Allowed: ant-expert-v2, "):
        loading.load(f"d4rl:{name}")
    if name.startswith("hopper"):
        with pytest.raises(DataError, match="Did you mean 'hopper-medium-v2'"):
            loading.load(f"d4rl:{name}")


def test_no_mirror_has_it(cache: Path, mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTM_D4RL_MIRRORS", f"{mirror}/elsewhere")
    with pytest.raises(DataError) as caught:
        loading.load(f"d4rl:{NAME}")
    message = str(caught.value)
    for url in CATALOG[NAME].urls():
        assert f"\n  {url}: " in message
    assert f"put the file at {cache / FILE} by hand" in message
    assert "D4RL_DATASET_DIR" in message
    assert "MTM_D4RL_MIRRORS" in message


def test_a_damaged_file_in_the_cache(cache: Path) -> None:
    whole = write(cache / FILE).read_bytes()
    (cache / FILE).write_bytes(whole[:-100])
    size = CATALOG[NAME].size
    with pytest.raises(DataError, match=rf"cannot be read .* D4RL's has {size:,}\. .*delete it"):
        loading.load(f"d4rl:{NAME}")


def test_what_a_file_states_wins_over_its_name(tmp_path: Path) -> None:
    stated = loading.load(str(write(tmp_path / FILE, env_id="Hopper-v5", max_episode_steps=50)))
    assert (stated.metadata.env_id, stated.metadata.horizon) == ("Hopper-v5", 50)
    only_id = loading.load(str(write(tmp_path / FILE, env_id="Hopper-v5")))
    assert (only_id.metadata.env_id, only_id.metadata.horizon) == ("Hopper-v5", None)
    other = loading.load(str(write(tmp_path / "hopper.hdf5")))
    assert (other.metadata.env_id, other.metadata.horizon) == (None, None)


def test_human_demonstrations_are_longer_than_the_environment_s_episodes(tmp_path: Path) -> None:
    arrays = {
        "observations": np.zeros((250, 2)),
        "rewards": np.zeros(250),
        "terminals": np.arange(250) == 249,
    }
    data = loading.load(str(write(tmp_path / "pen-human-v1.hdf5", arrays)))
    assert (data.metadata.env_id, data.metadata.horizon) == ("AdroitHandPen-v1", 250)
    assert matching_environment(data.metadata) == "AdroitHandPen-v1"


@pytest.mark.parametrize("steps", ["many", 0, -3, 2.5, float("nan"), float("inf"), [1, 2]])
def test_a_horizon_that_is_none(tmp_path: Path, steps: object) -> None:
    path = write(tmp_path / "hopper.hdf5", max_episode_steps=steps)
    with pytest.raises(DataError, match="max_episode_steps is .*not a positive whole number"):
        loading.load(str(path))


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "hopper.hdf5")
    with h5py.File(path, "a") as file:
        file[b"own\xff"] = np.zeros(10)
    with pytest.raises(DataError, match=r"an array is called b'own\\xff'"):
        loading.load(str(path))


def loads_or_says_why(path: Path) -> None:
    """Whether a file is good or bad: no other exception, and never a data set of nothing."""
    with warnings.catch_warnings(), contextlib.suppress(DataError):
        warnings.simplefilter("ignore")
        data = d4rl.load_file(path)
        assert data.num_steps == data.lengths.sum() > 0


# Always the same examples: HDF5 itself, not h5py, can crash on a file that is damaged just so.
mutations = settings(deadline=None, max_examples=80, derandomize=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole") / FILE)


@mutations
@given(data=st.data())
def test_a_file_cut_anywhere(whole: Path, data: st.DataObject) -> None:
    content = whole.read_bytes()
    cut = whole.with_name("cut.hdf5")
    cut.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(DataError, match="cut.hdf5 cannot be read"):
        d4rl.load_file(cut)


@mutations
@given(data=st.data())
def test_a_file_with_other_bytes(whole: Path, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    places = st.integers(0, len(content) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=20)):
        content[place] = data.draw(st.integers(0, 255))
    mutated = whole.with_name("mutated.hdf5")
    mutated.write_bytes(content)
    loads_or_says_why(mutated)


@mutations
@given(data=st.data())
def test_a_file_with_a_hole(whole: Path, data: st.DataObject) -> None:
    content = whole.read_bytes()
    first = data.draw(st.integers(0, len(content) - 1))
    length = min(data.draw(st.sampled_from([16, 64, 512, 4096])), len(content) - first)
    hole = whole.with_name("hole.hdf5")
    hole.write_bytes(content[:first] + bytes(length) + content[first + length :])
    loads_or_says_why(hole)


VALUES = st.one_of(
    st.just(np.float32(1)),
    st.just("text"),
    st.builds(
        np.full,
        st.lists(st.integers(0, 12), max_size=3).map(tuple),
        st.sampled_from([0, 1, -1, np.nan, np.inf, 3.5]),
    ),
    st.lists(st.integers(-2, 12), max_size=10).map(np.array),
    st.just(np.zeros(10, complex)),
    st.just(np.zeros(10, [("x", float)])),
    st.just(np.array([b"a"] * 10)),
)


@mutations
@given(arrays=st.dictionaries(st.sampled_from([*LAYOUT, "offsets", "own"]), VALUES, max_size=4))
def test_a_file_with_other_arrays(whole: Path, arrays: dict) -> None:
    other = whole.with_name("other.hdf5")
    shutil.copy(whole, other)
    with h5py.File(other, "a") as file:
        for key, values in arrays.items():
            if key in file:
                del file[key]
            file[key] = values
    loads_or_says_why(other)

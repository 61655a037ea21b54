"""Files that are odd, damaged or made to harm: a `DataError` with the place, and nothing else."""

from __future__ import annotations

import io
import pickle
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data import loading, memory_limits

ENDS = np.array([0, 0, 1, 0, 1], bool)
SECRET = np.arange(10.0).reshape(5, 2)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Another file of this user's, whose bytes must not come out."""
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["secret"] = SECRET
    SECRET.tofile(tmp_path / "foreign.bin")
    return tmp_path


def external_link(file: h5py.File, foreign: Path) -> None:
    file["observations"] = h5py.ExternalLink(foreign / "foreign.h5", "/secret")


def external_link_below(file: h5py.File, foreign: Path) -> None:
    file["observations"] = h5py.SoftLink("/infos/deep/link")
    file["infos/deep/link"] = h5py.ExternalLink(foreign / "foreign.h5", "/secret")


def external_storage(file: h5py.File, foreign: Path) -> None:
    place = [(str(foreign / "foreign.bin"), 0, SECRET.nbytes)]
    file.create_dataset("observations", SECRET.shape, SECRET.dtype, external=place)


def virtual(file: h5py.File, foreign: Path) -> None:
    layout = h5py.VirtualLayout(SECRET.shape, SECRET.dtype)
    layout[:] = h5py.VirtualSource(foreign / "foreign.h5", "secret", SECRET.shape)
    file.create_virtual_dataset("observations", layout)


def virtual_without_source(file: h5py.File, foreign: Path) -> None:
    layout = h5py.VirtualLayout(SECRET.shape, SECRET.dtype)
    layout[:] = h5py.VirtualSource(foreign / "gone.h5", "secret", SECRET.shape)
    file.create_virtual_dataset("observations", layout, fillvalue=0)


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (external_link, "'observations' is an external link"),
        (external_link_below, "'infos/deep/link' is an external link"),
        (external_storage, "'observations' is kept in external storage"),
        (virtual, "'observations' is a virtual data set"),
        (virtual_without_source, "'observations' is a virtual data set"),
    ],
)
def test_a_file_that_shows_the_bytes_of_another_is_refused(
    tmp_path: Path, foreign: Path, put: Callable[[h5py.File, Path], None], message: str
) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["terminals"] = ENDS
        put(file, foreign)
    with pytest.raises(DataError, match=rf"a.hdf5: {message}.*lie in another file"):
        loading.load(tmp_path / "a.hdf5")


def test_links_within_a_file_are_followed_also_in_circles(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["terminals"] = ENDS
        file["infos/states"] = SECRET
        file["observations"] = h5py.SoftLink("/infos/states")
        file["infos/up"] = file["/"]
    loaded = loading.load(tmp_path / "a.hdf5")
    assert np.array_equal(loaded.arrays["states"], SECRET.astype(np.float32))


def test_minari_s_files_are_looked_at_too(
    tmp_path: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari", reason="minari is not installed (extra minari)")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (tmp_path / "a-v0" / "data").mkdir(parents=True)
    with h5py.File(tmp_path / "a-v0" / "data" / "main_data.hdf5", "w") as file:
        external_link(file, foreign)
    with pytest.raises(DataError, match="external link"):
        loading.load("minari:a-v0")


def deflated(header: bytes, data: bytes = b"") -> bytes:
    """An `.npz` with one array of this header."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
        archive.writestr("states.npy", start + header + data)
    return content.getvalue()


def npz_header(shape: str) -> bytes:
    return b"{'descr': '<f8', 'fortran_order': False, 'shape': %s}" % shape.encode()


def sparse_hdf5() -> bytes:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.create_dataset("observations", (10**9, 4), "f8", chunks=(1024, 4))
        file.create_dataset("terminals", (10**9,), "?", chunks=(1024,))
    return content.getvalue()


def memo_pickle() -> bytes:
    """One array that is named by a hundred thousand episodes."""
    row = {"observations": np.zeros((4000, 4)), "actions": np.zeros((4000, 2))}
    return pickle.dumps([row] * 100_000, protocol=4)


def laughs(depth: int = 60) -> bytes:
    """The code of a tuple that has 2**depth ends; to hash it would take for ever."""
    return b")" + b"".join(b"q%c0h%ch%c\x86" % (i, i, i) for i in range(depth))


LENGTH = struct.pack("<Q", 1 << 32)

CLAIMS = {
    "rows.npz": (lambda: deflated(npz_header("(1000000000000, 3)")), "member 'states.npy'"),
    "negative.npz": (lambda: deflated(npz_header("(-1, 3)")), "member 'states.npy'"),
    "sparse.hdf5": (sparse_hdf5, "'observations' claims 32,000,000,000 bytes"),
    "bytes.pkl": (
        lambda: b"\x80\x05\x96" + LENGTH + b".",
        "bytes are announced",
    ),
    "frame.pkl": (
        lambda: b"\x80\x05\x95" + LENGTH + b".",
        "bytes are announced",
    ),
    "memo.pkl": (memo_pickle, "episode .* claims .* bytes"),
    "key.pkl": (lambda: b"\x80\x04}" + laughs() + b"K\x01s.", "a key of type tuple"),
    "set.pkl": (lambda: b"\x80\x04\x8f(" + laughs() + b"\x90.", "it holds a set"),
}

MEMORY = """
import resource, sys
from mtm.core.errors import DataError
from mtm.data import loading
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        loading.load(path)
    except DataError as error:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


def test_what_claims_too_much_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    for name, (make, _) in CLAIMS.items():
        (tmp_path / name).write_bytes(make())
    command = [sys.executable, "-c", MEMORY, *(str(tmp_path / name) for name in CLAIMS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    for line, (name, (_, message)) in zip(lines, CLAIMS.items(), strict=True):
        taken, said = line.split(" ", 1)
        assert int(taken) * 1024 < memory_limits.SMALL, name
        assert re.search(message, said), said


def test_the_bound_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is packed tighter than deflate can."""
    monkeypatch.setattr(memory_limits, "SMALL", 0)
    monkeypatch.setattr(memory_limits, "MOST_TIMES", 20)
    steps = 100_000
    np.savez_compressed(tmp_path / "a.npz", states=np.zeros(steps), offsets=[0, steps])
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("observations", data=np.zeros(steps), compression="gzip")
        file.create_dataset("terminals", data=np.zeros(steps, bool), compression="gzip")
    parquet(episode=np.zeros(steps), states=np.zeros(steps))(tmp_path / "a.parquet")
    for name in ("a.npz", "a.hdf5", "a.parquet"):
        with pytest.raises(DataError, match=f"{name}: .* claims [0-9,]+ bytes, a file of"):
            loading.load(tmp_path / name)


def test_a_machine_without_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", states=SECRET, terminals=ENDS)
    monkeypatch.setattr(memory_limits, "available_memory", lambda: 64)
    with pytest.raises(DataError, match="this machine has 64 left"):
        loading.load(tmp_path / "a.npz")


def test_what_compresses_well_still_loads(tmp_path: Path) -> None:
    steps = 100_000
    np.savez_compressed(tmp_path / "a.npz", states=np.zeros((steps, 9)), offsets=[0, steps])
    assert loading.load(tmp_path / "a.npz").num_steps == steps
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("observations", data=np.zeros((steps, 9)), compression="gzip")
        file.create_dataset("terminals", data=np.arange(steps) % 9 == 8, compression="gzip")
    assert loading.load(tmp_path / "a.hdf5").num_steps == steps


def npz(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def hdf5(**arrays: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values

    return write


def parquet(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra parquet)")
        from pyarrow import parquet as file

        file.write_table(pa.table({n: pa.array(v, pa.float64()) for n, v in columns.items()}), path)

    return write


def with_text(path: Path) -> None:
    np.savez(path, states=SECRET, terminals=ENDS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README", "hello")


def with_header(header: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(deflated(header)) and None


NANS = np.array([0, np.nan, 1, 0, 1])


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.npz", with_text, "member 'README': it is no array"),
        ("a.npz", with_header(b"{'descr': ('"), "member 'states.npy'"),
        ("a.npz", with_header(b"{"), "member 'states.npy'"),
        ("a.npz", npz(states=SECRET, terminals=["False"] * 5), "'terminals' holds <U5, .* 'False'"),
        ("a.npz", npz(states=SECRET, terminals=NANS), "'terminals' is nan in row 1"),
        ("a.npz", npz(states=SECRET, timeouts=np.zeros((5, 2, 2))), r"'timeouts' .*\(5, 2, 2\)"),
        (
            "a.npz",
            npz(states=SECRET, states_present=NANS, terminals=ENDS),
            "'states_present' is nan",
        ),
        ("a.npz", npz(states=SECRET, states_present=["no"] * 5, terminals=ENDS), "holds <U2"),
        (
            "a.npz",
            npz(states=np.zeros((5, 0)), terminals=ENDS),
            r"shape \(0,\).*one number at least",
        ),
        ("a.npz", npz(states=SECRET, episode=NANS), "'episode' is nan in row 1"),
        ("a.npz", npz(states=SECRET, episode=np.zeros((5, 2))), "'episode' .* one value per step"),
        ("a.hdf5", hdf5(observations=SECRET, timeouts=np.zeros((5, 2, 2))), "'timeouts' holds"),
        ("a.hdf5", hdf5(observations=SECRET, terminals=NANS), "'terminals' is nan in row 1"),
        ("a.hdf5", hdf5(observations=np.zeros((5, 0)), terminals=ENDS), "one number at least"),
        ("a.parquet", parquet(episode=[], states=[]), "'episode' has no rows"),
        ("a.parquet", parquet(episode=NANS, states=NANS), "'episode' is nan in row 1"),
        ("a.parquet", parquet(terminals=NANS, states=[0] * 5), "'terminals' is nan in row 1"),
    ],
)
def test_odd_files_are_told_with_their_place(
    tmp_path: Path, name: str, write: Callable[[Path], None], message: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(DataError, match=rf"{name}.*{message}"):
        loading.load(tmp_path / name, Reading())


@pytest.mark.parametrize("flags", [ENDS, ENDS.astype(float), ENDS[:, None], ENDS.astype(np.uint8)])
def test_flags_in_their_usual_forms(tmp_path: Path, flags: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", states=SECRET, terminals=flags)
    assert loading.load(tmp_path / "a.npz").lengths.tolist() == [3, 2]

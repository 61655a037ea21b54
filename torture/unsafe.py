"""Files that would do something if anybody executed what they contain; nobody does.

The payload makes a file. Every case hands it to a reader in the form that the format allows, in a
child; the file must not be there afterwards, and whatever is raised is an error of ours.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from mtm.core.errors import MTMError
from mtm.data import loading
from mtm.deploy.policy_file import read_policy_file
from mtm.runs import checkpoint
from mtm.runs.run import load_run
from torture.outcomes import Row, timed
from torture.verbs import Material
from torture.warm import Warm


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.flag,)


def unsafe(warm: Warm, say: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Payloads in every format, and names that lead out of a folder."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mtm-unsafe-") as name:
        made = Material.make(Path(name), warm)
        for case in CASES:
            row, flag = Row("unsafe", case), Path(name) / "executed"
            folder = Path(name) / case.replace("/", "-")
            folder.mkdir()
            with timed(row):
                ended = warm.run("torture.unsafe:one", case, str(folder), str(flag), str(made.run))
            if flag.exists():
                row.broke("the payload was executed")
                flag.unlink()
            elif ended.code not in (0, 2) or "Traceback" in ended.said:
                row.broke(f"exit code {ended.code}: {ended.said[-500:]}")
            else:
                row.held("refused" if ended.code else "not executed")
            say(row)
            rows.append(row)
    return rows


def one(case: str, folder: str, flag: str, run: str) -> int:
    """One of the cases, in a child; 2 if it was refused."""
    try:
        CASES[case](Path(folder), Path(flag), Path(run))
    except MTMError as error:
        print(f"error: {error}")
        return 2
    return 0


def _npz(folder: Path, flag: Path, run: Path) -> None:
    values = np.empty(3, object)
    values[:] = [Payload(flag)] * 3
    np.savez(folder / "a.npz", states=np.zeros((3, 1)), actions=values)
    loading.load(folder / "a.npz")


def _npy_header(folder: Path, flag: Path, run: Path) -> None:
    """The header of an .npy file is a dict in Python's notation."""
    text = f"{{'descr': __import__('pathlib').Path({str(flag)!r}).touch(), 'shape': (3,)}}"
    header = text.encode().ljust(500) + b"\n"
    with zipfile.ZipFile(folder / "a.npz", "w") as file:
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        file.writestr("states.npy", content + bytes(24))
    loading.load(folder / "a.npz")


def _pickle(folder: Path, flag: Path, run: Path) -> None:
    path = {"observations": np.zeros((3, 2)), "actions": Payload(flag)}
    (folder / "a.pkl").write_bytes(pickle.dumps([path]))
    loading.load(folder / "a.pkl")


def _hdf5(folder: Path, flag: Path, run: Path) -> None:
    """A pickle as opaque bytes and as text of any length, in a column and in an attribute."""
    payload = pickle.dumps(Payload(flag), 0)  # without zeros, which such text cannot hold
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["observations"] = np.zeros((3, 2))
        file["actions"] = np.array([payload] * 3, dtype=h5py.special_dtype(vlen=bytes))
        file["rewards"] = np.array([np.void(payload)] * 3)
        file.attrs["env_id"] = np.void(payload)
    loading.load(folder / "a.hdf5")


def _hdf5_references(folder: Path, flag: Path, run: Path) -> None:
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["observations"] = np.zeros((3, 2))
        file["actions"] = np.array([file["observations"].ref] * 3, dtype=h5py.ref_dtype)
    loading.load(folder / "a.hdf5")


def _hdf5_module(folder: Path, flag: Path, run: Path) -> None:
    """An environment that is a module to import: no module is, on the word of a file."""
    (folder / "evil.py").write_text(f"from pathlib import Path; Path({str(flag)!r}).touch()")
    with h5py.File(folder / "a.hdf5", "w") as file:
        file["observations"], file["actions"] = np.zeros((3, 2)), np.zeros((3, 1))
        file["terminals"] = np.array([False, False, True])
        file.attrs["env_id"] = "evil:Environment-v0"
    import sys

    sys.path.insert(0, str(folder))
    loading.load(folder / "a.hdf5")


def _parquet(folder: Path, flag: Path, run: Path) -> None:
    """Metadata of the file, and of an extension type that Python would unpickle."""
    import pyarrow as pa
    from pyarrow import parquet

    payload = pickle.dumps(Payload(flag))
    extension = {"ARROW:extension:name": "arrow.py_extension_type"}
    extension["ARROW:extension:metadata"] = payload  # type: ignore[assignment]
    field = pa.field("x", pa.float64(), metadata=extension)
    schema = pa.schema([field], metadata={"pandas": payload, "ARROW:schema": payload})
    parquet.write_table(pa.table({"x": [1.0, 2.0]}, schema=schema), folder / "a.parquet")
    loading.load(folder / "a.parquet")


def _store(folder: Path, flag: Path, run: Path) -> None:
    """A manifest whose names lead elsewhere."""
    from mtm.data.formats import builtin
    from mtm.data.formats.store import write_store

    write_store([builtin.point_mass(4, 6)], folder / "store", "log")
    file = folder / "store" / "manifest.json"
    plain = json.loads(file.read_text())
    plain["modalities"][0]["name"] = "../../secret"
    plain["sha256"]["../../secret"] = "0" * 64
    file.write_text(json.dumps(plain))
    loading.load(folder / "store")


def _checkpoint(folder: Path, flag: Path, run: Path) -> None:
    """Weights as torch.save writes them, with digests that are right."""
    copy = shutil.copytree(run, folder / "run")
    step = checkpoint.steps(copy / "checkpoints")[-1]
    place = copy / "checkpoints" / f"step-{step:09d}"
    content = io.BytesIO()
    torch.save({"w": Payload(flag)}, content)
    _replace(place, content.getvalue())
    checkpoint.load(copy / "checkpoints", step)


def _checkpoint_pickle(folder: Path, flag: Path, run: Path) -> None:
    copy = shutil.copytree(run, folder / "run")
    step = checkpoint.steps(copy / "checkpoints")[-1]
    _replace(copy / "checkpoints" / f"step-{step:09d}", pickle.dumps(Payload(flag)))
    checkpoint.load(copy / "checkpoints", step)


def _replace(place: Path, content: bytes) -> None:
    """Put other weights into a checkpoint, as somebody would who knows of the digests."""
    import hashlib

    from mtm.core.plain_data import digest_of

    (place / checkpoint.MODEL_FILE).write_bytes(content)
    state = json.loads((place / checkpoint.STATE_FILE).read_text())
    state["sha256"][checkpoint.MODEL_FILE] = hashlib.sha256(content).hexdigest()
    del state["state_sha256"]
    state["state_sha256"] = digest_of(state)
    (place / checkpoint.STATE_FILE).write_text(json.dumps(state))


def _config(folder: Path, flag: Path, run: Path) -> None:
    """Settings that are code, in JSON's clothes."""
    copy = shutil.copytree(run, folder / "run")
    code = f"!!python/object/apply:os.system ['touch {flag}']"
    plain = json.loads((copy / "config.json").read_text())
    plain.pop("sha256")
    plain["train"]["mask"] = code
    plain["data"]["spec"] = f"__import__('pathlib').Path({str(flag)!r}).touch()"
    (copy / "config.json").write_text(json.dumps(plain))
    load_run(copy)


def _packed(folder: Path, flag: Path, run: Path) -> None:
    with zipfile.ZipFile(folder / "run.mtm", "w") as file:
        file.writestr("config.json", (run / "config.json").read_bytes())
        file.writestr("checkpoints/step-000000004/model.safetensors", pickle.dumps(Payload(flag)))
        file.writestr(f"../../../../../../{flag}", "written")
    load_run(folder / "run.mtm")


def _export(folder: Path, flag: Path, run: Path) -> None:
    (folder / "policy.json").write_text(json.dumps({"format": 1, "graphs": str(flag)}))
    (folder / "bc.onnx").write_bytes(pickle.dumps(Payload(flag)))
    read_policy_file(folder)


def _policy(folder: Path, flag: Path, run: Path) -> None:
    """A policy of Stable-Baselines3, whose settings are pickles."""
    from mtm.research.collect.behaviour import read_policy

    content = io.BytesIO()
    torch.save({"actor.mu.weight": Payload(flag)}, content)
    code = {":type:": "x", ":serialized:": pickle.dumps(Payload(flag)).hex()}
    with zipfile.ZipFile(folder / "policy.zip", "w") as file:
        file.writestr("policy.pth", content.getvalue())
        file.writestr("data", json.dumps({"policy_class": code}))
    read_policy(folder / "policy.zip")


def _symbolic_link(folder: Path, flag: Path, run: Path) -> None:
    """Training into a link that leads elsewhere replaces nothing there."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes.txt").write_text("mine")
    (folder / "out").symlink_to(elsewhere)
    from mtm.cli import main
    from torture.verbs import train_words

    code = main(train_words(run.parent / "log.npz", folder / "out", 1))
    assert (elsewhere / "notes.txt").read_text() == "mine"
    assert code == 2, code


CASES: dict[str, Callable[[Path, Path, Path], None]] = {
    ".npz, objects": _npz,
    ".npz, code in a header": _npy_header,
    "pickle": _pickle,
    "HDF5, opaque and of any length": _hdf5,
    "HDF5, references": _hdf5_references,
    "HDF5, an environment's module": _hdf5_module,
    "Parquet, metadata": _parquet,
    "store, names": _store,
    "checkpoint of torch.save": _checkpoint,
    "checkpoint, a pickle": _checkpoint_pickle,
    "config.json": _config,
    "packed run": _packed,
    "export": _export,
    "policy of Stable-Baselines3": _policy,
    "a link in the place of a run": _symbolic_link,
}

"""Pickles of arrays load; every other pickle is refused, and nothing in it is run."""

from __future__ import annotations

import builtins
import codecs
import os
import pickle
import pickletools
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.f2py
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtm.core.errors import DataError
from mtm.core.reading import Reading
from mtm.data.formats import pickles

ACHIEVED = np.array([False, True, True, False])


def episode(steps: int = 4, **more: Any) -> dict[str, Any]:
    states = np.arange(steps * 3, dtype=np.float64).reshape(steps, 3)
    return {
        "observations": states,
        "actions": np.asfortranarray(-states[:, :2], dtype=np.float32),
        "rewards": np.full(steps, 9.5),
    } | more


def write(path: Path, content: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    infos = {"env_infos": {"goal_achieved": ACHIEVED}, "terminated": np.bool_(True)}
    start = OrderedDict(qpos=np.zeros(3, ">f4"), step=np.int64(0), name="start", none=None)
    path = write(
        tmp_path / "expert_dataset.pickle",
        [episode(**infos, init_state_dict=start), episode(6)],
        protocol,
    )
    data = pickles.load_file(path)
    assert data.names == ("states", "actions", "rewards")
    assert data.lengths.tolist() == [4, 6]
    first, second = data.episode(0), data.episode(1)
    np.testing.assert_array_equal(first["states"], episode()["observations"])
    np.testing.assert_array_equal(first["actions"], episode()["actions"])
    assert first["rewards"].tolist() == ACHIEVED.tolist()
    assert second["rewards"].tolist() == [9.5] * 6


def test_numpy_1_s_names_and_python_2_s_strings(tmp_path: Path) -> None:
    written = pickle.dumps([episode()], 2).replace(b"numpy._core.", b"numpy.core.")
    assert b"numpy.core.multiarray" in written
    path = tmp_path / "old.pkl"
    path.write_bytes(written)
    assert pickles.load_file(path).num_steps == 4
    # What Python 2 wrote: a dict of one array whose bytes are a plain string, as are the keys.
    values = np.arange(3.0)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I3\nI1\ntcnumpy\ndtype\n(S'f8'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
        b"T" + struct.pack("<i", values.nbytes) + values.tobytes() + b"tb"
    )
    path.write_bytes(b"((dS'observations'\n" + array + b"sS'actions'\n" + array + b"sl.")
    data = pickles.load_file(path)
    assert data.episode(0)["states"][:, 0].tolist() == [0, 1, 2]


def test_lists_of_numbers_and_of_arrays(tmp_path: Path) -> None:
    plain = episode(
        observations=list(np.ones((4, 3))), rewards=[0.0, 1, np.float32(2), True], junk=[{}]
    )
    data = pickles.load_file(write(tmp_path / "a.pkl", [plain]))
    assert data.arrays["states"].shape == (4, 3)
    assert data.arrays["rewards"].tolist() == [0, 1, 2, 1]
    columns = [episode(rewards=np.ones((4, 1)), goal_achieved=ACHIEVED[:, None])]
    data = pickles.load_file(write(tmp_path / "a.pkl", columns))
    assert data.arrays["rewards"].tolist() == ACHIEVED.tolist()


def test_axes_in_another_order(tmp_path: Path) -> None:
    frames = np.arange(24.0).reshape(2, 4, 3).transpose(1, 0, 2)
    data = pickles.load_file(write(tmp_path / "a.pkl", [episode(observations=frames)], 5))
    np.testing.assert_array_equal(data.arrays["states"], frames)


@pytest.mark.parametrize(
    ("name", "env_id", "horizon"),
    [
        ("door/expert_dataset.pickle", "AdroitHandDoor-v1", 200),
        ("pen-v0_demos.pickle", "AdroitHandPen-v1", 100),
        ("relocate.pkl", "AdroitHandRelocate-v1", 200),
        ("doors.pkl", None, None),
        ("hopper-medium-v2.pkl", None, None),
    ],
)
def test_the_environment_is_in_the_name(
    tmp_path: Path, name: str, env_id: str | None, horizon: int | None
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    metadata = pickles.load_file(write(path, [episode()])).metadata
    assert (metadata.env_id, metadata.horizon) == (env_id, horizon)


def test_a_person_s_long_demonstration(tmp_path: Path) -> None:
    data = pickles.load_file(write(tmp_path / "pen.pkl", [episode(130), episode(20)]))
    assert data.metadata.horizon == 130


def test_gaps_and_names_of_the_user(tmp_path: Path) -> None:
    hole = episode()
    hole["observations"][1] = np.nan
    path = write(tmp_path / "a.pkl", [hole])
    with pytest.raises(DataError, match="a.pkl: modality 'states', episode 0, step 1"):
        pickles.load_file(path)
    reading = Reading(columns={"pose": "states", "actions": "actions"}, nan_is_absent=True)
    data = pickles.load_file(path, reading)
    assert data.names == ("pose", "actions")
    assert data.count_present("pose") == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"observations": np.zeros(3)},
            "a list of episodes is needed, what it holds is of type dict",
        ),
        (np.zeros(3), "what it holds is an array"),
        ([], "no episodes"),
        ([episode(), 3], "episode 1 is of type int"),
        ([{"observations": np.zeros((3, 1))}], "episode 0 lacks actions; it holds observations"),
        ([episode(actions="none")], "episode 0: 'actions' is of type str"),
        ([episode(actions=[[1.0], [2.0]])], "episode 0: 'actions' is of type list"),
        ([episode(actions=np.float32(1))], r"episode 0: 'actions' is an array of shape \(\)"),
        ([episode(actions=[np.zeros(2), np.zeros(3)])], "'actions' is not a regular array"),
        ([episode(actions=np.zeros((3, 2)))], "states 4, actions 3"),
        ([episode(rewards=[2**80] * 4)], "modality 'rewards' has dtype object"),
    ],
)
def test_pickles_of_other_things(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"a.pkl: .*{message}"):
        pickles.load_file(write(tmp_path / "a.pkl", content))


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class Own:
    """A class that a pickle names."""


TRACE = "trace-of-a-pickle"
MALICIOUS = [
    (Call(os.system, f"echo > {TRACE}"), "(posix|nt).system"),
    (Call(builtins.eval, f"open({TRACE!r}, 'w')"), "(builtins|__builtin__).eval"),
    (Call(open, TRACE, "w"), "(_?io|builtins|__builtin__).open"),
    (Call(getattr, "text", "format"), "(builtins|__builtin__).getattr"),
    (Call(np.load, TRACE), "numpy.load"),
    (Call(np.frombuffer, b"12345678"), "numpy.*frombuffer"),
    (Call(numpy.f2py.run_main, [TRACE]), "numpy.f2py.f2py2e.run_main"),
    (Call(codecs.decode, b"61", "hex"), "_codecs.decode"),
    (Call(np.memmap, TRACE, "u1", "w+", 0, (9,)), "numpy.*memmap"),
    (np.random.default_rng(0), "numpy.random"),
    (Own(), "copy_?reg._reconstructor|test_pickles.Own"),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(("content", "name"), MALICIOUS, ids=[name for _, name in MALICIOUS])
def test_calls_are_refused_and_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, name: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.pkl", [episode(env_infos=content)], protocol)
    with pytest.raises(DataError, match=rf"a.pkl is refused: it names .*({name})"):
        pickles.load_file(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.pkl"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([Call(os.system, f"echo > {TRACE}")], object), "names posix.system|dtype 'O8'"),
        (np.array([1, "a"], object), "dtype 'O8'"),
        (np.array(["a"]), "dtype 'U1'"),
        (np.zeros(2, [("a", "f4"), ("b", "f4")]), "dtype 'V8'"),
        (np.zeros(2, "M8[s]"), "dtype 'M8'"),
        (np.zeros(2, complex), "dtype 'c16'"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_of_anything_but_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, array: Any, message: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.pkl", [episode(env_infos=array)], protocol)
    with pytest.raises(DataError, match=f"a.pkl is refused: it .*({message})"):
        pickles.load_file(path)
    assert not Path(TRACE).exists()


ARRAY = b"cnumpy\nndarray\n"
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
ENCODE = b"c_codecs\nencode\n"


@pytest.mark.parametrize(
    "code",
    [
        RECONSTRUCT + b"}S'array'\nI1\nsb.",  # set an attribute of a class that is admitted
        ENCODE + b"(N}S'__new__'\nI1\nstb.",
        b"ccollections\nOrderedDict\n(N}S'get'\nI1\nstb.",
        ARRAY + b")\x81}S'__class__'\nI1\nsb.",  # an instance without its parts
        b"cnumpy\ndtype\n)\x81.",
        b"cnumpy\ndtype\n(S'f8'\ntR(I3\nS'\\xff'\nNNNI-1\nI-1\nI0\ntb.",  # no such byte order
        b"cnumpy\ndtype\n(S'f8'\ntRN.",
        b"cnumpy.core.multiarray\nscalar\n(S'f8'\nS'12345678'\ntR.",  # no dtype
        RECONSTRUCT + b"(tR(I1\n(I-1\ntcnumpy\ndtype\n(S'f8'\ntRI00\nS'12345678'\ntb.",
        RECONSTRUCT + b"(tR(I1\n(I9\ntcnumpy\ndtype\n(S'f8'\ntRI00\nS'12345678'\ntb.",
        ENCODE + b"(S'eJwDAAAAAAE='\nS'zip'\ntR.",  # another codec
        b"\x82\x01.",  # a name given by a number
        b"P1\n.",  # a persistent id
        b"\x80\x04\x8c\x05numpy\x8c\x08f2py.sys\x93.",  # a dotted name
        b"\x80\x05\x97.",  # a buffer out of band
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"abc.",  # more bytes than there are
        b"]r" + struct.pack("<I", 0xFFFFFFF0) + b".",  # memory for as many notes as it says
        b"\x80\x09.",  # a protocol to come
        b"",
        b".",
        b"not a pickle",
    ],
)
def test_hand_made_pickles(tmp_path: Path, code: bytes) -> None:
    before = {stand_in: dict(vars(stand_in)) for stand_in in pickles.STAND_INS.values()}
    path = tmp_path / "a.pkl"
    path.write_bytes(code)
    with pytest.raises(DataError, match="a.pkl"):
        pickles.load_file(path)
    assert before == {stand_in: dict(vars(stand_in)) for stand_in in pickles.STAND_INS.values()}


def test_what_a_pickle_can_name_is_only_the_stand_ins() -> None:
    for (module, name), stand_in in pickles.STAND_INS.items():
        assert stand_in.__module__ == pickles.__name__, (module, name)
        assert callable(stand_in.__setstate__)


def pickled(protocol: int) -> bytes:
    infos = {"goal_achieved": ACHIEVED}
    content = [episode(env_infos=infos, n=np.float64(1)), episode(2, env_infos=OrderedDict())]
    return pickle.dumps(content, protocol)


WHOLE = [pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
CODES = [ord(opcode.code) for opcode in pickletools.opcodes]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_wrong_bytes_load_or_say_why(tmp_path: Path, data: Any) -> None:
    content = bytearray(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255) | st.sampled_from(CODES))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path / "a.pkl"
    path.write_bytes(content)
    try:
        loaded = pickles.load_file(path)
    except DataError as error:
        said = str(error)
    else:
        said = f"a.pkl is {loaded.fingerprint}"
    assert "a.pkl" in said

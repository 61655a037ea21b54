"""Scores against hand computations, and which data belong on which environment."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

from mtm.control.scores import REFERENCES, normalized_score
from mtm.core.errors import ConfigError, MTMError
from mtm.data.environment_ids import (
    EnvironmentMismatchError,
    check_environment,
    environment_to_act_in,
    family,
    is_adroit,
    matching_environment,
    replacement,
)
from mtm.data.trajectories import Metadata

D4RL_WALKER = Metadata(source="walker2d_medium_replay-v2.hdf5")
D4RL_HOPPER = Metadata(source="hopper_medium-v2.hdf5")


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("Hopper-v5", "hopper"),
        ("Hopper-v2", "hopper"),
        ("Walker2d-v4", "walker2d"),
        ("HalfCheetah-v5", "halfcheetah"),
        ("Ant-v5", "ant"),
        ("AdroitHandDoor-v1", "door"),
        ("AdroitHandPen-v1", "pen"),
        ("AdroitHandHammerSparse-v1", "hammer"),
        ("gymnasium_robotics:AdroitHandRelocate-v1", "relocate"),
        ("hopper-medium-replay-v2", "hopper"),
        ("door-human-v1", "door"),
        ("pen-v0", "pen"),
        ("dmc:walker-walk", None),
        ("dmc:hopper-hop", None),
        ("antmaze-umaze-v2", None),
        ("AntMaze_UMaze-v5", None),
        ("HumanoidStandup-v5", None),
        ("Pendulum-v1", None),
        ("", None),
        (None, None),
    ],
)
def test_family(env_id: str | None, expected: str | None) -> None:
    assert family(env_id) == expected


@pytest.mark.parametrize("key", REFERENCES)
def test_low_scores_0_and_high_scores_100(key: str) -> None:
    score = normalized_score(f"{key}-expert-v1", REFERENCES[key])
    assert score is not None
    np.testing.assert_allclose(score, [0, 100], atol=1e-12)


def test_score_by_hand() -> None:
    score = normalized_score("Hopper-v5", [[1607.013848, 3234.3], [-20.272305, 3559.757231]])
    assert score is not None
    assert score.dtype == np.float64
    np.testing.assert_allclose(score, [[50, 100], [0, 110]], atol=1e-4)


def test_a_single_return_has_a_single_score() -> None:
    score = normalized_score("Walker2d-v5", 4592.3)
    assert score is not None
    assert score.shape == ()
    assert float(score) == pytest.approx(100)


def test_no_reference_no_score() -> None:
    assert normalized_score("dmc:walker-walk", [1.0]) is None
    assert normalized_score(None, [1.0]) is None


def test_adroit() -> None:
    assert is_adroit("AdroitHandPen-v1")
    assert is_adroit("door-expert-v1")
    assert not is_adroit("Hopper-v5")
    assert not is_adroit(None)


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("Hopper-v2", "Hopper-v4"),
        ("Humanoid-v3", "Humanoid-v4"),
        ("Hopper-v4", None),
        ("Hopper", None),
        ("AdroitHandPen-v1", None),
        ("Pendulum-v1", None),
    ],
)
def test_replacement_of_retired_ids(env_id: str, expected: str | None) -> None:
    assert replacement(env_id) == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (D4RL_WALKER, "Walker2d-v4"),
        (Metadata(source="d4rl:hopper-medium-expert-v2"), "Hopper-v4"),
        (Metadata(source="/data/halfcheetah_full_replay-v2.hdf5"), "HalfCheetah-v4"),
        (Metadata(source="pen-expert-v1.hdf5"), "AdroitHandPen-v1"),
        (Metadata(env_id="Walker2d-v2"), "Walker2d-v4"),
        (Metadata(env_id="hopper-medium-v0"), "Hopper-v4"),
        (Metadata(env_id="Hopper-v5", source="hopper_medium-v2.hdf5"), "Hopper-v5"),
        (Metadata(env_id="dmc:walker-walk"), "dmc:walker-walk"),
        (Metadata(source="hopper-medium-replay.hdf5"), None),
        (Metadata(), None),
    ],
)
def test_matching_environment(metadata: Metadata, expected: str | None) -> None:
    assert matching_environment(metadata) == expected


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        (None, None),
        ("Hopper-v2", "Hopper-v4"),
        ("dmc:walker-walk", "dmc:walker-walk"),
        ("subprocess:Thing-v0", "subprocess:Thing-v0"),  # imported already, by this test
    ],
)
def test_the_environment_to_act_in(env_id: str | None, expected: str | None) -> None:
    assert environment_to_act_in(Metadata(env_id=env_id)) == expected


def test_a_data_file_does_not_decide_what_is_imported() -> None:
    with pytest.raises(ConfigError, match="If you trust it, .* --env some_module:Thing-v0"):
        environment_to_act_in(Metadata(env_id="some_module:Thing-v0"))


@pytest.mark.parametrize(
    ("metadata", "env_id"),
    [
        (Metadata(env_id="Hopper-v5"), "Hopper-v5"),
        (Metadata(env_id="Walker2d-v2"), "Walker2d-v4"),
        (Metadata(env_id="Walker2d-v3"), "Walker2d-v4"),
        (D4RL_WALKER, "Walker2d-v4"),
        (D4RL_HOPPER, "Hopper-v4"),
        (Metadata(source="door-human-v1.hdf5"), "AdroitHandDoor-v1"),
        (Metadata(env_id="AdroitHandDoor-v1"), "AdroitHandDoorSparse-v1"),
        (Metadata(env_id="Pendulum-v1"), "gymnasium:Pendulum-v1"),
        (Metadata(), "Walker2d-v5"),
        (Metadata(source="my-robot.hdf5"), "dmc:walker-run"),
    ],
)
def test_what_belongs_together_passes_silently(metadata: Metadata, env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_environment(metadata, env_id)


@pytest.mark.parametrize(
    ("metadata", "env_id", "message"),
    [
        (Metadata(env_id="Hopper-v5"), "Walker2d-v5", "Hopper-v5, not on Walker2d-v5. Use Hopper"),
        (D4RL_HOPPER, "HalfCheetah-v4", "Hopper-v2, not on HalfCheetah-v4. Use Hopper-v4"),
        (Metadata(env_id="dmc:walker-walk"), "Walker2d-v5", "dmc:walker-walk, not on Walker2d"),
        (Metadata(env_id="Pendulum-v1"), "Hopper-v5", "Pendulum-v1, not on Hopper-v5"),
        (Metadata(env_id="Hopper-v2"), "Hopper-v2", "does not run .* Use Hopper-v4"),
        (Metadata(), "Ant-v3", "Ant-v3 does not run .* Use Ant-v4"),
        (D4RL_WALKER, "Walker2d-v5", "friction of the right foot.* Use Walker2d-v4"),
        (Metadata(env_id="Walker2d-v2"), "Walker2d-v5", "friction.* Use Walker2d-v4"),
        (Metadata(env_id="Walker2d-v4"), "Walker2d-v5", "friction.* Use Walker2d-v4"),
    ],
)
def test_what_does_not_is_refused(metadata: Metadata, env_id: str, message: str) -> None:
    with pytest.raises(EnvironmentMismatchError, match=message) as caught:
        check_environment(metadata, env_id)
    assert isinstance(caught.value, MTMError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("metadata", "env_id", "message"),
    [
        (Metadata(env_id="Walker2d-v5"), "Walker2d-v4", "versions differ.* Walker2d-v5 would"),
        (D4RL_HOPPER, "Hopper-v5", "Hopper-v2.*versions differ.* Hopper-v4 would match"),
        (Metadata(env_id="dmc:walker-walk"), "dmc:walker-run", "tasks differ"),
    ],
)
def test_what_may_differ_is_warned_of(metadata: Metadata, env_id: str, message: str) -> None:
    with pytest.warns(UserWarning, match=message) as caught:
        check_environment(metadata, env_id)
    assert caught[0].filename == __file__


def test_importing_costs_neither_a_simulator_nor_torch() -> None:
    code = (
        "import sys, mtm.data.environment_ids, mtm.control.environments\n"
        "print({'gymnasium', 'mujoco', 'dm_control', 'torch'} & {*sys.modules})"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.strip() == "set()"

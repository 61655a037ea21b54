"""One pass through a run's network: whatever masks the rows have, the answers are the network's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mtm.core.config import TrainConfig, preset
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference.engine import ask, ask_members
from mtm.inference.forward import MOST_MASKS, forward, tensors
from mtm.models.fixed_mask import FixedMasks
from mtm.models.members import Members
from mtm.runs.run import Run
from mtm.training.train import train

B = 12


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "members"])
def run(request, tmp_path_factory, point_mass: TrajectoryDataset) -> Run:
    config = TrainConfig.from_json(
        {"steps": 1, "model": {"members": request.param}}, preset("tiny")
    )
    return train(point_mass, config, tmp_path_factory.mktemp("forward") / "run", silent=True)


def make_question(run: Run, masks: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Windows whose rows have so many masks, and what is wanted of them."""
    rng, T, M = np.random.default_rng(masks), run.segment_length, len(run.modalities)
    window = {m.name: rng.normal(size=(B, T, *m.shape)).astype(np.float32) for m in run.modalities}
    visible, wanted = rng.random((masks, T, M)) < 0.4, rng.random((masks, T, M)) < 0.4
    visible[-1] = False  # a mask that shows nothing
    which = rng.permutation(np.arange(B) % masks)
    return window, visible[which], wanted[which]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("masks", [1, 2, MOST_MASKS, MOST_MASKS + 1])
def test_the_answers_are_the_networks(run: Run, masks: int, each: bool) -> None:
    window, visible, wanted = make_question(run, masks)
    found = forward(run, window, visible, wanted, each=each)
    several = each and isinstance(run.model, Members)
    network = run.model.each if several else run.model
    with torch.no_grad():
        inputs = tensors(run, window, visible.shape[:2])
        expected = network(inputs, torch.from_numpy(visible), torch.from_numpy(wanted))
    for mine, others in zip(found, expected, strict=True):
        assert mine.keys() == others.keys()
        for name in mine:
            assert mine[name].shape == others[name].shape
            here = torch.from_numpy(wanted[:, :, run.modalities.place(name)])
            where = (slice(None), here) if several else here
            torch.testing.assert_close(mine[name][where], others[name][where], rtol=1e-4, atol=1e-5)


def test_modalities_that_are_not_visible_need_not_be_given(run: Run) -> None:
    window, visible, wanted = make_question(run, 1)
    visible[:] = False
    visible[:, 0, run.modalities.place("states")] = True
    name = run.modalities.names[0]
    whole = ask(run, window, visible, [name], wanted)
    alone = ask(run, {"states": window["states"]}, visible, [name], wanted)
    assert np.array_equal(whole[name], alone[name])
    members = ask_members(run, window, visible, [name], wanted)[name]
    assert members.shape == (run.members, *whole[name].shape)


def test_a_run_elsewhere_has_masks_of_its_own(run: Run) -> None:
    window, visible, wanted = make_question(run, 2)
    here = forward(run, window, visible, wanted)
    moved = run.to("cpu")
    assert isinstance(moved.fixed_masks, FixedMasks)
    assert moved.fixed_masks is not run.fixed_masks
    with torch.no_grad():
        for parameter in moved.model.parameters():
            parameter.zero_()
    there, again = (forward(r, window, visible, wanted) for r in (moved, run))
    for name, values in here.values.items():
        assert torch.equal(values, again.values[name])
        assert not torch.equal(values, there.values[name])

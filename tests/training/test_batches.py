"""Inputs of steps: masks stay on the CPU whoever wraps the network; making ahead is faithful."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch.distributed.utils import _recursive_to, _to_kwargs

import mtm
from mtm.data.formats import builtin
from mtm.data.modalities import Modality
from mtm.data.normalizer import Normalizer
from mtm.data.preparation import prepare
from mtm.data.segments import Segments
from mtm.masks import training_mask
from mtm.models.network import make_network
from mtm.runs.description import Description
from mtm.training.batches import BatchMaker, Masks, StepInput, chosen_steps, made_for
from mtm.training.masked_model import MaskedForward
from mtm.training.prefetch import Prefetcher

META = torch.device("meta")


@pytest.fixture(scope="module")
def maker() -> BatchMaker:
    config = replace(mtm.preset("tiny"), loss_on="hidden", batch_size=8)
    data = prepare(builtin.point_mass(20, 30), config)
    description = Description(config, data.modalities, Normalizer.fit(data), {})
    segments = Segments(data, config.model.segment_length)
    return BatchMaker(description, segments, training_mask(config))


def same(a: StepInput, b: StepInput) -> bool:
    pairs = [(a.values[name], b.values[name]) for name in a.values]
    pairs += [(a.weights, b.weights), (a.hidden, b.hidden), (a.totals, b.totals)]
    pairs += [(a.masks.visible, b.masks.visible), (a.masks.wanted, b.masks.wanted)]
    return all(torch.equal(one, other) for one, other in pairs)


def test_ddp_moves_the_values_and_leaves_the_masks(maker) -> None:
    """By what DDP does to its arguments where it has a GPU; another device stands for that."""
    inputs = maker(0)
    ((values, masks),) = _recursive_to((inputs.values, inputs.masks), META, False)
    assert all(value.device == META for value in values.values())
    assert masks is inputs.masks
    (moved,), (named,) = _to_kwargs((inputs.values,), {"masks": inputs.masks}, META, False)
    assert moved[0]["states"].device == META
    assert named["masks"].visible is inputs.masks.visible
    bare = _recursive_to((inputs.masks.visible,), META, False)
    assert bare[0][0].device == META  # what would happen without the box


def test_a_step_s_input_moves_all_but_the_masks(maker) -> None:
    inputs = maker(0)
    moved = inputs.to(META)
    assert {t.device for t in (*moved.values.values(), moved.weights, moved.totals)} == {META}
    assert moved.hidden.device == META
    assert moved.masks is inputs.masks
    assert inputs.to(torch.device("cpu")).weights is inputs.weights


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_the_masks_that_reach_the_network_are_those_that_were_made(maker, precision) -> None:
    inputs, seen = maker(0), {}
    network = make_network(maker.modalities, maker.config.model)

    def spy(module, arguments) -> None:
        _, seen["visible"], seen["wanted"] = arguments

    network.register_forward_pre_hook(spy)
    model = Fabric(accelerator="cpu", devices=1, precision=precision).setup(MaskedForward(network))
    model(inputs.values, inputs.masks)
    for name, flat in seen.items():
        mask = getattr(inputs.masks, name)
        assert mask.shape == inputs.weights.shape  # (B, T, M)
        assert flat.data_ptr() == mask.data_ptr()
        assert flat.dtype == torch.bool
    assert [n for n, _ in model.named_parameters()] == [
        f"_forward_module.network.{n}" for n, _ in network.named_parameters()
    ]
    everything = Masks(inputs.masks.visible, None)
    (predictions,) = model(inputs.values, everything)
    assert set(predictions.values) == set(inputs.values)


@pytest.mark.parametrize("loss_on", ["wanted", "all", "hidden"])
def test_the_loss_counts_what_the_settings_say(maker, loss_on) -> None:
    config = replace(maker.config, loss_on=loss_on, mask="random+rcbc-now", batch_size=64)
    description = Description(config, maker.modalities, maker.normalizer, {})
    inputs = BatchMaker(description, maker.segments, training_mask(config))(0)
    visible, counted = inputs.masks.visible, inputs.weights > 0
    assert torch.equal(inputs.totals, inputs.weights.sum(dim=(0, 1)))
    assert torch.equal(inputs.hidden, counted & ~visible)
    if loss_on == "all":
        assert counted.all()
        assert inputs.masks.wanted is None
        return
    assert (inputs.masks.wanted | ~counted).all()
    if loss_on == "hidden":
        assert torch.equal(counted, ~visible)
        assert set(inputs.weights.unique().tolist()) == {0.0, 1.0}
        return
    single = counted.sum(dim=(1, 2)) == 1  # wants the action now; random masks want everything
    assert 10 < single.sum() < 54
    assert counted[~single].all()
    actions = inputs.weights.sum(dim=1)[:, 2]
    assert torch.equal(actions, torch.ones(64))  # each sample's actions count alike


@pytest.mark.parametrize(
    ("states_visible", "chosen"),
    [("....", "1111"), ("X...", "1111"), (".X..", ".111"), ("X.X.", "..11"), ("XXXX", "...1")],
)
def test_an_action_is_chosen_where_no_later_state_is_visible(states_visible, chosen) -> None:
    modalities = (Modality("actions", (1,), role="action"), Modality("states", (2,)))
    visible = np.zeros((1, 4, 2), bool)
    visible[0, :, 1] = [c == "X" for c in states_visible]
    visible[0, 3, 0] = True  # a later action tells nothing of what came of this one
    assert chosen_steps(modalities, visible)[0].tolist() == [c == "1" for c in chosen]


def test_processes_share_a_batch(maker) -> None:
    whole = maker(3)
    description = Description(maker.config, maker.modalities, maker.normalizer, {})
    for rank in (0, 1):
        part = BatchMaker(description, maker.segments, maker.mask, rank=rank, processes=2)(3)
        assert torch.equal(part.masks.visible, whole.masks.visible[rank::2])
        assert torch.equal(part.values["states"], whole.values["states"][rank::2])
        assert torch.equal(part.totals, whole.totals)


def test_only_a_gpu_is_made_ahead_for(maker) -> None:
    assert made_for(torch.device("cpu"), maker, 9) is maker
    assert isinstance(made_for(torch.device("cuda", 1), maker, 9), Prefetcher)


def test_what_is_made_ahead_is_the_same_in_the_same_order(maker) -> None:
    ahead = Prefetcher(maker, end=12)
    assert all(same(ahead(step), maker(step)) for step in range(5, 12))
    ahead.close()


def test_no_more_is_made_ahead_than_may_wait() -> None:
    made = []
    ahead = Prefetcher(made.append, end=1000, ahead=2)
    assert ahead(0) is None
    time.sleep(0.1)
    assert made == [0, 1, 2, 3]  # taken; two wait; one waits for room
    ahead.close()
    assert len(made) <= 5


def test_an_error_is_raised_by_the_step_that_it_belongs_to() -> None:
    def make(step: int) -> int:
        return 10 // (7 - step)

    ahead = Prefetcher(make, end=100)
    assert [ahead(step) for step in (5, 6)] == [5, 10]
    with pytest.raises(ZeroDivisionError) as error:
        ahead(7)
    assert getattr(error.value, "__notes__", ["step 7"])[0].endswith("step 7 was made")
    assert "make" in [entry.name for entry in error.traceback]
    ahead.close()


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_closing_ends_the_thread(taken) -> None:
    before = threading.active_count()
    ahead = Prefetcher(lambda step: step, end=3)
    assert [ahead(step) for step in range(taken)] == list(range(taken))
    ahead.close()
    assert threading.active_count() == before


def test_closing_waits_for_what_is_being_made() -> None:
    began, done = threading.Event(), []

    def make(step: int) -> int:
        if step == 1:
            began.set()
            time.sleep(0.1)
            done.append(step)
        return step

    ahead = Prefetcher(make, end=1000)
    ahead(0)
    began.wait()
    ahead.close()
    assert done == [1]

"""Members: several networks stacked are those networks, and answer together."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.heads import Predictions
from mtm.models.members import Members, combined
from mtm.models.network import Network, make_network

STATES = Modality("states", (3,), role="state")
MODE = Modality("mode", (), kind="discrete", classes=4)
ACTIONS = Modality("actions", (2,), role="action")
MODALITIES = (STATES, MODE, ACTIONS)
B, T, M, K = 7, 4, 3, 3
CONFIG = ModelConfig(width=16, heads=2, encoder_layers=2, decoder_layers=2, segment_length=T)


def make(config: ModelConfig, members: int) -> tuple[Members, list[Network]]:
    """Members, and the networks that they should be, from the same random numbers."""
    torch.manual_seed(5)
    stacked = make_network(MODALITIES, replace(config, members=members))
    torch.manual_seed(5)
    alone = [make_network(MODALITIES, config) for _ in range(members)]
    assert isinstance(stacked, Members)
    return stacked, alone


def make_values(length: int = T) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return {
        "states": torch.randn(B, length, 3, generator=rng),
        "mode": torch.randint(4, (B, length), generator=rng),
        "actions": torch.randn(B, length, 2, generator=rng),
    }


def random_mask(length: int = T, share: float = 0.4) -> torch.Tensor:
    mask = torch.rand(B, length, M, generator=torch.Generator().manual_seed(2)) < share
    mask[0], mask[1] = True, False
    return mask


def test_each_member_has_the_weights_that_it_would_draw_alone() -> None:
    """The first those of a single network, and each the same however many follow."""
    few, alone = make(CONFIG, 2)
    many, _ = make(CONFIG, K)
    for number, network in enumerate(alone):
        for members in (few, many):
            mine = members.member(number).state_dict()
            assert mine.keys() == network.state_dict().keys()
            assert all(torch.equal(mine[name], t) for name, t in network.state_dict().items())
    assert not torch.equal(few.stacked.mask_tokens[0], few.stacked.mask_tokens[1])


def check_alike(
    stacked: Members,
    alone: list[Network],
    values: dict[str, torch.Tensor],
    visible: torch.Tensor,
    wanted: torch.Tensor | None,
) -> None:
    """The same answers, and the same gradients, up to rounding."""
    each = stacked.each(values, visible, wanted)
    sum(t.sin().sum() for part in each for t in part.values()).backward()
    for number, network in enumerate(alone):
        one = network(values, visible, wanted)
        for part, mine in zip(one, each.apart(len(alone))[number], strict=True):
            assert part.keys() == mine.keys()
            for name in part:
                torch.testing.assert_close(mine[name], part[name], rtol=1e-4, atol=1e-5)
        sum(t.sin().sum() for part in one for t in part.values()).backward()
        for name, parameter in network.named_parameters():
            gradient = stacked.stacked.get_parameter(name).grad
            assert gradient is not None
            assert parameter.grad is not None
            torch.testing.assert_close(gradient[number], parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("asks", ["all", "some", "one of each"])
@pytest.mark.parametrize("network", ["transformer", "mlp"])
def test_members_are_single_networks_side_by_side(network: str, asks: str) -> None:
    stacked, alone = make(replace(CONFIG, network=network), K)  # type: ignore[arg-type]
    wanted = None if asks == "all" else ~random_mask()
    if asks == "one of each":
        wanted = torch.zeros(B, T, M, dtype=torch.bool)
        wanted[:, 1] = True
    check_alike(stacked, alone, make_values(), random_mask(), wanted)


def test_members_see_long_segments_in_blocks() -> None:
    """Beyond joined rows, samples with equally many tokens form blocks, of each member apart."""
    length = 40
    stacked, alone = make(replace(CONFIG, segment_length=length), 2)
    visible = random_mask(length)  # one sample has 120 tokens
    check_alike(stacked, alone, make_values(length), visible, ~visible)


@pytest.mark.parametrize("shown", ["nothing", "a token", "two tokens"])
def test_members_see_little(shown: str) -> None:
    stacked, alone = make(CONFIG, 2)
    visible = torch.zeros(B, T, M, dtype=torch.bool)
    if shown != "nothing":
        visible[:, 0, 0] = True
    if shown == "two tokens":
        visible[:, 2, 1] = True
    check_alike(stacked, alone, make_values(), visible, None)


def test_hidden_values_have_no_influence_to_the_bit() -> None:
    stacked, _ = make(CONFIG, K)
    values, visible = make_values(), random_mask()
    before = stacked(values, visible)
    spoilt = {name: v.clone() for name, v in values.items()}
    for i, m in enumerate(MODALITIES):
        spoilt[m.name][~visible[:, :, i]] = 3 if m.kind == "discrete" else float("nan")
    after = stacked(spoilt, visible)
    for part, other in zip(before, after, strict=True):
        assert all(torch.equal(part[name], other[name]) for name in part)


def test_together_they_answer_with_means_and_their_disagreement_counts() -> None:
    values = torch.tensor([[1.0, 5.0], [3.0, 5.0]]).view(2, 1, 1, 2)
    logits = torch.tensor([[0.0, 0.0, -50.0, -50.0], [50.0, 0.0, 0.0, 0.0]]).view(2, 1, 1, 4)
    variances = torch.tensor([[0.5, 0.2], [1.5, 0.4]]).view(2, 1, 1, 2)
    each = Predictions({"mode": logits, "actions": values}, {"actions": variances.log()}, {})
    together = combined(MODALITIES, each)
    assert together.values.keys() == {"mode", "actions"}  # nobody asked for states
    torch.testing.assert_close(together.values["actions"], torch.tensor([[[2.0, 5.0]]]))
    expected = torch.tensor([[[1.0 + 1.0, 0.3]]])  # the mean variance, and that between them
    torch.testing.assert_close(together.log_variances["actions"].exp(), expected)
    chances = together.values["mode"].softmax(dim=-1)
    torch.testing.assert_close(chances, torch.tensor([[[0.75, 0.25, 0.0, 0.0]]]))


def test_members_that_predict_no_variance_still_disagree() -> None:
    stacked, _ = make(replace(CONFIG, predict_variance=False), K)
    answer = stacked(make_values(), random_mask())
    each = stacked.each(make_values(), random_mask())
    assert not each.log_variances
    variance = each.values["actions"].var(dim=0, unbiased=False)
    torch.testing.assert_close(answer.log_variances["actions"].exp(), variance)
    agreed = Predictions({"actions": torch.ones(2, 1, 1, 2)}, {}, {})
    assert combined(MODALITIES, agreed).log_variances["actions"].isfinite().all()


def test_a_copy_of_a_member_is_its_own() -> None:
    stacked, _ = make(CONFIG, 2)
    before = copy.deepcopy(stacked.state_dict())
    for parameter in stacked.eval().member(1).parameters():
        parameter.data.zero_()
    assert all(torch.equal(before[name], t) for name, t in stacked.state_dict().items())
    assert not stacked.member(0).training

"""The network: what is hidden or absent cannot matter, and every parameter does."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.masks import RandomAutoregressiveMask
from mtm.models.dropout import drop
from mtm.models.lines import between_visible
from mtm.models.mtm import MTM
from mtm.models.packing import Block, Expansion, Layout
from mtm.training.losses import (
    distances,
    reconstruction_losses,
    weighed_distances,
    weighed_errors,
)

ACTION_LOSSES = ("absolute", "squared")
MODALITIES = (
    Modality("states", (3,)),
    Modality("gripper", (), "discrete", 4),
    Modality("returns", (), role="return"),
    Modality("actions", (2, 2), role="action"),
)
B, T, M = 6, 5, len(MODALITIES)


def make_model(**changes) -> MTM:
    torch.manual_seed(0)
    sizes = {"segment_length": T, "width": 32, "heads": 2, **changes}
    return MTM(MODALITIES, ModelConfig(**sizes)).eval()


def make_values(seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "states": torch.randn(B, T, 3, generator=g),
        "gripper": torch.randint(4, (B, T), generator=g),
        "returns": torch.randn(B, T, generator=g),
        "actions": torch.randn(B, T, 2, 2, generator=g),
    }


def random_visible(seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(RandomAutoregressiveMask()(MODALITIES, T, B, rng))


def at(visible: torch.Tensor, name: str) -> torch.Tensor:
    """The mask of one modality, (B, T)."""
    return visible[:, :, [m.name for m in MODALITIES].index(name)]


def spoil(values: dict[str, torch.Tensor], chosen: torch.Tensor) -> dict[str, torch.Tensor]:
    """Replace the chosen tokens with the worst that can be stored there."""
    spoiled = {}
    for name, v in values.items():
        here = at(chosen, name).view(B, T, *[1] * (v.ndim - 2))
        spoiled[name] = v.masked_fill(here, 3 if name == "gripper" else float("nan"))
    return spoiled


def test_weights_keep_their_names_and_their_order() -> None:
    """Checkpoints of earlier versions know weights by name, those of optimizers by number."""
    parts = dict.fromkeys(name.split(".")[0] for name, _ in make_model().named_parameters())
    assert list(parts) == [
        *("encoder_modality_encoding", "decoder_modality_encoding", "mask_tokens"),
        *("encoders", "encoder", "to_decoder", "decoder", "heads"),
    ]
    names = [name for name, _ in make_model().named_parameters()]
    assert {"encoders.states.weight", "encoder.layers.0.mlp_in.bias"} <= set(names)
    assert {"decoder.norm.weight", "heads.actions.3.bias"} <= set(names)


def test_shapes_of_predictions() -> None:
    out = make_model()(make_values(), random_visible())
    assert {name: tuple(v.shape) for name, v in out.values.items()} == {
        "states": (B, T, 3),
        "gripper": (B, T, 4),
        "returns": (B, T),
        "actions": (B, T, 2, 2),
    }
    assert {name: tuple(v.shape) for name, v in out.log_variances.items()} == {
        "states": (B, T, 3),
        "returns": (B, T),
        "actions": (B, T, 2, 2),
    }
    silent = make_model(predict_variance=False)(make_values(), random_visible())
    assert not silent.log_variances


@pytest.mark.parametrize("most_blocks", [16, 1], ids=["dense blocks", "padded blocks"])
def test_only_wanted_tokens_are_predicted_and_alike(
    most_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtm.models.packing.MOST_BLOCKS", most_blocks)
    model, values, visible = make_model(decoder_layers=2), make_values(), random_visible()
    everything = model(values, visible).values
    wanted = torch.zeros(B, T, M, dtype=torch.bool)
    wanted[:, 3, 2] = wanted[1:, 2, 0] = wanted[2, :, 1] = True
    some = model(values, visible, wanted).values
    assert list(some) == ["states", "gripper", "returns"]
    for i, m in enumerate(MODALITIES[:3]):
        here = wanted[:, :, i]
        torch.testing.assert_close(some[m.name][here], everything[m.name][here])


def test_a_layout_knows_the_tokens_of_each_modality() -> None:
    chosen = random_visible()
    layout = Layout.by_count(chosen.flatten(1), torch.device("cpu"), M)
    assert len(layout.by_modality) == M
    for i, m in enumerate(MODALITIES):
        places = layout.tokens[layout.by_modality[i]]
        assert (places % M == i).all()
        assert len(places) == at(chosen, m.name).sum()
    assert Layout.by_count(chosen.flatten(1), torch.device("cpu")).by_modality == ()


def test_hidden_values_cannot_influence_a_prediction() -> None:
    model, values, visible = make_model(), make_values(), random_visible()
    reference = model(values, visible)
    spoiled = model(spoil(values, ~visible), visible)
    for part, same in zip(spoiled, reference, strict=True):
        for name, prediction in part.items():
            assert torch.equal(prediction, same[name]), name


def test_every_visible_value_can() -> None:
    model, values = make_model(), make_values()
    everything = torch.ones(B, T, M, dtype=torch.bool)
    reference = model(values, everything).values["states"]
    for m in MODALITIES:
        for t in range(T):
            changed = {k: v.clone() for k, v in values.items()}
            changed[m.name][:, t] = (changed[m.name][:, t] + 1) % 4
            assert not torch.equal(model(changed, everything).values["states"], reference), (
                m.name,
                t,
            )


def test_samples_do_not_see_each_other() -> None:
    model, values, visible = make_model(), make_values(), random_visible()
    alone = model({k: v[2:3] for k, v in values.items()}, visible[2:3]).values
    together = model(values, visible).values
    for name in alone:
        torch.testing.assert_close(alone[name][0], together[name][2])


@pytest.mark.parametrize("way", ["dense blocks", "padded blocks", "joined samples"])
def test_packing_gives_what_a_padded_encoder_gives(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packed encoder against attention over all tokens with the hidden ones masked out."""
    monkeypatch.setattr("mtm.models.packing.MOST_BLOCKS", 2 if way == "padded blocks" else 16)
    model, values, visible = make_model(), make_values(), random_visible()
    visible[0] = True  # one sample shows everything, so nothing is packed away for it
    visible[1] = False  # and one shows nothing
    lay_out = Layout.joined if way == "joined samples" else Layout.by_count
    layout = lay_out(visible.flatten(1), torch.device("cpu"))
    assert any(block.may_attend is not None for block in layout.blocks) == (way != "dense blocks")
    packed = model.encode(values, visible, layout)
    L = T * M
    everything = Block(None, B, L, B * L, torch.arange(B * L), visible.view(B, 1, 1, L))
    padded = model.encode(values, visible, Layout(torch.arange(B * L), (everything,)))
    torch.testing.assert_close(packed, padded[layout.tokens], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_tokens_that_samples_have_in_common_count_as_if_each_had_its_own(layers: int) -> None:
    """A decoder that is told which hidden tokens are the same, against one that is not."""
    model, values, visible = make_model(decoder_layers=layers), make_values(), random_visible()
    visible[0], visible[1] = True, False
    layout = Layout.joined(visible.flatten(1), torch.device("cpu"))
    latent = model.encode(values, visible, layout).detach().requires_grad_()

    def each_its_own() -> torch.Tensor:
        tokens = model.mask_tokens.repeat(B * T, 1)
        tokens = tokens.index_copy(0, layout.tokens, model.to_decoder(latent)).view(B, T, M, -1)
        tokens = tokens + model.positions(model.decoder_modality_encoding, T)
        nobody_has = torch.zeros(T * M, tokens.shape[-1])
        return model.decoder(tokens.flatten(0, 2), nobody_has, torch.arange(B * T * M), B)

    of = [latent, *(p for name, p in model.named_parameters() if name.startswith("decoder"))]
    of += [model.mask_tokens, *model.to_decoder.parameters()]
    got, expected = (
        (decoded, *torch.autograd.grad(decoded.sin().sum(), of))
        for decoded in (model.decode(latent, layout, B, T), each_its_own())
    )
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_expanding_rows_is_that_of_differences() -> None:
    expand = Expansion(torch.tensor([0, 3, 5, 10, 19]), batch=5, length=4)
    rows = torch.randn(5 + 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.equal(expand(rows)[5], rows[2])  # the second sample's own
    assert torch.equal(expand(rows)[6], rows[5 + 2])  # what all have at the third place
    assert torch.autograd.gradcheck(expand, rows)


def test_a_batch_that_shows_nothing_is_answered() -> None:
    model, values = make_model(), make_values()
    nothing = torch.zeros(B, T, M, dtype=torch.bool)
    for prediction in model(values, nothing).values.values():
        assert prediction.isfinite().all()


@pytest.fixture
def _process_group(tmp_path) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_process_group")
def test_a_process_whose_part_of_a_batch_shows_nothing_takes_part_in_the_gradient() -> None:
    """DDP waits for every parameter's gradient, and refuses the next step without."""
    model, values = make_model(dropout=0.1).train(), make_values()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    for visible in (torch.zeros(B, T, M, dtype=torch.bool), random_visible()):
        sum(p.sum() for p in parallel(values, visible).values.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("residual", [True, False])
def test_states_are_predicted_as_changes(residual: bool) -> None:
    model, values, visible = make_model(residual=residual), make_values(), random_visible()
    visible[:, 0] = True
    for p in model.heads["states"].parameters():
        torch.nn.init.zeros_(p)
    line = between_visible(values["states"], at(visible, "states"))
    expected = line if residual else torch.zeros(B, T, 3)
    assert torch.equal(model(values, visible).values["states"], expected)


def losses_of(model, values, visible, present, action_loss="absolute", **named):
    weights = present.float()
    totals = weights.sum(dim=(0, 1))
    hidden = present & ~visible
    out = model(values, visible)
    return reconstruction_losses(
        MODALITIES, out, values, weights, hidden, totals, action_loss, **named
    )


def test_absent_values_change_no_loss_and_no_gradient() -> None:
    present = torch.rand(B, T, M, generator=torch.Generator().manual_seed(1)) < 0.6
    visible = random_visible() & present
    gradients = []
    for values in (make_values(), spoil(make_values(), ~present)):
        model = make_model()
        losses_of(model, values, visible, present)[0].sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


def test_a_modality_absent_in_the_batch_gets_no_gradient_in_its_head() -> None:
    model = make_model()
    present = torch.ones(B, T, M, dtype=torch.bool)
    present[:, :, 3] = False
    visible = random_visible() & present
    losses_of(model, make_values(), visible, present)[0].sum().backward()
    for p in (*model.heads["actions"].parameters(), *model.encoders["actions"].parameters()):
        assert p.grad.abs().max() == 0


def test_every_parameter_gets_a_gradient() -> None:
    model = make_model()
    present = torch.ones(B, T, M, dtype=torch.bool)
    losses_of(model, make_values(), random_visible(), present)[0].sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.abs().max() > 0, name


def test_errors_are_squared_or_cross_entropies_and_the_loss_without_variances() -> None:
    model, values = make_model(predict_variance=False), make_values()
    everything = torch.ones(B, T, M, dtype=torch.bool)
    losses, errors = losses_of(model, values, everything, everything)
    assert torch.equal(losses, errors)
    out = model(values, everything).values
    torch.testing.assert_close(errors[0], ((out["states"] - values["states"]) ** 2).mean())
    logits, classes = out["gripper"].flatten(0, 1), values["gripper"].flatten()
    torch.testing.assert_close(errors[1], torch.nn.functional.cross_entropy(logits, classes))


def test_with_variances_sure_tokens_count_more_and_a_modality_as_much_as_before() -> None:
    """Two tokens that are off by as much as expected: the gradient is the same for both."""
    deviations = torch.tensor([[0.1], [1.0]])  # (B, T)
    value = deviations.clone().requires_grad_()
    log_variance = (2 * deviations.log()).requires_grad_()
    usual = (deviations**2).mean()
    weighed_errors(value, log_variance, torch.zeros(2, 1), usual).sum().backward()
    torch.testing.assert_close(
        value.grad, (2 * usual.sqrt()).expand(2, 1)
    )  # squared: 2 * deviation
    torch.testing.assert_close(log_variance.grad, torch.zeros(2, 1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("weigh", [weighed_errors, weighed_distances])
def test_variances_of_normal_errors_are_learned(weigh) -> None:
    """Whatever distribution the loss takes them for; of Laplace's, a normal one has 4/pi."""
    truth = 3 * torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))
    log_variance = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([log_variance], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        surely = log_variance.expand(20_000, 1)
        weigh(torch.zeros(20_000, 1), surely, truth, torch.tensor(1.0)).mean().backward()
        optimizer.step()
    expected = 9 * (4 / math.pi if weigh is weighed_distances else 1)
    assert log_variance.exp().item() == pytest.approx(expected, rel=0.05)


def test_of_actions_to_choose_the_median_is_learned_of_all_else_the_mean() -> None:
    """More lie far below than above, as where noise is cut off at a bound."""
    truth = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, -1.0, -2.0, -3.0, -4.0]).view(9, 1)
    found = {}
    for weigh in (weighed_distances, weighed_errors):
        value = torch.zeros(1, requires_grad=True)
        log_variance = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.Adam([value, log_variance], lr=0.02)
        for _ in range(800):
            optimizer.zero_grad()
            guess, surely = value.expand(9, 1), log_variance.expand(9, 1)
            weigh(guess, surely, truth, torch.tensor(1.0)).sum().backward()
            optimizer.step()
        found[weigh] = value.item()
    assert found[weighed_errors] == pytest.approx(float(truth.mean()), abs=0.05)
    assert found[weighed_distances] == pytest.approx(0.0, abs=0.05)


def test_an_action_that_is_visible_is_copied_whatever_its_loss() -> None:
    model, values = make_model(), make_values()
    everything = torch.ones(B, T, M, dtype=torch.bool)
    losses = [losses_of(model, values, everything, everything, a)[0] for a in ACTION_LOSSES]
    assert torch.equal(losses[0], losses[1])
    hidden = [losses_of(model, values, random_visible(), everything, a)[0] for a in ACTION_LOSSES]
    assert torch.equal(hidden[0][:3], hidden[1][:3])  # actions are the last modality
    assert not torch.equal(hidden[0][3], hidden[1][3])


@pytest.mark.parametrize("predict_variance", [True, False])
def test_only_chosen_actions_count_by_their_own_loss(predict_variance) -> None:
    """At other steps they count as everything else does."""
    model, values = make_model(predict_variance=predict_variance), make_values()
    present = torch.ones(B, T, M, dtype=torch.bool)
    nothing = torch.zeros(B, T, M, dtype=torch.bool)
    chosen = torch.rand(B, T, generator=torch.Generator().manual_seed(2)) < 0.5
    for at, loss in ((chosen, "absolute"), (~chosen, "squared")):
        here = present & at[:, :, None]
        found = losses_of(model, values, nothing, here, "absolute", chosen=chosen)[0]
        assert torch.equal(found, losses_of(model, values, nothing, here, loss)[0])


def test_what_is_done_precisely_counts_most() -> None:
    """Two actions that are off by as much as expected pull in proportion to how sure they are."""
    deviations = torch.tensor([[0.1], [1.0]])  # (B, T)
    value = deviations.clone().requires_grad_()
    log_variance = 2 * deviations.log()
    weighed_distances(value, log_variance, torch.zeros(2, 1), torch.tensor(1.0)).sum().backward()
    assert value.grad is not None
    assert (value.grad[0] / value.grad[1]).item() == pytest.approx(10)


def test_without_variances_distances_are_not_weighed() -> None:
    value, truth = torch.tensor([[[0.3, -0.1]]]), torch.zeros(1, 1, 2)
    expected = 2 * 2**0.5 * (torch.tensor([0.3, 0.1]).square() + 0.05**2).sqrt().mean()
    torch.testing.assert_close(distances(value, truth)[0, 0], expected)


def test_processes_add_up_their_variances_once_per_step() -> None:
    parts = []

    def total(part: torch.Tensor) -> torch.Tensor:
        parts.append(part.clone())
        return part

    model, values, visible = make_model(), make_values(), random_visible()
    present = torch.ones(B, T, M, dtype=torch.bool)
    losses_of(model, values, visible, present, total=total)
    (part,) = parts
    continuous = ["states", "returns", "actions"]
    assert part[:, 1].tolist() == [(~at(visible, name)).sum() for name in continuous]
    variances = model(values, visible).log_variances["returns"].exp()
    torch.testing.assert_close(part[1, 0], variances[~at(visible, "returns")].sum())


def test_dropout_acts_in_training_only() -> None:
    model, values, visible = make_model(dropout=0.5), make_values(), random_visible()

    def twice() -> tuple[torch.Tensor, torch.Tensor]:
        return model(values, visible).values["states"], model(values, visible).values["states"]

    assert torch.equal(*twice())
    model.train()
    assert not torch.equal(*twice())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1001, 333, requires_grad=True)
    y = drop(x, share)
    assert (y == 0).float().mean().item() == pytest.approx(share, abs=0.005)
    assert y.mean().item() == pytest.approx(1.0, abs=0.1 if share > 0.9 else 0.01)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # of ones: what is dropped gets no gradient
    torch.manual_seed(0)
    assert torch.equal(drop(x, share), y)


@pytest.mark.parametrize("length", [1, 64])
def test_any_segment_length(length: int) -> None:
    model = make_model(segment_length=length)
    values = {
        "states": torch.randn(2, length, 3),
        "gripper": torch.zeros(2, length, dtype=torch.int64),
        "returns": torch.randn(2, length),
        "actions": torch.randn(2, length, 2, 2),
    }
    out = model(values, torch.rand(2, length, M) < 0.5)
    assert out.values["states"].shape == (2, length, 3)

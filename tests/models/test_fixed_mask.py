"""The network specialised to one mask against the packed pass, and against the plain one."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.attention import FEW_PAIRS
from mtm.models.fixed_mask import MOST_MASKS_KEPT, FixedMask, FixedMasks
from mtm.models.fixed_parts import FEW_ROWS
from mtm.models.heads import Predictions
from mtm.models.members import Members
from mtm.models.mtm import MTM
from mtm.models.network import Network, make_network
from mtm.models.reference import predict_densely

MODALITIES = (
    Modality("states", (3,)),
    Modality("gripper", (), "discrete", 4),
    Modality("height", ()),
    Modality("returns", (), role="return"),
    Modality("actions", (2, 2), role="action"),
)
B, T, M = 4, 5, len(MODALITIES)
CONFIG = ModelConfig(segment_length=T, width=32, heads=2)


def make(config: ModelConfig = CONFIG) -> Network:
    torch.manual_seed(0)
    return make_network(MODALITIES, config).eval()


def make_values(length: int = T, batch: int = B) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    return {
        m.name: torch.randint(m.classes, (batch, length), generator=g)
        if m.kind == "discrete"
        else torch.randn(batch, length, *m.shape, generator=g)
        for m in MODALITIES
    }


def drawn(seed: int, share: float, length: int = T) -> Tensor:
    return torch.rand(length, M, generator=torch.Generator().manual_seed(seed)) < share


def tokens(*places: tuple[int, int]) -> Tensor:
    chosen = torch.zeros(T, M, dtype=torch.bool)
    for place in places:
        chosen[place] = True
    return chosen


def acting(now: int = 0) -> tuple[Tensor, Tensor]:
    """The state and the return now, and the action wanted."""
    return tokens((now, 0), (now, 3)), tokens((now, 4))


QUESTIONS = {
    "acting": acting(),
    "acting later": acting(3),
    "cloning": (tokens((0, 0)), tokens((0, 4))),
    "inverse dynamics": (tokens(*((t, 0) for t in range(T))), tokens((2, 4))),
    "every other state": (tokens((0, 0), (2, 0), (4, 0)), tokens((1, 0), (3, 0), (1, 4))),
    "a visible token": (tokens((0, 0), (0, 3), (2, 2)), tokens((0, 0), (1, 0), (2, 2), (0, 4))),
    "nothing visible": (tokens(), drawn(9, 0.5)),
    "everything": (~tokens(), ~tokens()),
    **{f"drawn {i}": (drawn(i, 0.15 * (i + 1)), drawn(10 + i, 0.3)) for i in range(6)},
}


def expected_of(found: Predictions, wanted: Tensor) -> Predictions:
    """The wanted tokens of predictions for whole segments, (..., T, *shape)."""
    parts = []
    for part in found:
        mine = {}
        for i, m in enumerate(MODALITIES):
            if m.name in part and wanted[:, i].any():
                steps = wanted[:, i].nonzero().squeeze(1)
                mine[m.name] = part[m.name].index_select(1, steps)
        parts.append(mine)
    return Predictions(*parts)


def assert_same(found: Predictions, expected: Predictions) -> None:
    # Variances, as their logarithms tell next to nothing apart where members agree.
    found, expected = (
        p._replace(log_variances={name: v.exp() for name, v in p.log_variances.items()})
        for p in (found, expected)
    )
    for mine, others in zip(found, expected, strict=True):
        assert mine.keys() == others.keys()
        for name in mine:
            torch.testing.assert_close(mine[name], others[name], rtol=1e-5, atol=1e-5, msg=name)


def compare(network: Network, visible: Tensor, wanted: Tensor, batch: int = B) -> None:
    values = make_values(len(visible), batch)
    shown, asked = (mask.expand(batch, -1, -1) for mask in (visible, wanted))
    with torch.no_grad():
        found = FixedMask(network, visible, wanted)(values)
        assert_same(found, expected_of(network(values, shown, asked), wanted))
        if isinstance(network, MTM):
            assert_same(found, expected_of(predict_densely(network, values, shown), wanted))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("members", [1, 3])
def test_it_answers_as_the_network_does(question: str, layers: int, members: int) -> None:
    compare(make(replace(CONFIG, decoder_layers=layers, members=members)), *QUESTIONS[question])


@pytest.mark.parametrize("question", ["acting", "cloning", "every other state"])
@pytest.mark.parametrize("batch", [1, 2, FEW_PAIRS, FEW_PAIRS + 1, FEW_ROWS, FEW_ROWS + 1])
def test_it_does_so_for_batches_of_any_size(question: str, batch: int) -> None:
    """Few rows and many are worked out in other ways."""
    compare(make(), *QUESTIONS[question], batch=batch)


@pytest.mark.parametrize("question", ["acting", "cloning", "a visible token"])
def test_asking_changes_nothing(question: str) -> None:
    """Sums are made in the memory of what is no longer needed, and of nothing else."""
    fixed, values = FixedMask(make(), *QUESTIONS[question]), make_values(batch=1)
    given = {name: value.clone() for name, value in values.items()}
    with torch.inference_mode():
        first, second = fixed(values).values["actions"], fixed(values).values["actions"]
    assert torch.equal(first, second)
    assert all(torch.equal(given[name], values[name]) for name in given)


@pytest.mark.parametrize("members", [1, 2])
def test_values_alone_are_the_same_values(members: int) -> None:
    network = make(replace(CONFIG, members=members, predict_variance=True, values=0.9))
    visible, wanted = QUESTIONS["everything"]
    with torch.no_grad():
        whole = FixedMask(network, visible, wanted).each(make_values())
        alone = FixedMask(network, visible, wanted, values_only=True).each(make_values())
    assert whole.log_variances
    assert whole.expectiles
    assert alone.log_variances == alone.expectiles == {}
    for name in whole.values:
        assert torch.equal(whole.values[name], alone.values[name])


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("members", [1, 2])
def test_a_perceptron_too(question: str, members: int) -> None:
    compare(make(replace(CONFIG, network="mlp", members=members)), *QUESTIONS[question])


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("predict_variance", [True, False])
@pytest.mark.parametrize("values", [0.0, 0.9])
@pytest.mark.parametrize("members", [1, 2])
def test_with_every_kind_of_prediction(
    residual: bool, predict_variance: bool, values: float, members: int
) -> None:
    changes = {"residual": residual, "predict_variance": predict_variance, "values": values}
    network = make(replace(CONFIG, members=members, **changes))
    for question in ("acting", "every other state", "drawn 2", "everything"):
        compare(network, *QUESTIONS[question])


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("members", [1, 2])
def test_the_network_of_the_original_too(question: str, members: int) -> None:
    compare(make(replace(CONFIG, original=True, members=members)), *QUESTIONS[question])


@pytest.mark.parametrize("length", range(1, T))
def test_fewer_steps_than_a_segment(length: int) -> None:
    compare(make(), drawn(length, 0.5, length), drawn(length + 20, 0.5, length))


def test_many_tokens() -> None:
    network = make(replace(CONFIG, segment_length=30))
    compare(network, drawn(0, 0.4, 30), drawn(1, 0.4, 30))


@pytest.mark.parametrize("kind", ["transformer", "mlp"])
def test_nothing_wanted(kind: str) -> None:
    network = make(replace(CONFIG, network=kind))  # type: ignore[arg-type]
    assert FixedMask(network, drawn(9, 0.5), tokens())(make_values()) == ({}, {}, {})


def test_each_member_answers_for_itself() -> None:
    members = make(replace(CONFIG, members=3))
    assert isinstance(members, Members)
    visible, wanted = QUESTIONS["drawn 1"]
    with torch.no_grad():
        each = FixedMask(members, visible, wanted).each(make_values()).apart(3)
        for number, mine in enumerate(each):
            alone = FixedMask(members.member(number), visible, wanted)
            assert_same(mine, alone(make_values()))


@pytest.mark.parametrize("kind", ["transformer", "mlp"])
def test_what_is_hidden_is_not_read(kind: str) -> None:
    network = make(replace(CONFIG, network=kind))  # type: ignore[arg-type]
    visible, wanted = QUESTIONS["acting later"]
    fixed, values = FixedMask(network, visible, wanted), make_values()
    spoilt = {name: values[name].clone() for name in ("states", "returns")}  # no other is needed
    for i, m in enumerate(MODALITIES):
        if m.name in spoilt:
            spoilt[m.name][:, ~visible[:, i]] = torch.nan
    with torch.no_grad():
        assert torch.equal(fixed(values).values["actions"], fixed(spoilt).values["actions"])


def test_the_weights_are_the_networks_own() -> None:
    network = make()
    known = {parameter.data_ptr() for parameter in network.parameters()}
    fixed = FixedMask(network, *QUESTIONS["drawn 3"])
    assert {parameter.data_ptr() for parameter in fixed.parameters()} <= known


def test_masks_are_kept_until_there_are_too_many() -> None:
    network, kept = make(), FixedMasks()
    wanted = tokens((0, 4)).numpy()
    masks = [tokens((i % T, 0), (i // T % T, 1), (i // T**2, 2)).numpy() for i in range(T**3)]
    first = kept.specialised(network, masks[0], wanted)
    for mask in masks[1:MOST_MASKS_KEPT]:
        kept.specialised(network, mask, wanted)
    assert kept.specialised(network, masks[0].copy(), wanted) is first
    for mask in masks[MOST_MASKS_KEPT : 2 * MOST_MASKS_KEPT - 1]:  # others, since it was asked
        kept.specialised(network, mask, wanted)
    assert kept.specialised(network, masks[0], wanted) is first
    for mask in masks[: MOST_MASKS_KEPT + 1]:
        last = kept.specialised(network, mask, wanted)
    assert kept.specialised(network, masks[0], wanted) is not first
    assert kept.specialised(network, masks[MOST_MASKS_KEPT], wanted) is last


@pytest.mark.parametrize("kind", ["transformer", "mlp"])
def test_changed_weights_are_noticed(kind: str) -> None:
    network, kept = make(replace(CONFIG, network=kind)), FixedMasks()  # type: ignore[arg-type]
    visible, wanted = (mask.numpy() for mask in QUESTIONS["acting"])
    before = kept.specialised(network, visible, wanted)
    assert kept.specialised(network, visible, wanted) is before
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1)
        found = kept.specialised(network, visible, wanted)(make_values())
        fresh = FixedMask(network, *QUESTIONS["acting"])(make_values())
    assert torch.equal(found.values["actions"], fresh.values["actions"])


def test_copies_of_kept_masks_begin_empty() -> None:
    kept = FixedMasks()
    made = kept.specialised(make(), *(mask.numpy() for mask in QUESTIONS["acting"]))
    for other in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        found = other.specialised(make(), *(mask.numpy() for mask in QUESTIONS["acting"]))
        assert found is not made


def test_threads_share_what_is_made_once() -> None:
    network, kept = make(), FixedMasks()
    visible, wanted = (mask.numpy() for mask in QUESTIONS["acting"])

    def ask(_: int) -> tuple[FixedMask, Tensor]:
        with torch.inference_mode():
            fixed = kept.specialised(network, visible, wanted)
            return fixed, fixed(make_values()).values["actions"]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(16)))
    assert len({id(fixed) for fixed, _ in found}) == 1
    assert all(torch.equal(actions, found[0][1]) for _, actions in found)
    assert not any(buffer.is_inference() for buffer in found[0][0].buffers())


@pytest.mark.parametrize(
    ("config", "question"),
    [
        ({}, "acting"),
        ({}, "a visible token"),
        ({"members": 2}, "acting"),
        ({"network": "mlp"}, "drawn 2"),
    ],
    ids=str,
)
def test_it_can_be_exported_with_any_batch(config: dict[str, object], question: str) -> None:
    fixed = FixedMask(make(replace(CONFIG, **config)), *QUESTIONS[question])
    values = {step.modality.name: make_values()[step.modality.name] for step in fixed.shown}
    batch = {name: {0: torch.export.Dim.DYNAMIC} for name in values}
    with torch.no_grad():
        exported = torch.export.export(fixed, (values,), dynamic_shapes=(batch,)).module()
        more = {name: torch.cat([v, v.flip(0), v]) for name, v in values.items()}
        assert_same(Predictions(*exported(more)), fixed(more))

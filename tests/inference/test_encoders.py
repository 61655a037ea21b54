"""Encoders as modules: the same numbers as `represent`, frozen to the byte or trained for real."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mtm.core.config import ModelConfig, preset
from mtm.core.errors import ConfigError, DataError, RunError
from mtm.data.modalities import Modality
from mtm.data.trajectories import TrajectoryDataset
from mtm.inference import queries
from mtm.inference.encoders import (
    ENCODED_AT_ONCE,
    StateActionEncoder,
    StateEncoder,
    encode_all,
)
from mtm.models.packing import Layout
from mtm.runs.run import Run
from mtm.training.train import train

WIDTH = 32


@pytest.fixture(scope="module")
def run(tmp_path_factory, point_mass) -> Run:
    config = replace(preset("tiny"), steps=20, model=ModelConfig(width=WIDTH, heads=2, dropout=0.1))
    return train(point_mass, config, tmp_path_factory.mktemp("r") / "run", silent=True)


@pytest.fixture
def states(point_mass) -> torch.Tensor:
    return torch.from_numpy(point_mass.arrays["states"][:60])


@pytest.fixture
def actions(point_mass) -> torch.Tensor:
    return torch.from_numpy(point_mass.arrays["actions"][:60])


def contents(module: nn.Module) -> dict[str, bytes]:
    return {name: t.detach().numpy().tobytes() for name, t in module.state_dict().items()}


def test_encodings_are_those_of_represent(run, states, actions) -> None:
    single = StateEncoder(run)(states.view(3, 20, 4))
    assert single.shape == (3, 20, WIDTH)
    expected = queries.represent(run, states.view(3, 20, 4).numpy())
    np.testing.assert_allclose(single.numpy(), expected, atol=1e-5)
    joint = StateActionEncoder(run.path)(states, actions)
    assert joint.shape == (60, 2 * WIDTH)
    expected = queries.represent(run, states.numpy(), actions.numpy())
    np.testing.assert_allclose(joint.numpy(), expected, atol=1e-5)
    assert (joint[:, :WIDTH] - single.view(60, WIDTH)).abs().max() > 0.01  # they see each other


def test_encoders_share_nothing_with_the_run_nor_each_other(run) -> None:
    one, two = StateEncoder(run), StateEncoder(run, trainable=True)
    kept = contents(two)
    with torch.no_grad():
        for tensor in one.state_dict().values():
            tensor.add_(1)
    assert contents(two) == kept
    assert contents(StateEncoder(run)) == contents(StateEncoder(run.path))


@pytest.mark.parametrize("names", [["states"], ["actions"], ["states", "actions"]])
def test_a_step_is_encoded_as_with_masks(run, states, actions, names) -> None:
    values = {"states": states, "actions": actions, "returns": torch.zeros(60)}
    normalised = {n: run.normalizer.normalize(n, v) for n, v in values.items()}
    visible = torch.tensor([[[m.name in names for m in run.modalities]]]).repeat(60, 1, 1)
    with torch.no_grad():
        layout = Layout.by_count(visible.flatten(1), torch.device("cpu"))
        steps = {n: v.unsqueeze(1) for n, v in normalised.items()}
        masked = run.model.encode(steps, visible, layout)
        dense = run.model.encode_step({n: normalised[n] for n in names})
    torch.testing.assert_close(dense.flatten(0, 1), masked, atol=1e-5, rtol=0)


def test_a_lone_token_and_a_pair_attend_as_in_general(run, states, actions) -> None:
    """The short cuts for one and two tokens give what PyTorch's attention gives."""
    layer = run.model.encoder.layers[0]
    for width in (1, 2):
        x = torch.randn(6 * width, WIDTH)
        q, k, v = layer.to_queries_keys_values(x).view(6, width, 3, 2, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        expected = layer.from_heads(mixed.transpose(1, 2).reshape(6 * width, WIDTH))
        got = layer._attention(x, Layout.full(6, width))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_state_and_projection(run, states, actions) -> None:
    plain = StateEncoder(run)(states)
    both = StateEncoder(run, with_state=True)
    assert both.features == WIDTH + 4
    out = both(states)
    torch.testing.assert_close(out[:, :WIDTH], plain)
    torch.testing.assert_close(out[:, WIDTH:], run.normalizer.normalize("states", states))
    small = StateActionEncoder(run, projection=3, with_state=True)
    assert small(states, actions).shape == (60, small.features) == (60, 7)
    assert [name for name, _ in small.named_parameters()] == [
        "projection.weight",
        "projection.bias",
    ]


@pytest.mark.parametrize("kind", [StateEncoder, StateActionEncoder])
@pytest.mark.parametrize("trainable", [False, True])
def test_frozen_means_not_one_weight_changes(run, states, actions, kind, trainable) -> None:
    encoder = kind(run, trainable=trainable)
    model = nn.ModuleList([encoder, nn.Linear(encoder.features, 1)]).train()
    before, run_before = contents(encoder), contents(run.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    inputs = (states,) if kind is StateEncoder else (states, actions)
    for _ in range(3):
        optimizer.zero_grad()
        model[1](encoder(*inputs)).square().mean().backward()
        optimizer.step()
    after = contents(encoder)
    changed = {name for name in before if before[name] != after[name]}
    statistics = {name for name in before if name.startswith(("mean_", "std_"))}
    assert changed == (set(before) - statistics if trainable else set())
    assert contents(run.model) == run_before  # the run's own weights are never touched


def test_a_frozen_encoder_stays_in_evaluation_mode(run, states) -> None:
    encoder = StateEncoder(run)
    nn.Sequential(encoder).train()
    assert not any(part.training for part in encoder.modules())
    assert torch.equal(encoder(states), encoder(states))
    assert not encoder(states).requires_grad
    trained = StateEncoder(run, trainable=True)
    assert not torch.equal(trained(states), trained(states))  # dropout
    assert torch.equal(trained.eval()(states), trained(states))


def test_gradients_flow_through_a_frozen_encoder(run, states, actions) -> None:
    asked = actions.clone().requires_grad_()
    StateActionEncoder(run)(states, asked)[:, 0].sum().backward()
    assert asked.grad is not None
    assert (asked.grad != 0).all(dim=1).all()


@pytest.mark.parametrize("trainable", [False, True])
def test_copies_are_independent_and_weights_can_be_saved(run, states, trainable) -> None:
    encoder = StateEncoder(run, trainable=trainable).eval()
    twin = copy.deepcopy(encoder)
    expected = encoder(states)
    with torch.no_grad():
        for tensor in twin.state_dict().values():
            tensor.add_(0.1)
    torch.testing.assert_close(encoder(states), expected)
    assert (twin(states) - expected).abs().max() > 0.01
    twin.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(twin(states), expected)


def test_a_whole_data_set_is_encoded_in_pieces(run) -> None:
    states = torch.randn(ENCODED_AT_ONCE + 10, 4)
    encoder = StateEncoder(run, trainable=True).eval()
    encoded = encode_all(encoder, states)
    assert not encoded.requires_grad
    torch.testing.assert_close(encoded[-10:], encoder(states[-10:]).detach(), atol=1e-5, rtol=0)


def test_discrete_actions(tmp_path) -> None:
    rng = np.random.default_rng(0)
    data = TrajectoryDataset.from_arrays(
        {"states": rng.random((80, 3)), "buttons": rng.integers(0, 4, 80)},
        [0, 40, 80],
        modalities=[
            Modality("states", (3,)),
            Modality("buttons", (), kind="discrete", classes=4, role="action"),
        ],
    )
    run = train(data, replace(preset("tiny"), steps=2), tmp_path / "run", silent=True)
    states, buttons = data.arrays["states"], data.arrays["buttons"]
    joint = StateActionEncoder(run)(torch.from_numpy(states), torch.from_numpy(buttons))
    np.testing.assert_allclose(joint.numpy(), queries.represent(run, states, buttons), atol=1e-5)


def test_members_are_encoded_side_by_side(states, actions, tmp_path, point_mass) -> None:
    model = ModelConfig(width=WIDTH, heads=2, members=3)
    config = replace(preset("tiny"), steps=2, model=model)
    run = train(point_mass, config, tmp_path / "run", silent=True)
    single = StateEncoder(run)
    assert single.features == 3 * WIDTH
    got = single(states.view(3, 20, 4)).view(60, 3, WIDTH)
    joint = StateActionEncoder(run, trainable=True)(states, actions)
    expected = queries.represent(run, states.numpy(), actions.numpy())
    np.testing.assert_allclose(joint.detach().numpy(), expected, atol=1e-5)
    for number in range(3):
        alone = replace(run, model=run.model.member(number))
        encoded = StateEncoder(alone)(states)
        np.testing.assert_allclose(got[:, number].numpy(), encoded.numpy(), atol=1e-5)
        pair = StateActionEncoder(alone)(states, actions).view(60, 2, WIDTH)
        mine = joint.view(60, 2, 3, WIDTH)[:, :, number].detach()
        np.testing.assert_allclose(mine.numpy(), pair.numpy(), atol=1e-5)
    mapped = torch.vmap(single)(states.view(3, 20, 4))
    np.testing.assert_allclose(mapped.numpy(), got.view(3, 20, -1).numpy(), atol=1e-5)


def test_what_cannot_be_encoded(run, states, actions, tmp_path, point_mass) -> None:
    with pytest.raises(DataError, match=r"modality 'states' has shape \(60, 3\).*\(4,\)"):
        StateEncoder(run)(states[:, :3])
    with pytest.raises(DataError, match=r"modality 'actions' has shape \(59, 2\)"):
        StateActionEncoder(run)(states, actions[1:])
    with pytest.raises(ConfigError, match="projection must be at least 1, got 0"):
        StateEncoder(run, projection=0)
    with pytest.raises(RunError, match="is not a run"):
        StateEncoder(tmp_path)
    config = replace(preset("tiny"), steps=2, modalities=("actions",))
    stateless = train(point_mass, config, tmp_path / "stateless", silent=True)
    with pytest.raises(ConfigError, match="exactly one modality of role 'state', there is none"):
        StateEncoder(stateless)


def torchrl_loss(run: Run, trainable: bool, *, several: bool):
    """TD3's loss with the encoder inside the critics, made of one module or of a list."""
    pytest.importorskip("torchrl", reason="the extra `baselines` is not installed")
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.objectives import SoftUpdate, TD3Loss

    from mtm.inference.plugins.tensordict import state_action_encoder, state_encoder

    actor = TensorDictSequential(
        state_encoder(run, trainable=trainable),
        TensorDictModule(nn.Linear(WIDTH, 2), ["latent"], ["action"]),
    )
    critic = TensorDictSequential(
        state_action_encoder(run, trainable=trainable).eval(),
        TensorDictModule(nn.Linear(2 * WIDTH, 1), ["latent"], ["state_action_value"]),
    )
    critics = [critic, copy.deepcopy(critic)] if several else critic
    loss = TD3Loss(actor.eval(), critics, bounds=(-torch.ones(2), torch.ones(2)))
    return loss, SoftUpdate(loss, tau=0.1)


@pytest.mark.parametrize(("trainable", "several"), [(False, False), (False, True), (True, True)])
def test_torchrl_keeps_pretrained_weights(run, trainable, several) -> None:
    loss, _ = torchrl_loss(run, trainable, several=several)
    original = StateActionEncoder(run).state_dict()
    for params in (loss.qvalue_network_params, loss.target_qvalue_network_params):
        kept = params["module", "0", "module"]
        for name, weights in original.items():
            held = kept[tuple(name.split("."))]
            assert held.shape == (2, *weights.shape)
            assert torch.equal(held[0], weights), name
            assert torch.equal(held[1], weights), name
    names = [name for name, _ in loss.named_parameters()]
    assert any("transformer" in name for name in names) == trainable


def test_torchrl_trains_what_is_trainable(run, states, actions) -> None:
    for trainable in (False, True):
        loss, targets = torchrl_loss(run, trainable, several=True)
        from tensordict import TensorDict

        before = {n: t.clone() for n, t in loss.state_dict().items() if "network_params" in n}
        adam = torch.optim.Adam([p for p in loss.parameters() if p.requires_grad], lr=1e-2)
        never = torch.zeros(60, 1, dtype=torch.bool)
        after = {"observation": states, "reward": torch.randn(60, 1)}
        after |= {"done": never, "terminated": never}
        batch = TensorDict({"observation": states, "action": actions, "next": after}, [60])
        out = loss(batch)
        (out["loss_actor"] + out["loss_qvalue"]).backward()
        adam.step()
        targets.step()
        now = loss.state_dict()
        moved = {n for n in before if not torch.equal(before[n], now[n])}
        encoders = {n for n in before if "transformer" in n}
        assert {n for n in encoders if n in moved} == (encoders if trainable else set())
        assert {n for n in before if "target_" in n and n.endswith("1.module.weight")} <= moved


def test_stable_baselines3_extracts_features(run, point_mass, tmp_path: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("stable_baselines3", reason="the extra `collect` is not installed")
    from stable_baselines3 import PPO, TD3

    from mtm.inference.plugins.sb3 import MTMFeatures

    class Still(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(4, np.float32), {}

        def step(self, action):
            return self.observation_space.sample(), float(action.sum()), False, False, {}

    for trainable in (False, True):
        kwargs = {"run": str(run.path), "trainable": trainable}
        agent = TD3(
            "MlpPolicy",
            Still(),
            learning_starts=10,
            batch_size=16,
            seed=0,
            policy_kwargs={
                "features_extractor_class": MTMFeatures,
                "features_extractor_kwargs": kwargs,
                "net_arch": [16],
            },
        )
        networks = [agent.actor, agent.actor_target, agent.critic, agent.critic_target]
        encoders = [network.features_extractor.encoder for network in networks]
        assert len({id(encoder) for encoder in encoders}) == 4
        before = [contents(encoder) for encoder in encoders]
        agent.learn(20)
        after = [contents(encoder) for encoder in encoders]
        assert [a != b for a, b in zip(before, after, strict=True)] == [trainable] * 4
        agent.save(tmp_path / "agent.zip")
        loaded = TD3.load(tmp_path / "agent.zip")
        same = contents(loaded.actor.features_extractor.encoder)
        assert same == after[0]
        # Its policies draw new weights for every linear layer that they find.
        policy = PPO("MlpPolicy", Still(), policy_kwargs=agent.policy_kwargs).policy
        pretrained = contents(StateEncoder(run, trainable=trainable))
        assert contents(policy.features_extractor.encoder) == pretrained
    with pytest.raises(ConfigError, match=r"observations have shape \(3,\).*shape \(4,\)"):
        MTMFeatures(gymnasium.spaces.Box(-1, 1, (3,)), run.path)

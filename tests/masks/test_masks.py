"""Each mask against a drawn picture; random ones by their properties."""

from __future__ import annotations

import numpy as np
import pytest

from mtm import masks
from mtm.core import config, names
from mtm.core.errors import ConfigError
from mtm.data.modalities import Modality
from mtm.masks import RandomAutoregressiveMask, RandomMask, make
from mtm.masks.capabilities import NAMED_MASKS, Question
from mtm.masks.training_masks import WEIGHTS

# Rows: states, returns, actions. ■ visible, ? wanted, · hidden.
PICTURES = {
    "bc": ("■■■■", "····", "■■■?"),
    "rcbc": ("■■■■", "■■■■", "■■■?"),
    "bc-now": ("···■", "····", "···?"),
    "rcbc-now": ("···■", "···■", "···?"),
    "id": ("■■■■", "····", "··?·"),
    "fd": ("■■■?", "····", "■■■·"),
    "bd": ("?■■■", "····", "■■■■"),
    "goal": ("■??■", "····", "???·"),
    "waypoints": ("■?■■", "····", "???·"),
    "past": ("??■■", "····", "??■■"),
    "plan": ("■???", "■···", "?···"),
}


def picture(question: Question) -> tuple[str, ...]:
    marks = np.where(question.visible, "■", np.where(question.wanted, "?", "·"))
    return tuple("".join(row) for row in marks.T)


@pytest.mark.parametrize("name", NAMED_MASKS)
def test_named_masks_look_like_their_pictures(name: str, modalities) -> None:
    assert picture(NAMED_MASKS[name].question(modalities, 4)) == PICTURES[name]


def test_an_earlier_moment_has_less_history(modalities) -> None:
    question = NAMED_MASKS["rcbc"].question(modalities, 4, now=1)
    assert picture(question) == ("■■··", "■■··", "■?··")


def test_named_masks_go_by_role_not_by_name() -> None:
    own = [Modality("qpos"), Modality("torque", role="action"), Modality("qvel")]
    assert picture(NAMED_MASKS["fd"].question(own, 3)) == ("■■?", "■■·", "■■?")


def test_settings_name_the_same_masks() -> None:
    assert names.MASKS == masks.NAMES
    assert tuple(NAMED_MASKS) == names.NAMED_MASKS
    for name in masks.NAMES:
        assert masks.summary(name)
        assert masks.make_mask(name) is not None


@pytest.mark.parametrize("name", NAMED_MASKS)
def test_specialised_training_draws_every_moment(name: str, modalities) -> None:
    pattern = NAMED_MASKS[name]
    drawn = pattern(modalities, 4, 200, np.random.default_rng(0))
    expected = {
        pattern.question(modalities, 4, now).visible.tobytes() for now in pattern.moments(4)
    }
    assert {mask.tobytes() for mask in drawn} == expected


def test_random_shows_the_same_count_of_each_modality(modalities) -> None:
    visible = RandomMask((0.4, 1.0))(modalities, 10, 5000, np.random.default_rng(0))
    counts = visible.sum(axis=1)
    assert set(counts[:, 0]) == set(range(4, 11))
    assert (counts == counts[:, :1]).all()
    assert abs(counts.mean() - 7) < 0.05
    assert abs(visible.mean(axis=(0, 2)) - visible.mean()).max() < 0.03  # any time alike


def test_a_share_of_random_masks_shows_or_hides_whole_modalities(modalities) -> None:
    whole = RandomMask(whole_modalities=1.0)(modalities, 4, 4000, np.random.default_rng(0))
    assert (whole == whole[:, :1]).all()
    combinations, counts = np.unique(whole[:, 0], axis=0, return_counts=True)
    assert len(combinations) == 7  # all but none of three
    assert counts.min() > 400
    some = RandomMask((0.5, 0.5), whole_modalities=0.2)(
        modalities, 4, 5000, np.random.default_rng(0)
    )
    usual = (some.sum(axis=1) == 2).all(axis=1)
    assert abs(usual.mean() - 0.8) < 0.02


def test_random_autoregressive_hides_everything_after_one_token(modalities) -> None:
    visible = RandomAutoregressiveMask()(modalities, 4, 5000, np.random.default_rng(0))
    tokens = visible.reshape(5000, 12)
    assert not tokens[:, -1].any()
    assert len({mask.tobytes() for mask in visible}) > 500  # samples do not share one mask


def test_random_autoregressive_respects_its_weights(modalities) -> None:
    mask = RandomAutoregressiveMask(RandomMask((1.0, 1.0)), {"returns": 1.0})
    tokens = mask(modalities, 4, 2000, np.random.default_rng(0)).reshape(2000, 12)
    first_hidden = tokens.argmin(axis=1)
    assert set(first_hidden) == {1, 4, 7, 10}
    everything_before = np.arange(12)[None] < first_hidden[:, None]
    assert (tokens == everything_before).all()


def test_the_original_draws_listed_shares_and_hides_what_follows_a_token(modalities) -> None:
    drawn = masks.make_mask("original")(modalities, 4, 20_000, np.random.default_rng(0))
    chance = {m.name: WEIGHTS[m.role] for m in modalities}
    # The last state is not cut off if the last time is drawn, and not the state of it.
    kept = 1 / 4 * (1 - chance["states"] / sum(chance.values()))
    # The shares make 1, 2, 2, 2, 3, 3, 3, 3 and 4 of four steps: 23 / 36; all of them in 1 of 9.
    assert drawn[:, 3, 0].mean() == pytest.approx(23 / 36 * kept, abs=0.01)
    assert drawn[:, :, 0].all(axis=1).mean() == pytest.approx(1 / 9 * kept, abs=0.005)
    # Each modality draws a share of its own.
    both = drawn[:, :3, :2].all(axis=1)
    assert (both[:, 0] != both[:, 1]).any()
    half = RandomMask(visible_fraction=(0.5, 0.55))
    few = masks.make_mask("original", random=half)(modalities, 4, 500, np.random.default_rng(0))
    assert few[:, :, 0].sum(axis=1).max() == 2
    with pytest.raises(ConfigError, match=r"visible_fraction 0.1 to 0.3 holds none of the shares"):
        masks.ListedShares((0.1, 0.3))(modalities, 4, 1, np.random.default_rng(0))


def test_one_mask_may_serve_a_whole_batch(modalities) -> None:
    present = np.ones((50, 4, 3), bool)
    present[:, :, 2] = False  # no actions: no question about them
    mix = masks.make_mask("random+id")
    for seed in range(20):
        question = masks.draw_one_for_all(mix, modalities, present, np.random.default_rng(seed))
        assert question.visible.shape == question.wanted.shape == present.shape
        assert (question.visible == question.visible[0]).all()
        assert question.wanted[:, :, 0].all()


def test_a_mix_draws_from_all_its_parts(modalities) -> None:
    mixed = masks.make_mask("fd+id")
    drawn = {m.tobytes() for m in mixed(modalities, 4, 400, np.random.default_rng(0))}
    fd, inverse = NAMED_MASKS["fd"], NAMED_MASKS["id"]
    expected = {fd.question(modalities, 4, now).visible.tobytes() for now in range(3)}
    expected.add(inverse.question(modalities, 4).visible.tobytes())
    assert drawn == expected
    with pytest.raises(ConfigError, match="unknown mask 'ids'"):
        masks.make_mask("fd+ids")


def test_a_mix_asks_samples_only_for_what_they_have(modalities) -> None:
    present = np.ones((900, 4, 3), bool)
    present[:300, :, 2] = False  # no actions
    present[300:600, 1:, 2] = False  # some
    mixed = masks.make_mask("fd+id")
    visible = masks.draw_questions(mixed, modalities, present, np.random.default_rng(0)).visible
    is_id = (visible == NAMED_MASKS["id"].question(modalities, 4).visible).all(axis=(1, 2))
    assert not is_id[:300].any()
    assert abs(is_id[300:600].mean() - 0.5) < 0.1
    assert abs(is_id[600:].mean() - 0.5) < 0.1
    no_states = np.ones((300, 4, 3), bool)
    no_states[:, :, 0] = False  # inverse dynamics would show nothing at all
    shown = masks.draw_questions(
        masks.make_mask("random+id"), modalities, no_states, np.random.default_rng(0)
    ).visible
    assert (shown & no_states).any(axis=(1, 2)).all()
    only_returns = np.zeros((50, 4, 3), bool)
    only_returns[:, :, 1] = True  # neither mask asks for these
    assert masks.draw_questions(
        mixed, modalities, only_returns, np.random.default_rng(0)
    ).visible.any()


def test_a_mix_draws_each_part_as_often_as_its_weight_says(modalities) -> None:
    for name in ("fd:0.1+id:0.6+random:0.3", {"fd": 1, "id": 6, "random": 3}):
        mixed = masks.make_mask(name)
        drawn = mixed(modalities, 4, 20_000, np.random.default_rng(0))
        is_id = (drawn == NAMED_MASKS["id"].question(modalities, 4).visible).all(axis=(1, 2))
        is_fd = np.zeros(len(drawn), bool)
        for now in range(3):
            is_fd |= (drawn == NAMED_MASKS["fd"].question(modalities, 4, now).visible).all(
                axis=(1, 2)
            )
        assert abs(is_id.mean() - 0.6) < 0.02  # a random mask may look like it, but hardly does
        assert abs(is_fd.mean() - 0.1) < 0.02


def test_weights_are_shared_out_among_the_masks_that_fit(modalities) -> None:
    present = np.ones((2000, 4, 3), bool)
    present[:, :, 2] = False  # no actions: inverse dynamics have nothing to ask for
    mixed = masks.make_mask("fd:0.2+id:0.7+past:0.2+waypoints:0")
    visible = masks.draw_questions(mixed, modalities, present, np.random.default_rng(0)).visible
    is_past = visible[:, 3, 0]  # of these four only past inference shows the last state
    assert abs(is_past.mean() - 0.5) < 0.05


def test_a_drawn_question_wants_what_its_mask_does(modalities) -> None:
    rng = np.random.default_rng(0)
    everything = np.ones((300, 4, 3), bool)
    named = masks.draw_questions(NAMED_MASKS["rcbc-now"], modalities, everything, rng)
    assert (named.wanted.sum(axis=(1, 2)) == 1).all()
    assert (named.wanted[:, :, 2] == named.visible[:, :, 0]).all()
    mixed = masks.draw_questions(masks.make_mask("random+fd"), modalities, everything, rng)
    whole = mixed.wanted.all(axis=(1, 2))  # random masks want all tokens
    assert abs(whole.mean() - 0.5) < 0.1
    assert (mixed.wanted[~whole].sum(axis=(1, 2)) == 1).all()


def test_balanced_asks_each_question_as_often_as_its_share_says(modalities) -> None:
    everything = np.ones((20_000, 4, 3), bool)
    drawn = masks.draw_questions(
        masks.make_mask("balanced"), modalities, everything, np.random.default_rng(0)
    )
    wants_all = drawn.wanted.all(axis=(1, 2))
    one_action = drawn.wanted[:, :, 2].any(axis=1) & ~wants_all
    now = one_action & (drawn.visible[:, :, 0].sum(axis=1) == 1)
    shares = make.BALANCED
    assert abs(wants_all.mean() - shares["random-autoregressive"]) < 0.02
    assert abs(now.mean() - shares["rcbc-now"] - shares["bc-now"]) < 0.02
    assert abs((one_action & ~now).mean() - shares["id"]) < 0.02


def test_balanced_asks_what_the_data_allow() -> None:
    own = [Modality("x"), Modality("torque", role="action")]  # no returns
    drawn = masks.make_mask("balanced")(own, 4, 500, np.random.default_rng(0))
    assert drawn.shape == (500, 4, 2)
    assert masks.make_mask("balanced")(own, 1, 500, np.random.default_rng(0)).any()  # nor a next
    alone = masks.make_mask("balanced")([Modality("x")], 4, 500, np.random.default_rng(0))
    assert 0 < alone.mean() < 1
    with pytest.raises(ConfigError, match="role return"):  # who names a mask, means it
        masks.make_mask("random+rcbc-now")(own, 4, 5, np.random.default_rng(0))


def test_a_mask_of_weight_zero_is_left_out() -> None:
    own = [Modality("x"), Modality("y")]  # no returns, which rcbc would need
    drawn = masks.make_mask("random:1+rcbc:0")(own, 4, 5, np.random.default_rng(0))
    assert drawn.shape == (5, 4, 2)


def test_equal_weights_draw_as_no_weights_do(modalities) -> None:
    plain = masks.make_mask("fd+id+random")(modalities, 4, 500, np.random.default_rng(3))
    weighed = masks.make_mask("fd:1+id:1+random:1")(modalities, 4, 500, np.random.default_rng(3))
    assert (plain == weighed).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fd:0.5+id", "give every mask a weight"),
        ("fd:x+id:1", "must be a number of at least 0, got 'x'"),
        ("fd:-1+id:1", "got '-1'"),
        ("fd:nan+id:1", "got 'nan'"),
        ("fd:inf+id:1", "got 'inf'"),
        ("fd:0+id:0", "at least one weight must be above 0"),
        ("fd:0.5+fd:0.5", "names 'fd' twice"),
        ("fd:0.5+ids:0.5", "unknown mask 'ids'"),
    ],
)
def test_bad_mixes_are_refused_in_settings_and_in_python(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        masks.make_mask(name)
    with pytest.raises(ConfigError, match=message):
        config.TrainConfig(mask=name)
    with pytest.raises(ConfigError, match="for each of its 1 masks"):
        masks.MixedMask((NAMED_MASKS["fd"],), (0.5, 0.5))


def test_a_question_for_each_sample_is_the_same_as_one_by_one(modalities) -> None:
    now = np.array([2, 0, 1, 2])
    batch = NAMED_MASKS["fd"].questions(modalities, 4, now)
    for row, moment in enumerate(now.tolist()):
        alone = NAMED_MASKS["fd"].question(modalities, 4, moment)
        assert (batch.visible[row] == alone.visible).all()
        assert (batch.wanted[row] == alone.wanted).all()
    with pytest.raises(ConfigError, match=r"now=3 makes no sense.*allowed: \[0, 1, 2\]"):
        NAMED_MASKS["fd"].questions(modalities, 4, np.array([0, 3]))


def test_any_modality_list_works() -> None:
    own = [Modality("a"), Modality("b"), Modality("c"), Modality("d")]
    assert RandomAutoregressiveMask()(own, 5, 3, np.random.default_rng(0)).shape == (3, 5, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: masks.make_mask("rccb"), "unknown mask 'rccb'. Did you mean 'rcbc'"),
        (lambda m: NAMED_MASKS["rcbc"].question(m[::2], 4), "role return"),
        (lambda m: NAMED_MASKS["fd"].question(m, 1), "a segment of at least 2 steps, got 1"),
        (lambda m: NAMED_MASKS["fd"].question(m, 4, now=3), r"allowed: \[0, 1, 2\]"),
        (
            lambda m: RandomAutoregressiveMask(weights={"state": 1})(
                m, 4, 1, np.random.default_rng(0)
            ),
            "Did you mean 'states'",
        ),
    ],
)
def test_faults_are_named(make, message: str, modalities) -> None:
    with pytest.raises(ConfigError, match=message):
        make(modalities)


def test_the_grid_labels_its_rows(modalities) -> None:
    question = NAMED_MASKS["rcbc"].question(modalities, 3)
    assert masks.draw(question.visible, modalities, question.wanted) == "\n".join(
        [
            "          0  1  2",
            "states    ■  ■  ■",
            "returns   ■  ■  ■",
            "actions   ■  ■  ?",
        ]
    )

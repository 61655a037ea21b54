"""The network specialised to one mask that all samples share, as when a policy acts.

What depends on the mask alone is worked out once: encodings of the visible tokens, mask tokens up
to the decoder's first attention, lines between visible states. Tokens that are neither visible nor
wanted, and heads that nobody asks, cost little or nothing. Nothing branches on values, so that
`torch.export` and `torch.onnx.export` take it, with any batch.

Letters as in `mtm.models.mtm`, E members, K visible tokens of a sample, W wanted ones, H heads.
Tokens are ordered by modality here, and those of one modality by time. Features are (B, tokens, D),
those of members (E, B, tokens, D).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtm.data.modalities import Modality
from mtm.models.attention import attend_within
from mtm.models.heads import Predictions
from mtm.models.lines import between_visible, has_line
from mtm.models.members import Members, combined
from mtm.models.mlp import MLP, token_size
from mtm.models.mtm import MTM
from mtm.models.stacked import products
from mtm.models.transformer import Decoder, Layer


class Steps(NamedTuple):
    """Some steps of one modality, rising."""

    modality: Modality
    times: tuple[int, ...]


class FixedMask(nn.Module):
    """A network that is asked one question, of whatever values.

    The weights are the network's own. What is made of them beforehand is not made anew: use it with
    weights that stay as they are, as those of a loaded run do.

    Args:
        network: In evaluation mode.
        visible: (T, M) booleans; T is at most `segment_length`, and equals it for an MLP.
        wanted: (T, M) booleans.

    Attributes:
        shown: The visible tokens, of each modality that has some.
        asked: The wanted ones.
    """

    def __init__(self, network: MTM | MLP | Members, visible: Tensor, wanted: Tensor) -> None:
        super().__init__()
        assert not network.training, "dropout has no place here"
        assert len(visible) <= network.config.segment_length
        visible, wanted = visible.cpu(), wanted.cpu()
        self.modalities, self.has_members = network.modalities, isinstance(network, Members)
        alone = network.stacked if isinstance(network, Members) else network
        self.shown, self.asked = _steps(alone.modalities, visible), _steps(alone.modalities, wanted)
        self.inputs = nn.ModuleDict({m.name: _Pick(times, dim=1) for m, times in self.shown})
        self.lines = nn.ModuleDict()
        with torch.no_grad():
            specialised = _Transformer if isinstance(alone, MTM) else _Perceptron
            self.network = specialised(alone, visible, wanted)  # type: ignore[arg-type]
            for m, times in self.asked if network.config.residual else ():
                if has_line(m) and m.name in self.inputs:
                    here = visible[:, alone.modalities.index(m)]
                    self.lines[m.name] = _Line(here, times)
        self.to(next(network.parameters()).device)

    def forward(self, values: Mapping[str, Tensor]) -> Predictions:
        """Predict the wanted tokens.

        Args:
            values: For each modality with visible tokens normalised values (B, T, *shape), or
                integer classes (B, T). What is stored at hidden tokens is not read. Where nothing
                is visible, any modality tells B.

        Returns:
            Predictions of the wanted tokens alone, modality -> (B, w, *shape): `asked` has their
            steps. Members answer together.
        """
        each = self.each(values)
        return combined(self.modalities, each) if self.has_members else each

    def each(self, values: Mapping[str, Tensor]) -> Predictions:
        """As `forward`, but what each member answers, with a leading axis; as it is, of one."""
        batch = next(iter(values.values())).shape[0]
        shown = {name: pick(values[name]) for name, pick in self.inputs.items()}  # (B, k, *shape)
        found: Predictions = self.network(shown, batch)
        for name, line in self.lines.items():
            found.values[name] = found.values[name] + line(shown[name])
        return found


class _Transformer(nn.Module):
    """`MTM` with one mask."""

    encoder_positions: Tensor  # (1, K, D), as all of these with a leading axis for members
    decoder_positions: Tensor  # (1, K, D)

    def __init__(self, network: MTM, visible: Tensor, wanted: Tensor) -> None:
        super().__init__()
        (T, M), self.width, self.members = visible.shape, network.config.width, network.members
        self.shown, self.asked = (_steps(network.modalities, c) for c in (visible, wanted))
        self.encoders = nn.ModuleList(network.encoders[m.name] for m, _ in self.shown)
        self.encoder, self.to_decoder = network.encoder, network.to_decoder
        self.heads = network.heads
        shown, hidden, asked = (_tokens(chosen) for chosen in (visible, ~visible, wanted))
        encoder_positions, decoder_positions = (
            network.positions(encoding, T).flatten(-3, -2).unsqueeze(-3)  # (1, L, D)
            for encoding in (network.encoder_modality_encoding, network.decoder_modality_encoding)
        )
        masks = network.mask_tokens.unsqueeze(-3).expand(*[-1] * (self.members > 1), T, M, -1)
        blank = (masks.flatten(-3, -2).unsqueeze(-3) + decoder_positions)[..., hidden, :]
        _hold(
            self,
            encoder_positions=encoder_positions[..., shown, :],
            decoder_positions=decoder_positions[..., shown, :],
        )
        if len(network.decoder.layers) == 1 and not set(asked) & set(shown):
            rows = [hidden.index(token) for token in asked]
            self.decoder: nn.Module = _DecoderOfHidden(network.decoder, blank, rows)
        else:
            order = [*shown, *hidden]
            rows = [order.index(token) for token in asked]
            self.decoder = _Decoder(network.decoder, blank, rows)

    def forward(self, shown: Mapping[str, Tensor], batch: int) -> Predictions:
        """Visible values, name -> (B, k, *shape), to predictions (B, w, *shape)."""
        predictions = Predictions({}, {}, {})
        if not self.asked:
            return predictions
        x = self.decoder(self._encode(shown, batch))  # (B, W, D)
        sizes = [len(times) for _, times in self.asked]
        parts = torch.split_with_sizes(x, sizes, dim=-2) if len(sizes) > 1 else [x]
        for (m, _), part in zip(self.asked, parts, strict=True):
            self.heads.read(m, self.heads[m.name](part), predictions)
        return predictions

    def _encode(self, shown: Mapping[str, Tensor], batch: int) -> Tensor:
        """What the decoder gets of the visible tokens, (B, K, D)."""
        leading = (self.members, batch) if self.members > 1 else (batch,)
        if not self.shown:
            return self.decoder_positions.new_empty(*leading, 0, self.width)
        tokens = [
            embed(_as_numbers(m, shown[m.name])).view(*leading, len(times), self.width)
            for embed, (m, times) in zip(self.encoders, self.shown, strict=True)
        ]
        x = (torch.cat(tokens, dim=-2) if len(tokens) > 1 else tokens[0]) + self.encoder_positions
        for layer in _layers(self.encoder):
            x = _attend_and_on(layer, x, *_queries_keys_values(layer, x))
        out: Tensor = self.to_decoder(self.encoder.norm(x)) + self.decoder_positions
        return out


class _Decoder(nn.Module):
    """`Decoder` of tokens of which the hidden ones are known: the visible ones, then the hidden.

    Args:
        decoder: The network's.
        blank: The hidden tokens as the decoder gets them, (1, L - K, D).
        rows: Places of the wanted ones among all of them.
    """

    blank: Tensor
    features: Tensor

    def __init__(self, decoder: Decoder, blank: Tensor, rows: Sequence[int]) -> None:
        super().__init__()
        self.layers, self.norm, self.pick = decoder.layers, decoder.norm, _Pick(rows, dim=-2)
        first = _layers(decoder)[0]
        features = first.to_queries_keys_values(first.attention_norm(blank))
        _hold(self, blank=blank, features=features)  # (1, L - K, 3 D)

    def forward(self, own: Tensor) -> Tensor:
        """The wanted tokens, (B, W, D), from the visible ones, (B, K, D)."""
        leading = own.shape[:-2]
        layer, *others = _layers(self)
        features = layer.to_queries_keys_values(layer.attention_norm(own))
        features = torch.cat([features, self.features.expand(*leading, -1, -1)], dim=-2)
        q, k, v = features.chunk(3, dim=-1)  # (B, L, D) each
        x = torch.cat([own, self.blank.expand(*leading, -1, -1)], dim=-2)  # (B, L, D)
        for following in others:
            x = _attend_and_on(layer, x, q, k, v)
            layer = following
            q, k, v = _queries_keys_values(layer, x)
        decoded: Tensor = self.norm(_attend_and_on(layer, self.pick(x), self.pick(q), k, v))
        return decoded


class _DecoderOfHidden(nn.Module):
    """`Decoder` of one layer that is asked for hidden tokens alone, as by a policy.

    What asks is the same in all samples then, and so is what the hidden tokens answer to it: as
    much as one token for each head. Keys of visible tokens are not made either: a query and the
    weights that make keys are a constant product, which gives scores at once.

    Args:
        decoder: The network's.
        blank: The hidden tokens as the decoder gets them, (1, L - K, D).
        rows: Places of the wanted ones among these.
    """

    weight: Tensor  # to scores of each wanted token and head, and to values, (W * H + D, D)
    bias: Tensor
    common_scores: Tensor  # of all hidden tokens together, (1, 1, W * H)
    common_values: Tensor  # what they answer, (1, W, H, D/H)
    wanted: Tensor  # as the decoder gets them, (1, W, D)

    def __init__(self, decoder: Decoder, blank: Tensor, rows: Sequence[int]) -> None:
        super().__init__()
        (self.layer,), self.norm = _layers(decoder), decoder.norm
        H, D = self.layer.heads, blank.shape[-1]
        project = self.layer.to_queries_keys_values
        features = project(self.layer.attention_norm(blank))  # (1, L - K, 3 D)
        q, k, v = (_by_head(part, H) for part in features.chunk(3, dim=-1))
        q = q[..., rows, :, :] / math.sqrt(D // H)  # (1, W, H, D/H)
        scores = torch.einsum("...whd,...lhd->...whl", q, k)
        _, weight_k, weight_v = project.weight.chunk(3, dim=-2)  # (D, D)
        _, bias_k, bias_v = project.bias.chunk(3, dim=-1)  # (D,)
        one = q.squeeze(-4)  # (W, H, D/H)
        to_scores = torch.einsum("...whd,...chd->...whc", one, _by_head(weight_k.mT, H))
        offsets = torch.einsum("...whd,...hd->...wh", one, _by_head(bias_k, H))
        _hold(
            self,
            weight=torch.cat([to_scores.flatten(-3, -2), weight_v], dim=-2),
            bias=torch.cat([offsets.flatten(-2), bias_v], dim=-1),
            common_scores=scores.logsumexp(dim=-1).flatten(-2).unsqueeze(-2),
            common_values=torch.einsum("...whl,...lhd->...whd", scores.softmax(dim=-1), v),
            wanted=blank[..., rows, :],
        )

    def forward(self, own: Tensor) -> Tensor:
        """The wanted tokens, (B, W, D), from the visible ones, (B, K, D)."""
        leading, (K, D) = own.shape[:-2], own.shape[-2:]
        W, H = self.common_values.shape[-3:-1]
        features = _linear(self.layer.attention_norm(own), self.weight, self.bias)
        scores, v = torch.split_with_sizes(features, [W * H, D], dim=-1)
        scores = torch.cat([scores, self.common_scores.expand(*leading, 1, W * H)], dim=-2)
        weights = scores.softmax(dim=-2).view(*leading, K + 1, W, H)
        mine, common = torch.split_with_sizes(weights, [K, 1], dim=-3)
        # (B, K, W, H, 1) times (B, K, 1, H, D/H)
        mixed = (mine.unsqueeze(-1) * v.view(*leading, K, 1, H, D // H)).sum(dim=-4)
        mixed = torch.addcmul(mixed, common.squeeze(-3).unsqueeze(-1), self.common_values)
        x = _on(self.layer, self.wanted, mixed.view(*leading, W, D))
        decoded: Tensor = self.norm(x)
        return decoded


class _Perceptron(nn.Module):
    """`MLP` with one mask, without the weights of hidden inputs and of outputs nobody wants."""

    weight_in: Tensor  # (D, numbers shown), of members (E, D, numbers)
    bias_in: Tensor
    weight_out: Tensor  # (numbers wanted, D)
    bias_out: Tensor

    def __init__(self, network: MLP, visible: Tensor, wanted: Tensor) -> None:
        super().__init__()
        assert len(visible) == network.config.segment_length
        self.shown, self.asked = (_steps(network.modalities, c) for c in (visible, wanted))
        self.members = network.members
        first, *middle = cast("list[nn.Linear]", list(network.hidden))
        self.middle, last = nn.ModuleList(middle), network.out
        numbers = torch.arange(first.in_features).view(len(visible), -1)  # (T, sizes)
        parts = torch.split_with_sizes(numbers, [token_size(m) for m in network.modalities], dim=1)
        by_name = {m.name: part for m, part in zip(network.modalities, parts, strict=True)}
        given, asked = (
            torch.cat([numbers[:0, 0], *(by_name[m.name][list(ts)].flatten() for m, ts in chosen)])
            for chosen in (self.shown, self.asked)
        )
        _hold(
            self,
            weight_in=first.weight[..., given],
            bias_in=first.bias,
            weight_out=last.weight[..., asked, :],
            bias_out=last.bias[..., asked],
        )

    def forward(self, shown: Mapping[str, Tensor], batch: int) -> Predictions:
        """Visible values, name -> (B, k, *shape), to predictions (B, w, *shape)."""
        inputs = [_one_hot(m, shown[m.name]).flatten(1) for m, _ in self.shown]
        x = torch.cat([self.weight_in.new_empty(batch, 0), *inputs], dim=1)  # (B, numbers)
        if self.members > 1:
            x = x.expand(self.members, -1, -1)
        x = F.gelu(_linear(x, self.weight_in, self.bias_in))
        for layer in self.middle:
            x = F.gelu(layer(x))
        out = _linear(x, self.weight_out, self.bias_out)  # (B, numbers)
        sizes = [len(times) * token_size(m) for m, times in self.asked]
        parts = torch.split_with_sizes(out, sizes, dim=-1)
        answers = {}
        for (m, times), part in zip(self.asked, parts, strict=True):
            shape = (m.classes,) if m.kind == "discrete" else m.shape
            answers[m.name] = part.reshape(*part.shape[:-1], len(times), *shape)
        return Predictions(answers, {}, {})


class _Pick(nn.Module):
    """Some places of an axis; without a copy where they are evenly spaced."""

    places: Tensor

    def __init__(self, places: Sequence[int], dim: int) -> None:
        super().__init__()
        self.dim = dim
        gaps = {after - before for before, after in pairwise(places)} or {1}
        self.slice = None
        if len(gaps) == 1 and places and (gap := gaps.pop()) > 0:
            self.slice = slice(places[0], places[-1] + 1, gap)
        self.register_buffer("places", torch.tensor(places, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.slice is None:
            return x.index_select(self.dim, self.places)
        return x[:, self.slice] if self.dim == 1 else x[..., self.slice, :]


class _Line(nn.Module):
    """Straight lines between the visible values of a modality: a product with a constant matrix."""

    matrix: Tensor

    def __init__(self, visible: Tensor, times: Sequence[int]) -> None:
        super().__init__()
        unit = torch.eye(len(visible)).unsqueeze(0)
        lines = between_visible(unit, visible.unsqueeze(0))[0]  # (T, T)
        self.register_buffer("matrix", lines[list(times)][:, visible], persistent=False)  # (w, k)

    def forward(self, shown: Tensor) -> Tensor:
        """(B, k, *shape) to (B, w, *shape)."""
        if shown.ndim == 2:
            return shown @ self.matrix.T
        return (self.matrix @ shown.flatten(2)).reshape(-1, len(self.matrix), *shown.shape[2:])


def _queries_keys_values(layer: Layer, x: Tensor) -> Sequence[Tensor]:
    return layer.to_queries_keys_values(layer.attention_norm(x)).chunk(3, dim=-1)  # type: ignore[no-any-return]


def _attend_and_on(layer: Layer, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A layer from its attention on, of the tokens that have queries."""
    return _on(layer, x, attend_within(q, k, v, layer.heads))


def _on(layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
    """What follows attention in a layer."""
    x = x + layer.from_heads(mixed)
    out: Tensor = x + layer.mlp_out(F.gelu(layer.mlp_in(layer.mlp_norm(x))))
    return out


def _layers(part: nn.Module) -> list[Layer]:
    return cast("list[Layer]", list(part.layers))  # type: ignore[arg-type]


def _hold(module: nn.Module, **constants: Tensor) -> None:
    for name, tensor in constants.items():
        module.register_buffer(name, tensor.detach(), persistent=False)


def _by_head(features: Tensor, heads: int) -> Tensor:
    """(..., D) to (..., H, D/H)."""
    return features.reshape(*features.shape[:-1], heads, -1)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer, or one of each member: weights (E, outputs, C)."""
    return F.linear(x, weight, bias) if weight.ndim == 2 else products(x, weight, bias)


def _steps(modalities: Sequence[Modality], chosen: Tensor) -> list[Steps]:
    """The chosen tokens, (T, M), of each modality that has some."""
    times = [tuple(column.nonzero().flatten().tolist()) for column in chosen.T]
    return [Steps(m, mine) for m, mine in zip(modalities, times, strict=True) if mine]


def _tokens(chosen: Tensor) -> list[int]:
    """Places of the chosen tokens, (T, M), among the L, by modality and then by time."""
    modality, time = chosen.T.nonzero(as_tuple=True)
    places: list[int] = (time * chosen.shape[1] + modality).tolist()
    return places


def _as_numbers(modality: Modality, values: Tensor) -> Tensor:
    """What an embedding takes, (B, k, size); classes as they are."""
    return values if modality.kind == "discrete" else values.reshape(*values.shape[:2], -1)


def _one_hot(modality: Modality, values: Tensor) -> Tensor:
    """What a perceptron takes, (B, k, size)."""
    if modality.kind == "discrete":
        return F.one_hot(values, modality.classes).to(torch.get_default_dtype())
    return values

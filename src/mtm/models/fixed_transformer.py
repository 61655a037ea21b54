"""`MTM` with one mask: see `mtm.models.fixed_mask`, which has the letters, too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mtm.data.modalities import Modality
from mtm.models.attention import attend_among, attend_within
from mtm.models.fixed_parts import Pick, Quick, Steps, gelu, hold, linear, steps_of
from mtm.models.heads import Predictions
from mtm.models.mtm import MTM
from mtm.models.original import MapsIntoDecoder
from mtm.models.transformer import Decoder, Layer


class FixedTransformer(nn.Module):
    """`MTM` with one mask."""

    encoder_positions: Tensor  # (1, K, D), as all of these with a leading axis for members
    decoder_positions: Tensor  # (1, K, D)

    def __init__(
        self, network: MTM, visible: Tensor, wanted: Tensor, *, values_only: bool = False
    ) -> None:
        super().__init__()
        self.values_only = values_only
        (T, M), self.width, self.members = visible.shape, network.config.width, network.members
        self.shown, self.asked = (steps_of(network.modalities, c) for c in (visible, wanted))
        self.encoders = nn.ModuleList(network.encoders[m.name] for m, _ in self.shown)
        self.encoder, self.to_decoder = network.encoder, network.to_decoder
        self.heads = network.heads
        self._embed = [Quick(layer) for layer in self.encoders]
        self._layers = [_QuickLayer(layer) for layer in _layers(self.encoder)]
        self._norm = Quick(self.encoder.norm)
        self._to_decoder = [Quick(layer) for layer in _maps(network, self.shown)]
        heads = [cast("nn.Sequential", self.heads[m.name]) for m, _ in self.asked]
        self._heads = [[Quick(layer) for layer in head] for head in heads]
        attention = _layers(network.decoder)[0]
        self.made_of = (
            *(network.encoder_modality_encoding, network.decoder_modality_encoding),
            *(network.mask_tokens, *attention.attention_norm.parameters()),
            *(network.to_decoder.parameters() if network.config.original else ()),
            *attention.to_queries_keys_values.parameters(),
        )
        shown, hidden, asked = (_tokens(chosen) for chosen in (visible, ~visible, wanted))
        encoder_positions, decoder_positions = (
            network.positions(encoding, T).flatten(-3, -2).unsqueeze(-3)  # (1, L, D)
            for encoding in (network.encoder_modality_encoding, network.decoder_modality_encoding)
        )
        masks = (
            network.hidden_to_decoder().unsqueeze(-3).expand(*[-1] * (self.members > 1), T, M, -1)
        )
        blank = (masks.flatten(-3, -2).unsqueeze(-3) + decoder_positions)[..., hidden, :]
        hold(
            self,
            encoder_positions=encoder_positions[..., shown, :],
            decoder_positions=decoder_positions[..., shown, :],
        )
        if len(network.decoder.layers) == 1 and not set(asked) & set(shown):
            rows = [hidden.index(token) for token in asked]
            self.decoder: nn.Module = HiddenDecoder(network.decoder, blank, rows)
        else:
            order = [*shown, *hidden]
            rows = [order.index(token) for token in asked]
            self.decoder = FixedDecoder(network.decoder, blank, rows)

    def forward(self, shown: Mapping[str, Tensor], batch: int) -> Predictions:
        """Visible values, name -> (B, k, *shape), to predictions (B, w, *shape)."""
        predictions = Predictions({}, {}, {})
        if not self.asked:
            return predictions
        x = self.decoder(self._encode(shown, batch))  # (B, W, D)
        sizes = [len(times) for _, times in self.asked]
        parts = torch.split_with_sizes(x, sizes, dim=-2) if len(sizes) > 1 else [x]
        for (m, _), part, head in zip(self.asked, parts, self._heads, strict=True):
            rows = part.flatten(-3, -2)  # (B * w, D)
            for layer in head:
                rows = layer(rows)
            out = rows.view(*part.shape[:-1], rows.shape[-1])
            self.heads.read(m, out, predictions, values_only=self.values_only)
        return predictions

    def _encode(self, shown: Mapping[str, Tensor], batch: int) -> Tensor:
        """What the decoder gets of the visible tokens, (B, K, D)."""
        leading = (self.members, batch) if self.members > 1 else (batch,)
        if not self.shown:
            return self.decoder_positions.new_empty(*leading, 0, self.width)
        tokens = [
            embed(_as_rows(m, shown[m.name])).view(*leading, len(times), self.width)
            for embed, (m, times) in zip(self._embed, self.shown, strict=True)
        ]
        x = (torch.cat(tokens, dim=-2) if len(tokens) > 1 else tokens[0]) + self.encoder_positions
        shape, x = x.shape, x.flatten(-3, -2)  # (B * K, D)
        for layer in self._layers:
            x = layer.among(x, shape[-2])
        latent = self._norm(x)
        if len(self._to_decoder) == 1:
            return self._to_decoder[0](latent).view(shape) + self.decoder_positions
        sizes = [len(times) for _, times in self.shown]
        parts = torch.split_with_sizes(latent.view(shape), sizes, dim=-2)
        mapped = [to(part) for to, part in zip(self._to_decoder, parts, strict=True)]
        return torch.cat(mapped, dim=-2) + self.decoder_positions


class FixedDecoder(nn.Module):
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
        self.layers, self.norm, self.pick = decoder.layers, decoder.norm, Pick(rows, dim=-2)
        self._layers = [_QuickLayer(layer) for layer in _layers(decoder)]
        hold(self, blank=blank, features=self._layers[0].features(blank))  # (1, L - K, 3 D)

    def forward(self, own: Tensor) -> Tensor:
        """The wanted tokens, (B, W, D), from the visible ones, (B, K, D)."""
        leading = own.shape[:-2]
        layer, *others = self._layers
        features = torch.cat([layer.features(own), self.features.expand(*leading, -1, -1)], dim=-2)
        q, k, v = features.chunk(3, dim=-1)  # (B, L, D) each
        x = torch.cat([own, self.blank.expand(*leading, -1, -1)], dim=-2)  # (B, L, D)
        for following in others:
            x = layer.attend_and_on(x, q, k, v)
            layer = following
            q, k, v = layer.queries_keys_values(x)
        decoded: Tensor = self.norm(layer.attend_and_on(self.pick(x), self.pick(q), k, v))
        return decoded


class HiddenDecoder(nn.Module):
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
        self._layer, self._norm = _QuickLayer(self.layer), Quick(self.norm)
        H, D = self.layer.heads, blank.shape[-1]
        project = self.layer.to_queries_keys_values
        parts = self._layer.queries_keys_values(blank)  # (1, L - K, D) each
        q, k, v = (_by_head(part, H) for part in parts)
        q = q[..., rows, :, :] / math.sqrt(D // H)  # (1, W, H, D/H)
        scores = torch.einsum("...whd,...lhd->...whl", q, k)
        _, weight_k, weight_v = project.weight.chunk(3, dim=-2)  # (D, D)
        _, bias_k, bias_v = project.bias.chunk(3, dim=-1)  # (D,)
        one = q.squeeze(-4)  # (W, H, D/H)
        to_scores = torch.einsum("...whd,...chd->...whc", one, _by_head(weight_k.mT, H))
        offsets = torch.einsum("...whd,...hd->...wh", one, _by_head(bias_k, H))
        hold(
            self,
            weight=torch.cat([to_scores.flatten(-3, -2), weight_v], dim=-2).mT.contiguous().mT,
            bias=torch.cat([offsets.flatten(-2), bias_v], dim=-1),
            common_scores=scores.logsumexp(dim=-1).flatten(-2).unsqueeze(-2),
            common_values=torch.einsum("...whl,...lhd->...whd", scores.softmax(dim=-1), v),
            wanted=blank[..., rows, :],
        )

    def forward(self, own: Tensor) -> Tensor:
        """The wanted tokens, (B, W, D), from the visible ones, (B, K, D)."""
        leading, (K, D) = own.shape[:-2], own.shape[-2:]
        W, H = self.common_values.shape[-3:-1]
        normed = self._layer.attention_norm(own.flatten(-3, -2))  # (B * K, D)
        features = linear(normed, self.weight, self.bias).view(*leading, K, W * H + D)
        scores, v = torch.split_with_sizes(features, [W * H, D], dim=-1)
        scores = torch.cat([scores, self.common_scores.expand(*leading, 1, W * H)], dim=-2)
        weights = scores.softmax(dim=-2).view(*leading, K + 1, W, H)
        mine, common = torch.split_with_sizes(weights, [K, 1], dim=-3)
        # (B, K, W, H, 1) times (B, K, 1, H, D/H)
        mixed = (mine.unsqueeze(-1) * v.view(*leading, K, 1, H, D // H)).sum(dim=-4)
        mixed = torch.addcmul(mixed, common.squeeze(-3).unsqueeze(-1), self.common_values)
        attended = self._layer.from_heads(mixed.view(*leading[:-1], -1, D)).view(*leading, W, D)
        x = (attended + self.wanted).flatten(-3, -2)  # (B * W, D)
        return self._norm(self._layer.perceptron(x)).view(*leading, W, D)


class _QuickLayer:
    """The parts of a layer, (B, tokens, D) to the same unless said otherwise."""

    def __init__(self, layer: Layer) -> None:
        self._whole, self._heads = layer, layer.heads
        self.attention_norm = Quick(layer.attention_norm)
        self._to_queries_keys_values = Quick(layer.to_queries_keys_values)
        self.from_heads, self._mlp_norm = Quick(layer.from_heads), Quick(layer.mlp_norm)
        self._mlp_in, self._mlp_out = Quick(layer.mlp_in), Quick(layer.mlp_out)

    def features(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side, (B, tokens, 3 D)."""
        return self._to_queries_keys_values(self.attention_norm(x))

    def queries_keys_values(self, x: Tensor) -> Sequence[Tensor]:
        """The three of them."""
        return self.features(x).chunk(3, dim=-1)

    def among(self, x: Tensor, tokens: int) -> Tensor:
        """The layer, of samples of so many tokens: rows (B * tokens, D), whose memory is used."""
        if tokens == 1:  # a token alone attends to itself: its values are all that counts
            own = slice(2 * x.shape[-1], None)
            return self.on(x, self._whole.project(self.attention_norm(x), own))
        return self.on(x, attend_among(self.features(x), tokens, self._heads))

    def attend_and_on(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The layer from its attention on, of the tokens that have queries."""
        return self.on(x, attend_within(q, k, v, self._heads))

    def on(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention; of rows, the memory of `x` is used."""
        return self.perceptron(self.from_heads.added_to(x, mixed))

    def perceptron(self, x: Tensor) -> Tensor:
        """What follows the sum with what was attended to, in the same memory."""
        return self._mlp_out.added_to(x, gelu(self._mlp_in(self._mlp_norm(x))))


def _maps(network: MTM, shown: Sequence[Steps]) -> list[nn.Module]:
    """The map of all visible tokens into the decoder, or that of each modality that has some."""
    if isinstance(network.to_decoder, MapsIntoDecoder):
        return [network.to_decoder[m.name] for m, _ in shown]
    return [network.to_decoder]


def _layers(part: nn.Module) -> list[Layer]:
    return cast("list[Layer]", list(part.layers))  # type: ignore[arg-type]


def _by_head(features: Tensor, heads: int) -> Tensor:
    """(..., D) to (..., H, D/H)."""
    return features.reshape(*features.shape[:-1], heads, -1)


def _tokens(chosen: Tensor) -> list[int]:
    """Places of the chosen tokens, (T, M), among the L, by modality and then by time."""
    modality, time = chosen.T.nonzero(as_tuple=True)
    places: list[int] = (time * chosen.shape[1] + modality).tolist()
    return places


def _as_rows(modality: Modality, values: Tensor) -> Tensor:
    """What an embedding takes, (B * k, size), from (B, k, *shape); classes (B * k,)."""
    return values.flatten() if modality.kind == "discrete" else values.reshape(-1, modality.size)

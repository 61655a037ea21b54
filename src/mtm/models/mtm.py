"""The network: a bidirectional masked autoencoder over the tokens of a segment.

    values --embeddings, + time and modality encodings--> tokens
    visible tokens --encoder--> latent
    latent, with a mask token wherever nothing was visible --decoder--> (B, L, D)
    --head of each modality--> predictions of every token, the visible ones included

`mtm.models.reference` has the same in plain PyTorch, to read first. This one is fast: the encoder
does not pay for what is hidden. Each sample has a mask of its own, so its visible tokens are packed
into one list of N for everything that works token by token (linear layers, norms). For attention,
short samples are joined in rows, in which each sees itself alone. The decoder pays for hidden
tokens from its first attention on: before it, they are the same in all samples.

Letters: B batch, T time, M modalities, L = T*M tokens in time-major order, D width, N visible
tokens of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mtm.core.config import ModelConfig
from mtm.data.modalities import Modality
from mtm.models.embeddings import Embeddings, sinusoids
from mtm.models.heads import Heads, Predictions
from mtm.models.lines import add_lines
from mtm.models.original import MapsIntoDecoder, draw_first_weights, halved_sinusoids
from mtm.models.packing import Layout, take
from mtm.models.products import Linear
from mtm.models.transformer import Decoder, Encoder

TOKEN_STD = 0.02
"""Standard deviation of the initial mask tokens and modality encodings."""


class MTM(nn.Module):
    """Masked trajectory model.

    Args:
        modalities: The streams, in autoregressive order.
        config: Sizes.
    """

    time_encoding: Tensor

    def __init__(self, modalities: Sequence[Modality], config: ModelConfig) -> None:
        super().__init__()
        D, M = config.width, len(modalities)
        self.modalities = tuple(modalities)
        self.config = config
        self.members = 1  # more where `mtm.models.members` stacks several networks
        # Checkpoints know the weights by these names, and optimizers by their order; a seed means
        # what is drawn in this order. So encodings and mask tokens are here, not in the parts.
        self.encoders = Embeddings(modalities, D)
        time_encoding = halved_sinusoids if config.original else sinusoids
        self.register_buffer(
            "time_encoding", time_encoding(config.segment_length, D), persistent=False
        )
        self.encoder_modality_encoding = _token(M, D)
        self.decoder_modality_encoding = _token(M, D)
        self.mask_tokens = _token(M, D)
        self.encoder = Encoder(config)
        self.to_decoder = MapsIntoDecoder(modalities, D) if config.original else Linear(D, D)
        self.decoder = Decoder(config)
        self.heads = Heads(modalities, config)
        if config.original:
            encodings = (self.encoder_modality_encoding, self.decoder_modality_encoding)
            stacks = (self.encoder.layers, self.decoder.layers)
            draw_first_weights(stacks, [*encodings, self.mask_tokens])

    def forward(
        self,
        values: Mapping[str, Tensor],
        visible: Tensor,
        wanted: Tensor | None = None,
    ) -> Predictions:
        """Predict tokens from the visible ones.

        Args:
            values: For each modality normalised values (B, T, *shape), or integer classes (B, T);
                T is at most `segment_length`. What is stored at hidden tokens has no influence.
            visible: (B, T, M) booleans. Keep it on the CPU, where masks are made: the layout of the
                packed tokens is worked out there, without waiting for a GPU.
            wanted: (B, T, M) booleans, on the CPU: predict only these tokens, which saves most of
                the decoder's work when they are few. All if None.

        Returns:
            Predictions; what stands at tokens that are not wanted means nothing. Those of several
            members have a leading axis (see `mtm.models.members`).
        """
        visible, device = visible.cpu(), self.mask_tokens.device
        B, T, M = visible.shape
        E = self.members
        layout = Layout.joined(visible.flatten(1), device, M if self.config.original else 0)
        asked = None if wanted is None else Layout.by_count(wanted.cpu().flatten(1), device, M)
        if E > 1:  # as a batch that many times as large
            layout = layout.times(E, B, T * M)
            asked = None if asked is None else asked.times(E, B, T * M)
        latent = self.encode(values, visible, layout)  # (N, D)
        decoded = self.decode(latent, layout, B, T, asked)  # (B * L, D), or (wanted tokens, D)
        predictions: Predictions = self.heads(decoded, E * B, T, asked)
        if E > 1:
            predictions = predictions.by_member(E)
        if self.config.residual:
            add_lines(self.modalities, predictions.values, values, visible)
        return predictions

    def encode(self, values: Mapping[str, Tensor], visible: Tensor, layout: Layout) -> Tensor:
        """The encoder's output for the visible tokens, (B, T, M) booleans, packed: (N, D)."""
        shown = visible.to(self.mask_tokens.device, non_blocking=True)
        positions = self.positions(self.encoder_modality_encoding, visible.shape[1])
        tokens = _add(self.encoders(values, shown), positions)  # (B, T, M, D)
        encoded: Tensor = self.encoder(take(tokens.flatten(0, 2), layout.tokens), layout)
        return encoded

    def encode_step(self, values: Mapping[str, Tensor]) -> Tensor:
        """The encoder's output for one step of some modalities, all of them visible.

        Args:
            values: Normalised, name -> (B, *shape).

        Returns:
            (B, K, D), a token for each of the K given modalities, in the order given. The D
            features of several members lie side by side, (B, K, E * D).
        """
        names = [m.name for m in self.modalities]
        places = self.positions(self.encoder_modality_encoding, 1)[..., 0, :, :]  # (M, D)
        embeddings = [self.encoders[name] for name in values]
        chosen = places[..., [names.index(name) for name in values], :]  # (K, D)
        return encode_step(embeddings, chosen, self.encoder, list(values.values()))

    def decode(
        self, latent: Tensor, layout: Layout, batch: int, length: int, wanted: Layout | None = None
    ) -> Tensor:
        """The decoder's output, (B * L, D), or of the wanted tokens, from the latent (N, D)."""
        positions = self.positions(self.decoder_modality_encoding, length)  # (T, M, D)
        hidden, shown = self.into_decoder(latent, layout)
        blank = (hidden.unsqueeze(-3) + positions).flatten(-3, -2)  # (L, D)
        L = blank.shape[-2]
        rows = layout.tokens % L
        if self.members > 1:
            rows = rows + layout.tokens // (batch * L) * L
        shown = shown.to(blank.dtype) + positions.flatten(0, -2)[rows]  # (N, D)
        decoded: Tensor = self.decoder(shown, blank, layout.tokens, batch, wanted)
        return decoded

    def into_decoder(self, latent: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """What the decoder takes for hidden tokens, (M, D), and for visible ones, (N, D)."""
        if isinstance(self.to_decoder, MapsIntoDecoder):
            return self.hidden_to_decoder(), self.to_decoder(latent, layout)
        return self.hidden_to_decoder(), self.to_decoder(latent)

    def hidden_to_decoder(self) -> Tensor:
        """What the decoder takes for hidden tokens, (M, D), of members (E, M, D)."""
        if isinstance(self.to_decoder, MapsIntoDecoder):
            return self.to_decoder.of_mask_tokens(self.mask_tokens)
        return self.mask_tokens

    def positions(self, modality_encoding: Tensor, length: int) -> Tensor:
        """Time and modality encodings together, (T, M, D), of members (E, T, M, D)."""
        return self.time_encoding[:length].unsqueeze(1) + modality_encoding.unsqueeze(-3)

    def input_layers(self) -> list[nn.Module]:
        """The layers that take values in."""
        return list(self.encoders.values())

    def outer_layers(self) -> list[nn.Module]:
        """The layers that touch the data: those that take values in, and those that give them."""
        return [*self.input_layers(), *(head[-1] for head in self.heads.values())]  # type: ignore[index]


def encode_step(
    embeddings: Sequence[nn.Module],
    positions: Tensor,
    encoder: Encoder,
    values: Sequence[Tensor],
) -> Tensor:
    """Encode one step whose K tokens are all visible, so that there is no mask to work out.

    Args:
        embeddings: Of each modality.
        positions: Time and modality encodings, (K, D), of members (E, K, D).
        encoder: Of the network.
        values: Normalised values of each modality, (B, *shape); integer classes (B,).

    Returns:
        (B, K, D), of members side by side (B, K, E * D).
    """
    tokens = torch.stack(
        [
            embed(v if isinstance(embed, nn.Embedding) else v.reshape(len(v), -1))
            for embed, v in zip(embeddings, values, strict=True)
        ],
        dim=1,
    )
    B, K, D = tokens.shape  # with members, B is that many times as large
    encoded: Tensor = encoder(_add(tokens, positions).view(B * K, D), Layout.full(B, K))
    if positions.ndim == 2:
        return encoded.view(B, K, D)
    return encoded.view(len(positions), -1, K, D).permute(1, 2, 0, 3).flatten(2)


def _add(tokens: Tensor, positions: Tensor) -> Tensor:
    """Add encodings (..., D) to the tokens of every sample, (B, ..., D), member by member."""
    if positions.ndim < tokens.ndim:
        return tokens + positions
    by_member = tokens.view(len(positions), -1, *tokens.shape[1:])  # (E, B, ..., D)
    return (by_member + positions.unsqueeze(1)).flatten(0, 1)


def _token(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(count, width) * TOKEN_STD)

"""What the original code does otherwise, for `model.original`: the rest of the network is the same.

- Time: the customary sinusoids, of wavelengths from 2 pi to 10,000 steps, halved.
- Into the decoder: a linear map of each modality, which its mask token goes through too.
- First weights: encodings and mask tokens are 0, attention is drawn as PyTorch's own module draws
  it, and all layers of the encoder, or of the decoder, begin as copies of one.

Letters as in `mtm.models.mtm`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mtm.data.modalities import Modality
from mtm.models.packing import Layout, put, take
from mtm.models.transformer import Layer

LONGEST_WAVE = 10_000.0


def halved_sinusoids(length: int, width: int) -> Tensor:
    """Sines, then cosines, of falling frequency, divided by 2, (length, width)."""
    exponent = torch.arange(width // 2) / (width // 2)
    angle = torch.arange(length).unsqueeze(1) * LONGEST_WAVE**-exponent  # (length, width/2)
    return torch.cat([angle.sin(), angle.cos()], dim=1) / 2


class MapsIntoDecoder(nn.ModuleDict):
    """A linear map of each modality.

    Args:
        modalities: The streams, in autoregressive order.
        width: D.
    """

    def __init__(self, modalities: Sequence[Modality], width: int) -> None:
        super().__init__({m.name: nn.Linear(width, width) for m in modalities})

    def forward(self, latent: Tensor, layout: Layout) -> Tensor:
        """Each token, (N, D), by the map of its modality; the layout knows which are whose."""
        parts = zip(self.values(), layout.by_modality, strict=True)
        mapped = torch.cat([map_(take(latent, rows)) for map_, rows in parts])
        return put(mapped, torch.cat(layout.by_modality), len(latent))

    def of_mask_tokens(self, tokens: Tensor) -> Tensor:
        """Mask tokens (M, D), of members (E, M, D), each by the map of its modality."""
        rows = tokens.view(-1, *tokens.shape[-2:]).unbind(1)  # (E, D) each
        mapped = [map_(row) for map_, row in zip(self.values(), rows, strict=True)]
        return torch.stack(mapped, dim=1).view(tokens.shape)


@torch.no_grad()
def draw_first_weights(stacks: Sequence[nn.ModuleList], tokens: Sequence[nn.Parameter]) -> None:
    """Give layers and encodings the original's first weights, drawn from torch's generator.

    Args:
        stacks: The layers of the encoder, and those of the decoder.
        tokens: Encodings and mask tokens.
    """
    for token in tokens:
        token.zero_()
    for first, *others in stacks:
        assert isinstance(first, Layer)
        nn.init.xavier_uniform_(first.to_queries_keys_values.weight)
        nn.init.zeros_(first.to_queries_keys_values.bias)
        nn.init.zeros_(first.from_heads.bias)
        for layer in others:
            layer.load_state_dict(first.state_dict())

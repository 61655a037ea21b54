"""What a return-conditioned policy asks for as its episode goes on; NumPy only.

It stands apart from the policies because `mtm.deploy` acts by it where there is no PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SMALLEST_WORTH = 1e-100
"""Of a reward after many discounted steps; what is left is beyond the data long before."""


@dataclass(frozen=True)
class AskedReturns:
    """How the return to ask for follows from the target and from what was earned.

    An average per remaining step is the same all along, as in the paper: who is behind cannot make
    up for it by asking for more than the data know, and who is ahead should not slacken. Of a sum,
    or of what is discounted, what is left to earn, within what the data know. What returns of the
    user's own count is not known: they are asked for all along.

    Attributes:
        discount: Factor per step.
        horizon: Steps that averages are taken over; None if they are none.
        is_sum: Whether returns are sums of rewards.
        low: The smallest return of the data.
        high: The largest.
    """

    discount: float
    horizon: int | None
    is_sum: bool
    low: float
    high: float

    @property
    def counts_down(self) -> bool:
        """Whether what was earned changes what is asked for."""
        return self.discount < 1 if self.horizon else self.is_sum

    def left(
        self,
        targets: NDArray[np.float64],
        gained: NDArray[np.float64],
        steps: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """What to ask for now.

        Args:
            targets: Asked for at the first step.
            gained: Rewards so far, each as worth at the first step.
            steps: That the episodes have behind them.
        """
        if not self.counts_down:
            return targets
        left = (targets * (self.horizon or 1) - gained) / self.worth(steps)
        if self.horizon:
            left = left / np.maximum(self.horizon - steps, 1)
        return np.where(steps == 0, targets, np.clip(left, self.low, self.high))

    def worth(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """What a reward now counts at the first step of the episode: discounted once a step."""
        worth = np.power(self.discount, steps, dtype=np.float64)
        return np.maximum(worth, SMALLEST_WORTH)

"""How a run is exported.

This module imports neither torch nor numpy: the command line is built from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mtm.core.config_io import report
from mtm.core.errors import unknown
from mtm.core.names import EXPORTABLE


@dataclass(frozen=True)
class ExportConfig:
    """How to export.

    Raises:
        ConfigError: Listing every fault.
    """

    capabilities: tuple[str, ...] = ("rcbc",)
    """What to export: `rcbc`, `bc`, `id`, `fd`, `represent`, `impute`."""
    target: str | float = "auto"
    """Of `rcbc`, as for `mtm.policies.return_conditioned`."""
    guidance: float = 1.0
    """Of `rcbc`, as for `mtm.policies.return_conditioned`."""
    history: int | None = None
    """Past steps that are shown beside the current one; None: none by `rcbc` and `bc`, all that fit
    by `fd`."""
    tolerance: float = 1e-5
    """The largest difference from the run that is let pass, in standard deviations of the data; see
    `mtm.deploy.parity`."""
    data: str | None = None
    """Data to compare on; None: the run's held-out segments."""

    def __post_init__(self) -> None:
        report(self.faults())

    def faults(self) -> list[str]:
        """Everything that is wrong."""
        named = set(self.capabilities)
        faults = [
            unknown("capability to export:", str(name), EXPORTABLE).rstrip(".")
            for name in named - set(EXPORTABLE)
        ]
        if not named or len(named) < len(self.capabilities):
            faults.append(f"name each capability to export once, got {self.capabilities}")
        if "rcbc" not in named and (self.target != "auto" or self.guidance != 1):
            faults.append("target and guidance are for rcbc, which is not to be exported")
        if self.history is not None and not named & {"rcbc", "bc", "fd"}:
            faults.append("history is for rcbc, bc and fd, none of which is to be exported")
        if not 0 <= self.tolerance < math.inf:
            faults.append(f"tolerance must be a number of at least 0, got {self.tolerance}")
        return faults

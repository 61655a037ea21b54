"""What every verb that asks a run takes: which run, which weights, where to compute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from mtm.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class AskedRun:
    """The run to ask."""

    run: tyro.conf.Positional[Path]
    """The run directory, a file of mtm pack, or hub:OWNER/NAME[@REVISION]."""
    checkpoint: Literal["last", "best"] = "last"
    """The newest weights, or those with the lowest held-out loss."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, mps."""
    threads: int | None = None
    """CPU threads; all if not given."""

    def load(self) -> Run:
        """The run, on its device.

        Raises:
            RunError: The directory holds no readable run.
            ConfigError: There is no such device here, or no such number of threads.
        """
        from mtm.runs.run import load_run

        self.limit_threads()
        return load_run(self.run, self.checkpoint, device=self.device)

    def limit_threads(self) -> None:
        """Use as many CPU threads as said.

        Raises:
            ConfigError: They are fewer than one.
        """
        import torch

        from mtm.core.errors import ConfigError

        if self.threads is not None:
            if self.threads < 1:
                raise ConfigError(f"--threads must be at least 1, got {self.threads}.")
            torch.set_num_threads(self.threads)

"""Processes that train together: where they meet, and how long they wait for each other."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

SILENCE = timedelta(minutes=10)
"""After which a process that nobody hears of is given up. The first one measures and saves while
the others wait, so it must be longer than that takes."""


class Together(DDPStrategy):
    """DDP whose processes give each other up after `SILENCE`.

    Those of one machine talk over its loopback address only. By itself, torch meets on all
    addresses of a machine, and takes what anybody sends there.
    """

    def __init__(self) -> None:
        super().__init__(timeout=SILENCE)

    def setup_environment(self) -> None:
        """Meet the other processes."""
        place = self.cluster_environment
        if self.num_nodes == 1 and isinstance(place, LightningEnvironment):
            self._meet(place.main_address, place.main_port)
        super().setup_environment()

    def _meet(self, address: str, port: int) -> None:
        first = self.local_rank == 0
        listening = socket.create_server((address, port)).detach() if first else None
        store = torch.distributed.TCPStore(  # type: ignore[attr-defined]
            address, port, self.num_processes, first, SILENCE, master_listen_fd=listening
        )
        if sys.platform.startswith("linux"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        on_gpu = self.root_device.type == "cuda"
        torch.distributed.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=self.local_rank,
            world_size=self.num_processes,
            timeout=SILENCE,
            device_id=self.root_device if on_gpu else None,
        )

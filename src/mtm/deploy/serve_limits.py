"""What a server takes from its clients, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mtm.core.config_io import report
from mtm.core.errors import MTMError
from mtm.core.validators import Range, outside

WHOLE = Range(1, 2**40, whole=True)
SECONDS = Range(0, 86_400, open_low=True)


class RequestError(MTMError):
    """A request that is not answered.

    Args:
        status: Of HTTP.
        reason: What is wrong, what is allowed, what helps.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """How much a server takes; beyond it, clients are told so.

    Raises:
        ConfigError: Listing every fault.
    """

    body_bytes: int = 4 * 2**20
    """Of one request."""
    seconds: float = 30.0
    """For a request to arrive, and again for it to be answered."""
    waiting: int = 1024
    """Requests that wait to be computed."""
    steps: int = 16_384
    """Steps of all trajectories of one /predict."""
    sessions: int = 1024
    """Open at once."""
    rows: int = 65_536
    """Environments of all sessions together."""
    idle_seconds: float = 600.0
    """After which a session that is not used is closed."""

    def __post_init__(self) -> None:
        times = {"seconds": SECONDS, "idle_seconds": SECONDS}
        counts = {f.name: WHOLE for f in fields(self) if f.name not in times}
        report(outside(self, "limits.", counts | times))

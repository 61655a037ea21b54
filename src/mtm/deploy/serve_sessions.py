"""Episodes that clients act in: each session is a policy with its own memory."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mtm.control.policies import MaskedPolicy
from mtm.deploy.serve_limits import Limits, RequestError


@dataclass
class Session:
    """A policy that acts in n environments of one client.

    Attributes:
        policy: With its memory.
        n: Environments.
        used: When it was last asked.
        acting: Whether an action is being worked out.
        acted: Whether there is an action whose outcome was not told.
    """

    policy: MaskedPolicy
    n: int
    used: float
    acting: bool = False
    acted: bool = False

    def begin_act(self) -> None:
        """Raise a `RequestError` if an action is being worked out already."""
        if self.acting:
            raise RequestError(409, "this session is acting; wait for its actions.")
        self.acting = True

    def end_act(self, *, acted: bool) -> None:
        """An action was worked out, or could not be."""
        self.acting, self.acted = False, self.acted or acted

    def begin_observe(self) -> None:
        """Raise a `RequestError` unless there are actions whose outcome was not told."""
        if self.acting or not self.acted:
            raise RequestError(
                409, "there is nothing to observe: first act, and observe once after each act."
            )
        self.acted = False


class Sessions:
    """Sessions by names that nobody can guess, the longest unused first.

    Args:
        limits: How many, and how long they may be idle.
        expired: Called for each that is closed because nobody used it.
        clock: Seconds.
    """

    def __init__(
        self,
        limits: Limits,
        expired: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._expired, self._clock = limits, expired, clock
        self._open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        self._close_idle()
        return len(self._open)

    @property
    def rows(self) -> int:
        """Environments of all sessions."""
        return sum(session.n for session in self._open.values())

    def check_room(self, n: int) -> None:
        """Raise a `RequestError` if there is no room for a session of n environments."""
        self._close_idle()
        if len(self._open) >= self._limits.sessions or self.rows + n > self._limits.rows:
            raise RequestError(
                429,
                f"{len(self._open)} sessions with {self.rows} environments are open, of at most "
                f"{self._limits.sessions} with {self._limits.rows}; DELETE those that are done "
                f"with. Those not used for {self._limits.idle_seconds:g} s are closed.",
            )

    def open(self, policy: MaskedPolicy, n: int) -> str:
        """Begin a session, and return its name."""
        self.check_room(n)
        policy.reset(n)
        name = secrets.token_urlsafe(18)
        self._open[name] = Session(policy, n, self._clock())
        return name

    def named(self, name: str) -> Session:
        """A session, which counts as used.

        Raises:
            RequestError: There is none of this name, or none any more.
        """
        self._close_idle()
        if name not in self._open:
            raise RequestError(
                404,
                f"there is no session {name!r}: it was closed, or was not used for "
                f"{self._limits.idle_seconds:g} s. POST /sessions opens one.",
            )
        session = self._open[name]
        session.used = self._clock()
        self._open.move_to_end(name)
        return session

    def close(self, name: str) -> None:
        """End a session; raises as `named`."""
        self.named(name)
        del self._open[name]

    def _close_idle(self) -> None:
        latest = self._clock() - self._limits.idle_seconds
        while self._open:
            name, session = next(iter(self._open.items()))
            if session.used > latest or session.acting:
                return
            del self._open[name]
            self._expired()

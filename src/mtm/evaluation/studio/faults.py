"""What the server refuses, and how it says so: a status, a code for programs, text for people."""

from __future__ import annotations

from mtm.core.errors import MTMError


class StudioError(MTMError):
    """A request that is not answered.

    Args:
        status: Of HTTP.
        code: For programs; docs/guides/studio.md lists them.
        message: For people: what is wrong, and what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class OvertakenError(StudioError):
    """A newer request of the same client has come."""

    def __init__(self) -> None:
        super().__init__(409, "overtaken", "a newer request of the same page has come.")


def bad_request(message: str) -> StudioError:
    """The request itself is at fault."""
    return StudioError(400, "bad-request", message)


def not_found(message: str) -> StudioError:
    """There is no such thing."""
    return StudioError(404, "not-found", message)


def impossible(message: str) -> StudioError:
    """The run or the data cannot do it."""
    return StudioError(422, "data", message)

"""Counts of a server, in the text format that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """How many values were up to each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.total = bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Cumulative counts, the sum and the number."""
        lines, until = [], 0
        comma = f"{labels}," if labels else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            until += count
            lines.append(f'{name}_bucket{{{comma}le="{bound}"}} {until}')
        rest = f"{{{labels}}}" if labels else ""
        return [*lines, f"{name}_sum{rest} {self.total:.6f}", f"{name}_count{rest} {until}"]


class Metrics:
    """What a server has done so far."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.batch_requests = Histogram(SIZES)
        self.batch_seconds = Histogram(SECONDS)
        self.expired = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, status] += 1
        self.seconds.setdefault(route, Histogram(SECONDS)).add(seconds)

    def computed(self, requests: int, seconds: float) -> None:
        """Count requests that were computed together."""
        self.batch_requests.add(requests)
        self.batch_seconds.add(seconds)

    def text(self, now: Mapping[str, float]) -> str:
        """All of it.

        Args:
            now: Name -> what is the case at the moment.
        """
        lines = ["# TYPE mtm_requests_total counter"]
        lines += [
            f'mtm_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self.requests.items())
        ]
        lines.append("# TYPE mtm_request_seconds histogram")
        for route, histogram in sorted(self.seconds.items()):
            lines += histogram.lines("mtm_request_seconds", f'route="{route}"')
        for name, histogram in (
            ("mtm_batch_requests", self.batch_requests),
            ("mtm_batch_seconds", self.batch_seconds),
        ):
            lines += [f"# TYPE {name} histogram", *histogram.lines(name)]
        lines += ["# TYPE mtm_sessions_expired_total counter"]
        lines += [f"mtm_sessions_expired_total {self.expired}"]
        for name, value in now.items():
            lines += [f"# TYPE mtm_{name} gauge", f"mtm_{name} {value}"]
        return "\n".join(lines) + "\n"

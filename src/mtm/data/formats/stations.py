"""Made measurements of three weather stations: a multivariate series without actions.

A region's weather drifts through three stations, one after the other. Each measures temperature,
humidity, wind and particles in the air; particles come with the traffic of the day and are blown
away the faster, the more wind there is, so the series is not a straight line of its past.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mtm.core.randomness import Purpose, generator

STATIONS = 3
MEASURED = 4
EPISODES, HOURS = 120, 240
LAG = 3
"""Hours that the weather takes from one station to the next."""


def readings(episodes: int = EPISODES, hours: int = HOURS, seed: int = 0) -> NDArray[np.float64]:
    """What the stations measure every hour, (episodes, hours, STATIONS * MEASURED).

    The columns of a station stand together: temperature, humidity, wind, particles.
    """
    rng = generator(seed, Purpose.SYNTHETIC)
    before = (STATIONS - 1) * LAG
    front = _drifting(rng, episodes, hours + before, keeps=0.97, step=0.25)
    gusts = _drifting(rng, episodes, hours + before, keeps=0.9, step=0.35)
    hour = rng.integers(24, size=(episodes, 1)) + np.arange(hours)  # (episodes, hours)
    columns = []
    for k in range(STATIONS):
        late = slice(before - k * LAG, before - k * LAG + hours)
        columns += _measured(rng, front[:, late], gusts[:, late], hour)
    return np.stack(columns, axis=2)


def _measured(
    rng: np.random.Generator,
    front: NDArray[np.float64],
    gusts: NDArray[np.float64],
    hour: NDArray[np.int64],
) -> list[NDArray[np.float64]]:
    """Temperature, humidity, wind and particles of a station, (episodes, hours) each."""
    shape = front.shape
    day = np.sin(2 * np.pi * (hour - 9) / 24)
    sunny = 1 / (1 + np.exp(-2 * front))  # clear skies warm by day and cool by night
    temperature = 12 + 4 * front + 6 * sunny * day + 0.3 * rng.normal(size=shape)
    humidity = np.clip(75 - 2.5 * (temperature - 12) + 4 * rng.normal(size=shape), 5, 100)
    wind = 3 * np.exp(0.6 * gusts) * (1 + 0.2 * day) + 0.1 * rng.normal(size=shape)
    traffic = np.exp(-(((hour % 24) - 8) ** 2) / 6) + np.exp(-(((hour % 24) - 18) ** 2) / 8)
    particles = np.empty(shape)
    level = 20 + 5 * rng.normal(size=shape[0])
    for t in range(shape[1]):
        blown = np.clip(0.05 + 0.06 * wind[:, t], 0, 0.9)
        level = level * (1 - blown) + 12 * traffic[:, t] + 3 + rng.normal(size=shape[0])
        particles[:, t] = level
    return [temperature, humidity, wind, particles]


def _drifting(
    rng: np.random.Generator, episodes: int, hours: int, *, keeps: float, step: float
) -> NDArray[np.float64]:
    """Values that keep a share of what they were, and take a random step, (episodes, hours)."""
    value = rng.normal(size=episodes) * step / np.sqrt(1 - keeps**2)
    drawn = np.empty((episodes, hours))
    for t in range(hours):
        drawn[:, t] = value
        value = keeps * value + step * rng.normal(size=episodes)
    return drawn

"""The paper's own figures, copied from its tables. Its figures without numbers are not read off."""

from __future__ import annotations

from typing import NamedTuple

METHODS = ("bc", "cql", "iql", "tt", "mopo", "rvs", "dt", "mtm")
"""Columns of its Table 1, in its order."""

_TABLE_1 = """
halfcheetah medium-replay  36.6  45.5  44.2  41.9 42.3  38.0  36.6  43.0
hopper      medium-replay  18.1  95.0  94.7  91.5 28.0  73.5  82.7  92.9
walker2d    medium-replay  26.0  77.2  73.9  82.6 17.8  60.6  66.6  77.3
halfcheetah medium         42.6  44.0  47.4  46.9 53.1  41.6  42.0  43.6
hopper      medium         52.9  58.5  66.3  61.1 67.5  60.2  67.6  64.1
walker2d    medium         75.3  72.5  78.3  79.0 39.0  71.7  74.0  70.4
halfcheetah medium-expert  55.2  91.6  86.7  95.0 63.7  92.2  86.8  94.7
hopper      medium-expert  52.5 105.4  91.5 110.0 23.7 101.7 107.6 112.4
walker2d    medium-expert 107.5 108.8 109.6 101.9 44.6 106.0 108.1 110.2
"""

# Environment, kind, task; mean and deviation of MLP, S-MTM and MTM (its appendix, 4 seeds).
_CAPABILITIES = """
hopper      expert        bc   111.14 0.33  111.81 0.18  107.35 7.77
hopper      expert        rcbc 111.17 0.56  112.64 0.47  112.49 0.37
hopper      expert        id   0.009 0.000  0.013 0.000  0.050 0.026
hopper      expert        fd   0.072 0.000  0.517 0.025  0.088 0.049
hopper      medium-expert bc   58.75 3.79   60.85 3.14   54.96 2.44
hopper      medium-expert rcbc 110.22 0.99  113.00 0.39  112.41 0.23
hopper      medium-expert id   0.015 0.000  0.015 0.001  0.053 0.003
hopper      medium-expert fd   0.139 0.001  0.938 0.062  0.077 0.005
hopper      medium        bc   55.93 1.12   56.74 0.56   57.64 3.37
hopper      medium        rcbc 62.20 3.41   69.20 1.60   70.48 4.62
hopper      medium        id   0.022 0.001  0.030 0.001  0.143 0.035
hopper      medium        fd   0.153 0.002  1.044 0.061  0.206 0.064
hopper      medium-replay bc   35.63 6.27   36.17 4.09   29.46 6.74
hopper      medium-replay rcbc 88.61 1.68   93.30 0.33   92.95 1.51
hopper      medium-replay id   0.240 0.028  0.219 0.008  0.534 0.009
hopper      medium-replay fd   2.179 0.052  3.310 0.425  0.493 0.030
walker2d    expert        bc   109.28 0.12  108.76 0.32  107.08 1.47
walker2d    expert        rcbc 112.21 0.31  109.83 0.58  110.08 0.82
walker2d    expert        id   0.021 0.000  0.055 0.001  0.233 0.038
walker2d    expert        fd   0.077 0.001  0.233 0.012  0.177 0.031
walker2d    medium-expert bc   108.45 0.31  108.49 1.00  75.64 7.78
walker2d    medium-expert rcbc 110.47 0.38  110.43 0.30  110.21 0.31
walker2d    medium-expert id   0.019 0.000  0.038 0.001  0.213 0.030
walker2d    medium-expert fd   0.088 0.001  0.221 0.013  0.167 0.032
walker2d    medium        bc   75.91 1.87   75.87 0.44   59.82 7.06
walker2d    medium        rcbc 78.76 2.26   78.64 2.05   78.08 2.04
walker2d    medium        id   0.026 0.001  0.055 0.002  0.214 0.145
walker2d    medium        fd   0.116 0.002  0.236 0.012  0.175 0.162
walker2d    medium-replay bc   23.39 2.75   48.45 2.84   21.98 2.77
walker2d    medium-replay rcbc 72.85 5.23   78.33 2.11   77.32 1.79
walker2d    medium-replay id   0.532 0.017  0.493 0.018  0.921 0.032
walker2d    medium-replay fd   1.224 0.011  0.883 0.011  0.446 0.016
halfcheetah expert        bc   93.14 0.16   95.21 0.44   94.19 0.21
halfcheetah expert        rcbc 94.16 0.35   95.12 0.64   94.83 0.72
halfcheetah expert        id   0.001 0.000  0.003 0.000  0.009 0.001
halfcheetah expert        fd   0.009 0.000  0.018 0.003  0.005 0.001
halfcheetah medium-expert bc   68.04 1.57   77.88 7.21   65.73 5.69
halfcheetah medium-expert rcbc 93.49 0.29   94.85 0.32   94.78 0.39
halfcheetah medium-expert id   0.001 0.000  0.001 0.000  0.012 0.002
halfcheetah medium-expert fd   0.014 0.000  0.043 0.008  0.009 0.001
halfcheetah medium        bc   42.87 0.11   43.37 0.14   43.19 0.34
halfcheetah medium        rcbc 44.43 0.26   43.83 0.22   43.65 0.08
halfcheetah medium        id   0.001 0.000  0.005 0.000  0.027 0.017
halfcheetah medium        fd   0.020 0.000  0.053 0.011  0.020 0.010
halfcheetah medium-replay bc   36.81 0.52   39.03 0.78   19.64 11.26
halfcheetah medium-replay rcbc 40.55 0.18   42.94 0.33   43.08 0.43
halfcheetah medium-replay id   0.003 0.000  0.005 0.000  0.036 0.012
halfcheetah medium-replay fd   0.059 0.000  0.058 0.010  0.028 0.007
pen         expert        bc   62.75 1.43   66.28 3.28   61.25 5.06
pen         expert        rcbc 68.41 2.27   66.29 1.39   64.81 1.70
pen         expert        id   0.128 0.001  0.155 0.001  0.331 0.049
pen         expert        fd   0.048 0.002  0.360 0.020  0.321 0.048
pen         medium-replay bc   33.73 1.00   54.84 5.08   47.10 7.13
pen         medium-replay rcbc 41.26 4.99   57.50 3.76   58.76 5.63
pen         medium-replay id   0.308 0.004  0.238 0.004  0.410 0.064
pen         medium-replay fd   0.657 0.023  0.915 0.007  0.925 0.026
door        expert        bc   147.68 0.25  149.46 0.29  149.19 0.72
door        expert        rcbc 148.81 0.32  150.50 0.14  149.93 0.19
door        expert        id   0.385 0.001  0.427 0.003  0.484 0.024
door        expert        fd   0.199 0.011  0.541 0.020  0.618 0.210
door        medium-replay bc   27.75 5.03   49.24 26.85  16.30 10.10
door        medium-replay rcbc 71.51 8.62   75.41 8.20   51.92 9.13
door        medium-replay id   0.532 0.001  0.589 0.005  0.629 0.014
door        medium-replay fd   0.976 0.033  2.225 0.061  2.251 0.230
"""

# The same place for its last column: is MTM comparable to S-MTM, or better?
_COMPARABLE = """
hopper expert        bc yes  rcbc yes  id no   fd yes
hopper medium-replay bc no   rcbc yes  id no   fd yes
pen    expert        bc yes  rcbc yes  id no   fd yes
pen    medium-replay bc no   rcbc yes  id yes  fd yes
"""


class Figure(NamedTuple):
    """A mean, with its standard deviation over seeds."""

    mean: float
    std: float


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


TABLE_1: dict[tuple[str, str], dict[str, float]] = {
    (row[0], row[1]): dict(zip(METHODS, map(float, row[2:]), strict=True))
    for row in _rows(_TABLE_1)
}
"""(environment, kind) -> method -> normalised score."""

TABLE_1_AVERAGE = dict(zip(METHODS, (51.9, 77.6, 77.0, 78.9, 42.2, 71.7, 74.7, 78.7), strict=True))
"""Its last row. The mean of its own appendix over the same nine sets is 80.3 for MTM."""

PUBLISHED_AVERAGE = {
    **{"bc": 50.4, "bc10": 69.3, "td3_bc": 76.5, "cql": 78.3, "iql": 81.6, "rebrac": 89.7},
    **{"dt": 73.8, "mopo": 81.8, "tt": 78.9, "mtm": 78.7},
}
"""Means over the same nine sets (v2) as others have published them: of the last checkpoint by CORL,
of MOPO by OfflineRL-Kit, of the Trajectory Transformer and MTM by their authors."""

CAPABILITIES: dict[tuple[str, str, str], dict[str, Figure]] = {
    (row[0], row[1], row[2]): {
        method: Figure(float(row[i]), float(row[i + 1]))
        for method, i in (("mlp", 3), ("s-mtm", 5), ("mtm", 7))
    }
    for row in _rows(_CAPABILITIES)
}
"""(environment, kind, task) -> method -> score (bc, rcbc) or normalised error (id, fd)."""

COMPARABLE: dict[tuple[str, str, str], bool] = {
    (row[0], row[1], task): mark == "yes"
    for row in _rows(_COMPARABLE)
    for task, mark in zip(row[2::2], row[3::2], strict=True)
}
"""What its Table 2 marks as comparable or better."""

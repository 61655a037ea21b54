"""The paper's tables and figures: each file lists its runs as plain data and draws the result.

    RunSpec --runner--> OUT/runs/KEY/result.json --draw--> OUT/NAME/README.md, CSV, JSON, PNG
              engine: local processes, or Ray

A run is keyed by what it is, so a finished one is never repeated, and experiments share runs.
"""

EXPERIMENTS = {
    "table1": "mtm.experiments.table1",
    "capabilities": "mtm.experiments.capabilities",
    "masking": "mtm.experiments.masking",
    "heteromodal": "mtm.experiments.heteromodal",
    "data-efficiency": "mtm.experiments.data_efficiency",
    "representation": "mtm.experiments.representation",
    "length": "mtm.experiments.length",
}
"""Name -> the module with `TITLE`, `DATA`, `runs(scale, data, seeds)` and `draw(results, out)`."""

"""The paper's tables and figures: each file lists its runs as plain data and draws the result.

    RunSpec --runner--> OUT/runs/KEY/result.json --draw--> OUT/NAME/README.md, CSV, JSON, PNG
              engine: local processes, or Ray

A run is keyed by what it is, so a finished one is never repeated, and experiments share runs.
"""

EXPERIMENTS = {
    "table1": "mtm.research.experiments.table1",
    "capabilities": "mtm.research.experiments.capabilities",
    "dynamics": "mtm.research.experiments.dynamics",
    "masking": "mtm.research.experiments.masking",
    "heteromodal": "mtm.research.experiments.heteromodal",
    "data-efficiency": "mtm.research.experiments.data_efficiency",
    "representation": "mtm.research.experiments.representation",
    "length": "mtm.research.experiments.length",
    "imputation": "mtm.research.experiments.imputation",
}
"""Name -> the module with `TITLE`, `DATA`, `runs(scale, data, seeds)` and `draw(results, out)`."""

"""Out of the lab: exported capabilities, a runtime without PyTorch, sharing and serving.

export(run, "robot", ["rcbc"])       writes them, where PyTorch and the extra `export` are
policy = load("robot")               acts, where only NumPy and the extra `deploy` are
model = load_model("robot", "fd")    answers
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtm.core.export_config import ExportConfig
    from mtm.deploy.exported_model import ExportedModel, load_model
    from mtm.deploy.exported_policy import ExportedPolicy, load
    from mtm.deploy.exporter import export

__all__ = ["ExportConfig", "ExportedModel", "ExportedPolicy", "export", "load", "load_model"]

_HOMES = {
    "ExportConfig": "mtm.core.export_config",
    "ExportedModel": "mtm.deploy.exported_model",
    "ExportedPolicy": "mtm.deploy.exported_policy",
    "export": "mtm.deploy.exporter",
    "load": "mtm.deploy.exported_policy",
    "load_model": "mtm.deploy.exported_model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mtm.deploy' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

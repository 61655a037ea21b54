"""Where numbers come from: code, versions, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import mtm
from mtm.core.versions import versions

VERSIONS_OF = (
    *("gymnasium", "gymnasium-robotics", "mujoco", "dm_control", "torchrl", "ray"),
    "pypots",
)


@cache
def here() -> dict[str, Any]:
    """Commit, versions and machine of this process."""
    return {
        "commit": commit(),
        "versions": versions(VERSIONS_OF),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
    }


def commit() -> str | None:
    """The commit of the checkout that this code runs from, if it is one; + where it was changed."""
    package = Path(mtm.__file__).parent
    try:
        tracked = _git(package, "ls-files", "__init__.py")
        if not tracked:  # installed inside of somebody else's checkout
            return None
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
        return _git(package, "rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _processor() -> str:
    """The processor's name as a person knows it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"

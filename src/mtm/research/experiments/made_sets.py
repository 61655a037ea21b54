"""`--data made`: the sets of `mtm reproduce data` in place of those of the paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mtm.core.errors import DataError
from mtm.data.loading import DataSpec
from mtm.research.collect.paper_sets import default_folder, read_manifest
from mtm.research.experiments.data import facts

MADE = "made"


def resolve(specs: Sequence[DataSpec], of_paper: Sequence[str]) -> list[DataSpec]:
    """The data sets with `made` and `made:FOLDER` replaced by files.

    Args:
        specs: What the user asks for.
        of_paper: The sets that the paper has for the experiment, such as `d4rl:hopper-medium-v2`;
            `made` stands for those of them that are in the folder.

    Raises:
        DataError: There are none, or one is not what it was when it was listed.
    """
    found: list[DataSpec] = []
    for spec in specs:
        word, _, folder = str(spec).partition(":")
        if word != MADE:
            found.append(spec)
            continue
        found += _files(Path(folder).expanduser() if folder else default_folder(), of_paper)
    return found


def _files(folder: Path, of_paper: Sequence[str]) -> list[DataSpec]:
    sets = read_manifest(folder)["sets"]
    wanted = [re.sub(r"-v\d+$", "", spec.removeprefix("d4rl:")) for spec in of_paper]
    names = [name for name in wanted if name in sets]
    if not names:
        raise DataError(
            f"{folder} has none of the sets that this experiment is about "
            f"({', '.join(wanted) or 'none'}); it has {', '.join(sorted(sets)) or 'none'}."
        )
    files: list[DataSpec] = []
    for name in names:
        file = str(folder / sets[name]["file"])
        if facts(file).fingerprint != sets[name]["fingerprint"]:
            raise DataError(
                f"{file} has changed since it was listed in {folder / 'manifest.json'}. Remove it, "
                "and `mtm reproduce data` puts it there again."
            )
        files.append(file)
    return files

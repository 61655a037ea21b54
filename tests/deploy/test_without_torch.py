"""An exported policy in another process, in an environment without PyTorch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np

from mtm.control import policies
from mtm.runs.run import Run

PROGRAM = """
import importlib.util, json, sys
import numpy as np
assert importlib.util.find_spec("torch") is None
import mtm.deploy
folder, states, out = sys.argv[1:]
states = np.load(states)  # (S, n, 11)
policy = mtm.deploy.load(folder)
policy.reset(states.shape[1])
actions = []
for now in states:
    actions.append(policy.act(now))
    policy.observe(np.ones(len(now)), np.zeros(len(now), bool))
model = mtm.deploy.load_model(folder, "impute")
filled = model({"states": states[:2, 0]})
assert np.isfinite(filled["actions"]).all()
np.save(out, np.stack(actions))
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
print(json.dumps(sorted({name.partition(".")[0] for name in files if "libraries" in files[name]})))
"""


def test_the_same_actions_without_torch(
    hopper: Run, exported: Path, python_without_torch: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    known = hopper.normalizer.statistics["states"]
    states = (known.mean + known.std * rng.normal(size=(30, 4, 11))).astype(np.float32)
    np.save(tmp_path / "states.npy", states)
    words = [python_without_torch, "-I", "-W", "error", "-c", PROGRAM]
    words += [exported, tmp_path / "states.npy", tmp_path / "actions.npy"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["mtm", "numpy", "onnxruntime"]
    policy = policies.return_conditioned(hopper)
    policy.reset(4)
    expected = []
    for now in states:
        expected.append(policy.act(now))
        policy.observe(np.ones(4), np.zeros(4, bool))
    actions = np.load(tmp_path / "actions.npy")
    np.testing.assert_allclose(actions, np.stack(expected), rtol=0, atol=1e-5)


def test_without_onnxruntime_the_message_names_the_extra(
    exported: Path, python_without_torch: Path
) -> None:
    program = "import sys; sys.modules['onnxruntime'] = None; import mtm.deploy; " + (
        f"mtm.deploy.load({str(exported)!r})"
    )
    words = [python_without_torch, "-I", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert 'pip install "masked-trajectory-models[deploy]"' in done.stderr

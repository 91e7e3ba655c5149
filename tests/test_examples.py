"""Every example runs and prints what its reader is told to expect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXPECTED = {
    "quick_start.py": ["4.009 bits a coordinate", "known to the sender"],
    "federated_mean.py": ["2.017 bits a coordinate", "all arrived", "10% of the blocks lost"],
    "model_weights.py": ["7.91 times smaller", "eden:4,scale=biased", "fp16"],
    "ddp_training.py": ["step  60", "headers and all", "ranks are bit-identical"],
}


def test_all_examples_are_tested() -> None:
    assert {p.name for p in FOLDER.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    if name == "ddp_training.py":
        dist = pytest.importorskip("torch.distributed")
        if not dist.is_available() or not dist.is_gloo_available():
            pytest.skip("needs torch.distributed with gloo")
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    done = subprocess.run([sys.executable, FOLDER / name], capture_output=True, text=True, env=env, timeout=180)
    assert done.returncode == 0, done.stderr
    for text in EXPECTED[name]:
        assert text in done.stdout, done.stdout

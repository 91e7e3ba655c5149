"""Every example in a docstring of tersor runs and prints what it says."""

import doctest
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "src"
OPTIONAL = {"torch", "typer", "rich", "matplotlib", "mlxtend"}
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "tersor").rglob("*.py")
    if path.stem != "__main__"
)


def load(name):
    """Import a module; skip the test if an extra is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        cause = error.__cause__ or error
        if getattr(cause, "name", None) and cause.name.split(".")[0] in OPTIONAL:
            pytest.skip(f"{cause.name} is not installed")
        raise


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    try:
        assert doctest.testmod(load(name)).failed == 0, "the output above says which example"
    finally:  # an example that fails may leave its process group open
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


def test_examples_are_found():
    found = [doctest.DocTestFinder().find(load(name)) for name in ("tersor.codec", "tersor.files", "tersor.rotation")]
    assert all(any(test.examples for test in tests) for tests in found)

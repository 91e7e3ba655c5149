"""Who may import whom inside tersor (the map is in ARCHITECTURE.md), and how light `import tersor` is."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "src" / "tersor"

# A module imports from units of a lower number, from its own unit and, on the levels in SIBLINGS, from neighbours.
# A new unit of the package gets a place here.
LEVELS = {
    "errors": 1,
    "arrays": 1,
    "rng": 1,
    "kernels": 2,
    "rotation": 3,
    "quantize": 3,
    "coding": 3,
    "bundle": 4,
    "codec": 4,
    "encoded": 4,
    "files": 4,
    "mean": 4,
    "message": 4,
    "metrics": 4,
    "registry": 4,
    "shared": 4,
    "specs": 4,
    "units": 4,
    "codecs": 5,
    "collectives": 6,
    "torch": 7,
    "kv": 7,
    "search": 7,
    "flower": 7,
    "evaluate": 8,
    "cli": 9,
}
SIBLINGS = {1, 3, 4}
USES = 7
# Imported in a function body only: the caller handed over such an array, or asked for such bytes.
LAZY = {("arrays", "torch"), ("coding", "zstandard")}
FRAMEWORKS = ("torch", "jax", "transformers", "flwr", "faiss", "typer", "rich", "matplotlib", "triton", "zstandard")


def _modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def _unit(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield (dotted name, is it at the top of the module); `from tersor import rng` counts as tersor.rng."""
    top = {id(node) for statement in tree.body if not _is_def(statement) for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "tersor":
                for alias in node.names:
                    yield f"tersor.{alias.name}", id(node) in top
            else:
                yield str(node.module), id(node) in top


def _is_def(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_direction(path: Path) -> None:
    unit = _unit(path)
    assert unit in LEVELS, f"give {unit} a place in LEVELS"
    level = LEVELS[unit]
    for name, at_top in _imports(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] == "tersor":
            if len(parts) == 1:
                assert level >= USES, "import the module that is meant, not the whole package"
                continue
            other = parts[1]
            if other not in LEVELS:  # a public name: only those above the core may use the front door
                assert level >= USES, f"{path.name} imports {name} through tersor/__init__.py"
            elif other != unit:
                below = LEVELS[other] < level or (LEVELS[other] == level and level in SIBLINGS)
                assert below, f"{unit} must not import {other}"
        elif parts[0] not in sys.stdlib_module_names and parts[0] != "numpy":
            lazy = (unit, parts[0]) in LAZY and not at_top
            assert level >= USES or lazy, f"{unit} imports {parts[0]}: below the uses there is NumPy only"


def test_uses_import_only_their_own_framework() -> None:
    for path in _modules():
        for name, _ in _imports(ast.parse(path.read_text())):
            framework = name.split(".")[0]
            if framework in ("typer", "rich"):
                assert _unit(path) in ("cli", "evaluate"), f"{path} imports {framework}"
            if framework == "matplotlib":
                assert _unit(path) == "evaluate", f"{path} imports {framework}"


def test_import_is_light() -> None:
    code = (
        "import sys, os, tersor\n"
        f"print([m for m in {FRAMEWORKS!r} if m in sys.modules])\n"
        "print(len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 1)\n"
    )
    # NumPy's own BLAS starts threads at import: not tersor's.
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "1"], done.stdout + done.stderr

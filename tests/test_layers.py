"""One way down: no module of cat_jax imports from a layer above its own."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LAYERS = {
    "__init__": 0,
    "__main__": 1,
    "__version__": 0,  # In __init__.
    "configs": 0,
    "files": 0,
    "provenance": 0,
    "published": 0,
    "types": 0,
    "losses": 1,
    "networks": 1,
    "data": 1,
    "state": 1,
    "weight_perturbation": 1,
    "distributed": 1,
    "backend": 1,
    "logs": 1,
    "results": 1,
    "stopping": 1,
    "workdirs": 1,
    "objectives": 2,
    "checkpoint": 2,
    "torch_weights": 2,
    "weight_formats": 3,
    "weight_files": 4,
    "weights": 5,
    "trained": 6,
    "saving": 3,
    "attacks": 3,
    "methods": 3,
    "phases": 4,
    "train_step": 4,
    "kept_step": 5,
    "skipping": 4,
    "evaluate": 4,
    "checks": 5,
    "settings": 4,
    "masks": 5,
    "sweep": 5,
    "build": 5,
    "validation": 6,
    "verify": 3,
    "train": 6,
    "report": 6,
    "theory": 7,  # Its page has the form of the report's.
    "robustness": 7,
    "benchmark": 8,
    "result_lines": 6,
    "model_card": 7,
    "robustbench": 7,
    "export": 8,
    "command_line": 7,
    "console": 7,
    "main": 8,
}
APART = "report"  # Reads result files: of our modules it imports `files` alone, and no JAX.
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
FILES = sorted(path for top in ("cat_jax", "configs") for path in (ROOT / top).rglob("*.py"))


def unit_of(path):
    """The top-level module or package of cat_jax that a file belongs to."""
    top, *rest = path.relative_to(ROOT).parts
    return (rest[0] if top == "cat_jax" else top).removesuffix(".py")


def imported_names(source):
    """Dotted names: "a.b" of `import a.b`, "a.b" of `from a import b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the layer: write from cat_jax..."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(unit, source):
    """What a file of `unit` imports that it should not."""
    if unit != APART and unit not in LAYERS:
        return [f"{unit} has no layer: give it one in LAYERS, and in the README's layout"]
    roots = [name.split(".") for name in imported_names(source)]
    ours = {root[1] for root in roots if root[0] == "cat_jax"} - {unit}
    if unit == APART:
        return sorted(ours - {"files"}) + sorted({root[0] for root in roots} & HEAVY)
    return sorted(name for name in ours if LAYERS.get(name, 99) > LAYERS[unit])


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_import_from_a_layer_above(path):
    assert not faults(unit_of(path), path.read_text())


def test_the_check_can_fail():
    assert faults("losses", "from cat_jax import types") == []
    assert faults("losses", "from cat_jax import objectives, types") == ["objectives"]
    assert faults("attacks", "import cat_jax.train") == ["train"]
    assert faults("attacks", "from cat_jax.attacks.pgd import pgd") == []
    assert faults("report", "import jax.numpy\nfrom cat_jax.types import Array") == ["types", "jax"]
    assert faults("types", "def f():\n  from cat_jax.state import TrainState") == ["state"]
    assert faults("utils", "")

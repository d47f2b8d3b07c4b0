"""One way down: a module imports from its own room and from the rooms before it in `LAYERS`."""

import ast
import collections
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# Lowest first. Rooms on one line may import each other. A __main__.py is part of the command line.
LAYERS = """
__init__ errors types intervals configs
storage runtime
losses objectives networks data
attacks methods
checks step
experiment
weights evaluation
training
report
paper theory
cli main __main__
""".strip().split("\n")
LEVELS = {room: level for level, rooms in enumerate(LAYERS) for room in rooms.split()}
WITHOUT_JAX = {"errors", "intervals", "configs", "report", "paper"}
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
FILES = sorted(path for top in ("cat_jax", "configs") for path in (ROOT / top).rglob("*.py"))


def room_of(path):
    """The module or package at the top of cat_jax that a file belongs to."""
    top, *rest = path.relative_to(ROOT).parts
    if path.name == "__main__.py":
        return "__main__"
    return (rest[0] if top == "cat_jax" else top).removesuffix(".py")


def imported_names(source):
    """Dotted names: "a.b" of `import a.b`, "a.b" of `from a import b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the layer: write from cat_jax..."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(room, source):
    """What a file of `room` imports that it should not."""
    if room not in LEVELS:
        return [f"{room} has no layer: add it to LAYERS"]
    names = [name.split(".") for name in imported_names(source)]
    rooms = {parts[1] for parts in names if parts[0] == "cat_jax"} - {room, "__version__"}
    above = sorted(other for other in rooms if LEVELS.get(other, 99) > LEVELS[room])
    heavy = {parts[0] for parts in names} & HEAVY if room in WITHOUT_JAX else set()
    return above + sorted(heavy)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_import_from_a_layer_above(path):
    assert not faults(room_of(path), path.read_text())


def test_the_check_can_fail():
    assert faults("losses", "from cat_jax import types") == []
    assert faults("losses", "from cat_jax import attacks, types") == ["attacks"]
    assert faults("attacks", "import cat_jax.training.loop") == ["training"]
    assert faults("attacks", "from cat_jax.attacks.pgd import pgd") == []
    assert faults("report", "import jax.numpy\nfrom cat_jax.theory import text") == [
        "theory",
        "jax",
    ]
    assert faults("types", "def f():\n  from cat_jax.step.state import TrainState") == ["step"]
    assert faults("utils", "")


def test_a_newcomer_finds_few_rooms_and_no_name_twice():
    top = [path for path in (ROOT / "cat_jax").iterdir() if path.name != "__pycache__"]
    assert sum(path.is_file() for path in top) <= 10
    assert sum(path.is_dir() for path in top) <= 16
    names = collections.Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    assert {name for name, count in names.items() if count > 1} == set()

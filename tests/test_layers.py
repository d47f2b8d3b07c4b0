"""One way down: a module imports from its own room and from the rooms before it in `LAYERS`."""

import ast
import collections
import functools
import pathlib

import pytest

from cat_jax.experiment.fields import FIELDS

ROOT = pathlib.Path(__file__).parent.parent
# Lowest first. Rooms on one line may import each other. A __main__.py is part of the command line.
LAYERS = """
__init__ errors types intervals configs
storage runtime
losses objectives networks data
attacks methods
evaluation.checks step
experiment
weights evaluation
training
report
paper theory
plan
cli main __main__
""".strip().split("\n")
LEVELS = {room: level for level, rooms in enumerate(LAYERS) for room in rooms.split()}
# Rooms and single modules that start without jax, with all that they import.
WITHOUT_JAX = {"errors", "intervals", "configs", "report", "paper"}
WITHOUT_JAX |= {"experiment.settings", "experiment.fields"}
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
FILES = sorted(path for top in ("cat_jax", "configs") for path in (ROOT / top).rglob("*.py"))


def room_of(path):
    """The module or package of `LAYERS` that a file belongs to."""
    top, *rest = path.relative_to(ROOT).with_suffix("").parts
    if path.name == "__main__.py":
        return "__main__"
    return layer(rest) if top == "cat_jax" else top


def layer(names):
    """ "a.b" if `LAYERS` has it, or else "a", for the names [a, b, ...] of a module in cat_jax."""
    inner = ".".join(names[:2])
    return inner if inner in LEVELS else names[0]


def imported_names(source):
    """Dotted names: "a.b" of `import a.b`, "a.b" of `from a import b`."""
    yield from names_of(ast.walk(ast.parse(source)))


def names_imported_at_once(source):
    """The names whose modules run when the file is imported: not those that a function imports."""
    nodes = list(ast.parse(source).body)
    for node in nodes:
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not isinstance(node, ast.FunctionDef) and not is_for_types:
            nodes += ast.iter_child_nodes(node)
    yield from names_of(nodes)


def names_of(nodes):
    """The dotted names that these nodes of a syntax tree import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the layer: write from cat_jax..."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def imported_files(path):
    """The files of cat_jax that the imports in `path` run: modules, and packages around them."""
    names = [name.split(".") for name in names_imported_at_once(path.read_text())]
    stems = [ROOT.joinpath(*parts[:end]) for parts in names for end in range(1, len(parts) + 1)]
    files = {file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")}
    return {file for file in files if file.is_relative_to(ROOT / "cat_jax") and file.is_file()}


def heavy_imports(paths):
    """ "file imports jax" for each file, reached from `paths` by imports, that does so."""
    reached, waiting = set(), set(paths)
    while waiting:
        path = waiting.pop()
        reached.add(path)
        waiting |= imported_files(path) - reached
    for path in sorted(reached):
        for name in names_imported_at_once(path.read_text()):
            if name.split(".")[0] in HEAVY:
                yield f"{path.relative_to(ROOT)} imports {name}"


def faults(room, source):
    """What a file of `room` imports that it should not."""
    if room not in LEVELS:
        return [f"{room} has no layer: add it to LAYERS"]
    names = [name.split(".") for name in imported_names(source)]
    rooms = {layer(parts[1:]) for parts in names if parts[0] == "cat_jax"} - {room, "__version__"}
    above = sorted(other for other in rooms if LEVELS.get(other, 99) > LEVELS[room])
    heavy = {parts[0] for parts in names} & HEAVY if room in WITHOUT_JAX else set()
    return above + sorted(heavy)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_import_from_a_layer_above(path):
    assert not faults(room_of(path), path.read_text())


@pytest.mark.parametrize("name", sorted(WITHOUT_JAX))
def test_what_starts_without_jax_reaches_it_by_no_import(name):
    stem = ROOT.joinpath("cat_jax", *name.split("."))
    paths = list(stem.rglob("*.py")) if stem.is_dir() else [stem.with_suffix(".py")]
    assert list(heavy_imports(paths)) == []


def test_the_search_for_jax_can_fail():
    assert "cat_jax/types.py imports jax" in heavy_imports([ROOT / "cat_jax/attacks/pgd.py"])
    source = "if True:\n  import a\nif TYPE_CHECKING:\n  import b\nclass C:\n  import c\n"
    source += "def f():\n  import d\n"
    assert sorted(names_imported_at_once(source)) == ["a", "c"]


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
    assert faults("evaluation.checks", "from cat_jax import attacks, evaluation") == ["evaluation"]
    assert faults("attacks", "from cat_jax.evaluation import checks") == ["evaluation.checks"]
    assert faults("utils", "")


def listed_fields(source):
    """The fields of each tuple, list, set or dictionary that has several of them."""
    for node in ast.walk(ast.parse(source)):
        elements = getattr(node, "elts", None) or getattr(node, "keys", None) or []
        names = {element.value for element in elements if isinstance(element, ast.Constant)}
        if len(fields := names & FIELDS.keys()) > 1:
            yield sorted(fields)


@pytest.mark.parametrize("room", ["paper", "report"])
def test_what_prints_runs_lists_no_fields(room):
    """The table of fields decides which fields matter; a copy would become outdated."""
    sources = {path.name: path.read_text() for path in (ROOT / "cat_jax" / room).rglob("*.py")}
    assert {name: list(listed_fields(source)) for name, source in sources.items()} == {
        name: [] for name in sources
    }
    assert list(listed_fields("x = {'a', 'seed', 'num_epochs'}")) == [["num_epochs", "seed"]]


def config_arguments(source):
    """The functions that take a config, as their annotations say."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            annotations = [ast.unparse(a.annotation) for a in arguments if a.annotation]
            if any("ConfigDict" in text for text in annotations):
                yield node.name


def test_a_config_stops_at_the_experiment():
    """A command gives it to `experiment/`; training, evaluation and weights take objects."""
    commands = ("experiment", "cli", "plan", "configs")
    paths = [path for path in FILES if room_of(path) not in commands]
    names = {str(path): list(config_arguments(path.read_text())) for path in paths}
    assert {path: own for path, own in names.items() if own} == {}
    assert list(config_arguments("def f(*, c: ConfigDict | None) -> None: ...")) == ["f"]


def test_a_newcomer_finds_few_rooms_and_no_name_twice():
    top = [path for path in (ROOT / "cat_jax").iterdir() if path.name != "__pycache__"]
    assert sum(path.is_file() for path in top) <= 10
    assert sum(path.is_dir() for path in top) <= 17
    names = collections.Counter(path.stem for path in FILES if not path.stem.startswith("__"))
    assert {name for name, count in names.items() if count > 1} == set()

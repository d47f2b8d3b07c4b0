"""notebooks/: what they show is there and from nowhere in particular; slow: they run."""

import ast
import importlib.util
import json
import re
import resource

import pages
import plain_words
import pytest

NOTEBOOKS = sorted((pages.ROOT / "notebooks").glob("*.ipynb"))
LONGEST = 180.0  # Seconds, if two cores have nothing else to do.


@pytest.fixture(params=NOTEBOOKS, ids=lambda file: file.stem)
def file(request):
    return request.param


@pytest.fixture
def notebook(file):
    return json.loads(file.read_text())


def sources(notebook, kind="code"):
    """The text of the cells of a kind."""
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == kind]


def outputs(notebook):
    """What the cells print, and their pictures as base64."""
    found = [o for c in notebook["cells"] for o in c.get("outputs", [])]
    assert not [o for o in found if o["output_type"] == "error"]
    texts = [o.get("text", o.get("data", {}).get("text/plain", "")) for o in found]
    pictures = [o["data"]["image/png"] for o in found if "image/png" in o.get("data", {})]
    return ["".join(text) for text in texts], pictures


def test_there_are_four():
    assert [file.name[0] for file in NOTEBOOKS] == ["1", "2", "3", "4"]


def test_it_was_run_from_the_first_cell_to_the_last(notebook):
    counts = [c["execution_count"] for c in notebook["cells"] if c["cell_type"] == "code"]
    assert counts == [*range(1, len(counts) + 1)]
    texts, pictures = outputs(notebook)
    assert any(re.search(r"\d\.\d", text) for text in texts), "no number is shown"
    assert sum(map(len, pictures)) < 200_000, "pictures are to be small"


def test_it_has_nothing_of_the_machine_it_was_run_on(notebook):
    assert notebook["metadata"].keys() == {"kernelspec", "language_info"}
    assert not any(cell["metadata"] for cell in notebook["cells"])
    texts, _ = outputs(notebook)
    for text in [*texts, *sources(notebook), *sources(notebook, "markdown")]:
        assert not re.search(r"(?<![\w.*/:])/(home|root|tmp|usr|var|work|opt|Users)\b", text), text


def test_it_names_only_what_the_package_has_and_its_commands_parse(notebook):
    code = [text for text in sources(notebook) if not text.startswith("%%bash")]
    assert pages.missing_names("\n".join(code)) == []
    assert all(ast.parse(text) for text in code)
    for text in sources(notebook):
        if text.startswith("%%bash"):
            assert pages.faults_of_commands(text) == []


def test_its_words_are_plain(notebook):
    assert plain_words.faults("\n".join(sources(notebook, "markdown"))) == []


def test_the_search_for_missing_names_can_fail():
    source = "from cat_jax import attacks, nothing\nattacks.pgd\nattacks.pdg\nattacks._hidden"
    missing = ["cat_jax.nothing", "cat_jax.attacks.pdg", "cat_jax.attacks._hidden"]
    assert pages.missing_names(source) == missing
    assert pages.missing_names("from cat_jax.attacks import pgd\npgd.__name__") == []


@pytest.mark.slow
def test_it_runs_in_time_and_shows_the_same_kinds_of_things(file, notebook, tmp_path, monkeypatch):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    spec = importlib.util.spec_from_file_location("execute", file.parent / "execute.py")
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    monkeypatch.setenv("PYTHONPATH", str(pages.ROOT))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = execute.execute(file, tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert 1 < spent < 2 * LONGEST
    assert execute.paths_of_this_machine(made) == []

    def kinds(notebook):
        return [[o["output_type"] for o in c.get("outputs", [])] for c in notebook["cells"]]

    assert kinds(made) == kinds(notebook)

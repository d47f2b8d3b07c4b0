"""docs/ and README.md: their names exist, their words are plain; slow: their blocks run."""

import ast
import html.parser
import importlib.util
import json
import re
import subprocess
import sys
import urllib.parse

import pages
import plain_words
import pytest
from absl import flags

from cat_jax.cli import command_line
from cat_jax.data.prepare import preparable
from cat_jax.training import initial

DOCS = pages.ROOT / "docs"
PAGES = [
    *(page for page in sorted(DOCS.rglob("*.md")) if "results" not in page.parts),
    *(pages.ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]
# Without the pages of tables and of the theory, which commands write.
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.parent.name != "results"]
WRITTEN.append(pages.ROOT / "README.md")
RUN = [page for page in PAGES if {"bash", "python"} & {b.language for b in pages.blocks(page)}]


def name_of(page):
    return str(page.relative_to(pages.ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_its_blocks_name_is_there(page):
    for language, text, _ in pages.blocks(page):
        assert language in ("", "bash", "sh", "python", "py", "text"), language
        if language == "python":
            ast.parse(text)
            assert pages.missing_names(text) == []
        if language in ("", "bash", "sh"):
            assert pages.faults_of_commands(text) == []


def test_the_page_on_data_names_the_archives_that_are_read():
    named = {
        name
        for page in PAGES
        for name in re.findall(r"[\w-]+\.(?:(?:tar\.)?gz|zip)\b", page.read_text())
    }
    for dataset, archives in preparable().items():
        assert named & archives.checksums.keys(), dataset
        named -= archives.checksums.keys()
    assert not named


def test_the_page_of_commands_lists_every_flag_of_main():
    listed = re.findall(r"^\| (.*?) \|", (DOCS / "reference" / "commands.md").read_text(), re.M)
    listed = {name for cell in listed for name in re.findall(r"`--(\w+)`", cell)}
    defined = {flag.name for flag in flags.FLAGS.flags_by_module_dict()[command_line.__name__]}
    assert listed == defined


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_its_links_lead_somewhere(page):
    """The test parses links to other hosts and fetches nothing. Notebooks become pages."""
    for link in pages.links(page):
        parts = urllib.parse.urlsplit(link)
        if parts.scheme:
            assert parts.scheme == "https" and "." in parts.netloc, link
            continue
        target = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
        if target.parent == DOCS / "notebooks":
            target = pages.ROOT / "notebooks" / target.with_suffix(".ipynb").name
        assert target.exists(), link


def test_the_readme_is_short():
    assert len((pages.ROOT / "README.md").read_text().split("\n")) <= 151


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_its_lines_are_narrow_and_its_words_plain(page):
    lines = page.read_text().split("\n")
    assert [f"line {i}: {len(line)}" for i, line in enumerate(lines, 1) if len(line) > 120] == []
    assert plain_words.faults(pages.prose(page)) == []


@pytest.mark.parametrize(
    "remote, address",
    [
        ("git@example.org:group/cat_jax.git", "https://example.org/group/cat_jax"),
        ("https://example.org/group/cat_jax", "https://example.org/group/cat_jax"),
        ("ssh://git@example.org/group/cat_jax.git", "https://example.org/group/cat_jax"),
        ("/srv/cat_jax.git", ""),
        ("", ""),
    ],
)
def test_the_home_page_links_to_the_remote_of_the_clone(remote, address):
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    spec = importlib.util.spec_from_file_location("convert", DOCS / "hooks" / "convert.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert hooks.repository(remote) == address


SOURCES = sorted((pages.ROOT / "cat_jax").rglob("*.py")) + sorted(
    path for path in (pages.ROOT / "configs").glob("*.py")
)


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_docstrings_and_messages_use_plain_words(source):
    texts = plain_words.texts(source.read_text())
    assert [fault for text in texts for fault in plain_words.faults(text)] == []


def test_words_that_are_not_plain_are_found():
    text = "Give it again and it goes\non: a check said that all files are sound, as they\nare."
    assert len(plain_words.faults(text)) == 4
    assert plain_words.faults("A run resumes. An upper bound sounds right; the whole batch.") == []
    source = 'def f(x):\n    """Mends x."""\n    raise ValueError(f"{x} is not sound")\n'
    assert list(plain_words.texts(source))[:2] == ["Mends x.", "X is not sound"]


OF_RECIPES = {"cat_jax.networks.tiny_net"}  # `test_recipes` writes it.


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_files_modules_and_fields_that_it_names_exist(page):
    assert pages.missing_paths(page) == []
    assert set(pages.missing_modules(page)) <= OF_RECIPES
    assert pages.missing_fields(page) == []


def test_the_checks_of_pages_can_fail(tmp_path):
    sound = "python -m cat_jax.main --config=cat_jax:digits:at --config.seed=1 --workdir=x"
    assert pages.faults_of_commands(sound) == []
    assert pages.faults_of_commands("PAUSE=1 launch/local.sh 2 --workdir=x  # a comment") == []
    assert pages.faults_of_commands("python -m cat_jax.report --table=mnist --status") == []
    for wrong in (
        "python -m cat_jax.mian --workdir=x",
        "python -m cat_jax.main --wordkir=x",
        "python -m cat_jax.main --config=configs/digit.py",
        "python -m cat_jax.main --config=cat_jax:digits:cat",
        "python -m cat_jax.main --config=configs/digits.py --config.sede=1",
        "python -m cat_jax.report --tabel=mnist",
        "launch/quickstart.bat",
        "launch/reproduce.sh mnist --slrum",
    ):
        assert len(pages.faults_of_commands(f"true && {wrong} \\\n  --workdir=x")) == 1, wrong
    page = tmp_path / "page.md"
    page.write_text("[a](b.md) `[c](d.md)`\n```bash\n[e](f.md)\n```\n")
    assert pages.links(page) == ["b.md"]
    page.write_text(
        "`launch/local.sh` `networks/norm.py` launch/locl.sh, networks/nrm.py. "
        "`cat_jax.attacks.pgd.pgd` cat_jax.build, cat_jax.losses.losss "
        "`config.method.beta` --config.method.bta=1 config.json config.seeed."
    )
    assert pages.missing_fields(page) == ["method.bta", "seeed"]
    assert pages.missing_paths(page) == ["launch/locl.sh", "networks/nrm.py"]
    assert pages.missing_modules(page) == ["cat_jax.build", "cat_jax.losses.losss"]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_its_blocks_run(page, tmp_path):
    process = pages.run(page, tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.fixture
def run_small(tmp_path, monkeypatch, real_data):
    """Runs the Python command of a page in an empty folder, on little data, in few steps.

    Returns what the command prints.
    """
    (tmp_path / "configs").symlink_to(pages.ROOT / "configs")
    monkeypatch.chdir(tmp_path)

    def run(words):
        words = [*words[1:], *pages.small(words, real_data)]
        process = subprocess.run(
            [sys.executable, *words], env=pages.environment(), capture_output=True, text=True
        )
        assert process.returncode == 0, (words, process.stdout, process.stderr)
        return process.stdout

    return run


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path, run_small):
    """Scripts have their own tests, and the preparation of data, which needs archives or a network,
    is only parsed.
    """
    texts = [block.text for block in pages.blocks(pages.ROOT / "README.md")]
    modules = [words for text in texts for words in pages.commands(text) if words[0] == "python"]
    modules = [words for words in modules if words[2] != "cat_jax.data"]
    assert len(modules) >= 7
    printed = [run_small(words) for words in modules]
    assert "fab_t" in "".join(printed), "of the standard AutoAttack"
    assert {path.name for path in (tmp_path / "tables").iterdir()} >= {"mnist.html", "mnist.csv"}


@pytest.mark.slow
def test_the_commands_that_begin_with_given_weights_run(tmp_path, run_small):
    page = (DOCS / "howto" / "train.md").read_text()
    section = page.split("## Start from given weights\n")[1].split("\n## ")[0]
    for words in pages.commands(section):
        run_small([word for word in words if not word.startswith("--config.num_steps=")])
    plain, tuned = (initial.identity(str(tmp_path / "runs" / name)) for name in ("plain", "tuned"))
    config = json.loads((tmp_path / "runs" / "tuned" / "config.json").read_text())
    assert config["init_weights"] == plain != tuned


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=pages.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr  # A warning is an error.
    return folder


class References(html.parser.HTMLParser):
    """What a built page refers to, what it loads, and its anchors."""

    def __init__(self, file):
        super().__init__()
        self.links, self.loaded, self.anchors = set(), set(), {""}
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values.get("id"), values.get("name")}
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])
        loads = {"link": "href", "script": "src", "img": "src", "iframe": "src"}
        if tag in loads and values.get(loads[tag]):
            self.loaded.add(values[loads[tag]])


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere_and_no_page_asks_another_host(site):
    built = {file: References(file) for file in site.rglob("*.html") if "results" not in file.parts}
    assert len(built) > 25
    for file, references in built.items():
        hosts = {urllib.parse.urlsplit(link).netloc for link in references.loaded}
        assert hosts == {""}, (file, hosts)
        for link in references.links | references.loaded:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or file.name == "404.html":
                continue
            path = urllib.parse.unquote(parts.path)
            target = (file.parent / path).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (file, link)
            if target in built:
                assert urllib.parse.unquote(parts.fragment) in built[target].anchors, (file, link)


@pytest.mark.slow
def test_equations_are_mathml_and_notebooks_are_pages(site):
    concepts = (site / "concepts" / "index.html").read_text()
    assert concepts.count("<math") > 30 and "arithmatex" not in concepts and "\\(" not in concepts
    attack = site / "notebooks" / "1_attack_your_model"
    assert "under PGD-20" in (attack / "index.html").read_text()
    assert (site / "notebooks" / "1_attack_your_model.ipynb").is_file()
    reference = (site / "reference" / "attacks" / "index.html").read_text()
    config = (site / "reference" / "config" / "index.html").read_text()
    assert "keep_checkpoints" in config and "8&lt;" not in config  # All of configs/default.py.
    assert 'id="cat_jax.attacks.pgd.pgd"' in reference and "radius of the ball" in reference

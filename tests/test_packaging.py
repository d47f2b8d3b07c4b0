"""The wheel: it works outside the checkout, with the configs in it; how to cite it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest
import yaml

import cat_jax
from cat_jax.storage import files, provenance
from cat_jax.storage.provenance import git_sha  # Not what conftest.py puts in its place.

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = ("cat_jax", "configs", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md")
TEXTS = ("LICENSE", "CHANGELOG.md", "CITATION.cff", "requirements.txt")
FEW = (
    "--config.num_steps=3",
    "--config.validation.every_epochs=100",
    "--config.evaluation=natural",
    "--config.test.num_checked=0",
)
# What CFF 1.2 asks for, and the fields used here that it knows (its schema, in short).
REFERENCE = {"type", "title", "authors", "year", "conference", "collection-title", "volume"}
REFERENCE |= {"publisher", "identifiers"}
CITATION = {"cff-version", "message", "type", "title", "authors", "version", "license", "keywords"}


def test_the_citation_is_of_this_version_and_of_the_paper():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert set(found) == CITATION | {"references"} and found["cff-version"] == "1.2.0"
    assert found["version"] == cat_jax.__version__ and found["license"] == "Apache-2.0"
    assert found["type"] == "software" and all(author.get("name") for author in found["authors"])
    (paper,) = found["references"]
    assert set(paper) == REFERENCE and paper["type"] == "conference-paper"
    assert [author["family-names"] for author in paper["authors"]] == [
        *("Huang", "Menkovski", "Pei", "Pechenizkiy")
    ]


def test_the_version_has_one_source():
    assert re.fullmatch(r"\d+\.\d+\.\d+", cat_jax.__version__)
    assert "version = attr: cat_jax.__version__" in (ROOT / "setup.cfg").read_text()


def test_what_is_installed_within_a_checkout_of_something_else_claims_no_commit(
    tmp_path, monkeypatch
):
    file = tmp_path / "lib" / "provenance.py"
    file.parent.mkdir()
    file.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(file))
    assert git_sha() is None, "there is no checkout"
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "of another"], check=True)
    assert git_sha() is None
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "its own"], check=True)
    assert re.fullmatch("[0-9a-f]{12}", git_sha())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the sdist, and the wheel that was made of it."""
    source = tmp_path_factory.mktemp("source")
    for name in (*SOURCES, *TEXTS):
        if (ROOT / name).is_dir():
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=leave)
        else:
            shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--outdir={out}", source],
        check=True,
        capture_output=True,
    )
    return out


@pytest.mark.slow
def test_sdist_and_wheel_hold_the_package_and_nothing_of_the_tests(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    kept = {path.relative_to(ROOT).as_posix() for path in (ROOT / "cat_jax").rglob("*.py")}
    kept |= {f"cat_jax/configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}
    kept |= {"cat_jax/py.typed"}
    kinds = ("*.csv", "*/templates/*", "*/targets/*", "*/models/*")
    files = [path for kind in kinds for path in (ROOT / "cat_jax").rglob(kind)]
    kept |= {path.relative_to(ROOT).as_posix() for path in files}
    assert kept > {"cat_jax/paper/published.csv", "cat_jax/report/templates/base.html"}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == kept
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert kept | {"CITATION.cff", "CHANGELOG.md", "LICENSE"} < names
    assert not any(name.startswith("tests") for name in names)


def own_environment():
    """The variables of this process, without those that lead to its checkout or to its devices."""
    left_out = ("XLA_FLAGS", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in left_out}


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The Python of an environment with the wheel; it sees what the wheel needs in this one."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-I", "-m", "pip", "--python", python, "--disable-pip-version-check")
    command = [*pip, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True, env=own_environment())
    (site,) = folder.glob("lib/python*/site-packages")
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site / "rest.pth").write_text("".join(f"{path}\n" for path in paths))
    return python


@pytest.mark.slow
def test_the_wheel_trains_and_evaluates_in_an_empty_folder(installed, tmp_path):
    environment = own_environment()

    def run(*words):
        command = [installed, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    told = run("-c", "import cat_jax; print(cat_jax.__file__, cat_jax.__version__)").stdout.split()
    assert pathlib.Path(told[0]).is_relative_to(installed.parent.parent)
    assert told[1] == cat_jax.__version__
    assert "digits_cat_cent" in run("-m", "cat_jax.weights").stdout
    main = ("-m", "cat_jax.main", "--workdir=runs/digits")
    trained = run(*main, "--config=cat_jax:digits", *FEW)
    assert f"cat_jax {cat_jax.__version__}: train and evaluate digits:cat_cent" in trained.stderr
    evaluated = run(*main, "--mode=evaluate", "--quiet", "--config.evaluation=fgsm")
    assert evaluated.stderr == "" and "best = last" in evaluated.stdout
    lines = files.read_json_lines(tmp_path / "runs" / "digits" / "results.jsonl")
    assert {line["conditions"]["attack"] for line in lines} == {"natural", "fgsm"}
    assert {line["outcome"]["versions"]["cat_jax"] for line in lines} == {cat_jax.__version__}
    assert {line["outcome"]["git_sha"] for line in lines} == {None}
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]

"""Markdown pages: their blocks, their links, and whether what these name is there."""

import ast
import importlib
import importlib.util
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

from ml_collections import ConfigDict

from cat_jax import main
from cat_jax.configs import default
from cat_jax.errors import UsageError

ROOT = pathlib.Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]*)\")?[^\n]*\n(.*?)^```$", re.M | re.S)
# Such as launch/local.sh and networks/norm.py; not FOLDER/train.py, nor a path inside a longer one.
PATH = re.compile(
    r"(?<![\w./~-])(?:launch|benchmarks|configs|tests|docs|notebooks|[a-z_]+(?:/_?[a-z]+)*)"
    r"/[\w.-]+\.(?:py|sh|sbatch|yaml|csv|ipynb)\b"
)
FIELD = re.compile(r"\bconfig\.((?!(?:json|py|md)\b)[a-z_0-9]+(?:\.[a-z_0-9]+)*)")
DOTTED = re.compile(r"(?<![\w./-])cat_jax(?:\.[A-Za-z]\w*)+")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Runs the blocks of a page, "language\n..." with a NUL between them: Python's share one namespace.
# A block whose title names a file becomes that file.
RUNNER = """
import subprocess, sys
space = {"__name__": "__main__"}
for block in sys.stdin.read().split("\\0"):
    language, _, text = block.partition("\\n")
    if language.endswith(".py"):
        open(language, "w").write(text)
    elif language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", text]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    else:
        exec(compile(text, "<block>", "exec"), space)
"""


class Block(NamedTuple):
    """A fenced block. Of language bash or python it is run by a test; sh and py are only read."""

    language: str
    text: str
    title: str = ""


def blocks(page):
    """The fenced blocks of a page, in order."""
    return [
        Block(language, text, title) for language, title, text in FENCE.findall(page.read_text())
    ]


def prose(page):
    """A page without its fenced blocks and its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))


def links(page):
    """Targets of a page's links."""
    return LINK.findall(prose(page))


def missing_paths(page):
    """Files that a page names and that are not in the repository, nor below cat_jax/."""
    names = {match.rstrip(".") for match in PATH.findall(page.read_text())}
    folders = (ROOT, ROOT / "cat_jax")
    return sorted(n for n in names if not any((folder / n).exists() for folder in folders))


def missing_fields(page):
    """Fields of the config in a page, in blocks and in prose, that the schema does not have."""
    return sorted(set(FIELD.findall(page.read_text())) - FIELDS)


def missing_modules(page):
    """Dotted names of cat_jax in a page that lead to no module, class or function."""
    return sorted(name for name in set(DOTTED.findall(page.read_text())) if not _leads_to(name))


def _leads_to(name):
    """Whether a module has the attribute, where both may have one name, as `attacks.pgd.pgd`."""
    package, _, rest = name.rpartition(".")
    try:
        return importlib.import_module(name) is not None
    except UsageError:
        return True  # It needs PyTorch, which is not installed.
    except ModuleNotFoundError:
        pass
    return rest == "configs" or (_leads_to(package) and hasattr(sys.modules[package], rest))


def environment():
    """What a user has: one device, optimized code, `python` the one of the tests."""
    kept = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), kept["PATH"]])
    return kept | {"PATH": path, "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}


def run(page, folder):
    """Runs the bash and python blocks of a page, one after another, in `folder`."""
    shown = [block for block in blocks(page) if block.language in ("bash", "python")]
    scripts = "\0".join(f"{block.title or block.language}\n{block.text}" for block in shown)
    return subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=scripts,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def small(words, data_dir):
    """What to add to a command, for it to take seconds: fields and flags that it has not set.

    Args:
      words: of the command.
      data_dir: of MNIST and CIFAR-10.
    """
    more = []
    if "cat_jax.main" in words:
        more += [f"--config.test.{field}" for field in ("num_examples=10", "num_checked=0")]
        if "--mode=evaluate" not in words:
            more += [f"--config.{field}" for field in ("num_steps=2", "batch_size=4")]
            more += ["--config.num_validation=0", "--config.evaluation=quick"]
    if "benchmarks.step_cost" in words:
        more += ["--steps=1", "--nophases"]
    named = "".join(word for word in words if word.startswith("--config="))
    if "mnist" in named or "cifar10" in named:
        more += [f"--config.data_dir={data_dir}"]
    given = {word.partition("=")[0] for word in words}
    return [word for word in more if word.partition("=")[0] not in given]


def missing_names(source):
    """Names that Python `source` takes from cat_jax and that are not there, or not public."""
    modules, missing = {}, []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "cat_jax":
            for alias in node.names:
                found = _attribute(importlib.import_module(node.module), alias.name)
                modules[alias.asname or alias.name] = found
                if found is None:
                    missing.append(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            is_ours = getattr(module, "__spec__", None) is not None
            if is_ours and _attribute(module, node.attr) is None:
                missing.append(f"{module.__name__}.{node.attr}")
    return missing


def _attribute(module, name):
    """What a module has under a public name; of a package, also a module of it."""
    if name.startswith("_"):
        return None
    if not hasattr(module, name) and hasattr(module, "__path__"):
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ModuleNotFoundError:
            return None
    return getattr(module, name, None)


def faults_of_commands(text):
    """What the commands of a shell text name and is not there: scripts, modules, flags, fields."""
    return [fault for words in commands(text) for fault in _faults(words)]


def commands(text):
    """The words of each command from a script of launch/ or a module on; others are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        places = range(len(words))
        begins = (
            i for i in places if words[i].startswith("launch/") or words[i + 1 : i + 2] == ["-m"]
        )
        if (start := next(begins, None)) is not None:
            yield words[start:]


def _faults(words):
    """Flags of scripts and of modules but main are looked for in their source."""
    scripts = [ROOT / word for word in words if word.startswith("launch/")]
    modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
    found = [importlib.util.find_spec(module) for module in modules]
    files = [pathlib.Path(spec.origin) for spec in found if spec is not None]
    files = [file.with_name("__main__.py") if file.stem == "__init__" else file for file in files]
    absent = [str(file) for file in [*scripts, *files] if not file.is_file()]
    absent += [name for name, spec in zip(modules, found, strict=True) if spec is None]
    source = "\n".join(file.read_text() for file in [*scripts, *files] if file.is_file())
    for word in words:
        flag, _, value = word.partition("=")
        if flag == "--config":
            absent += _faults_of_config(value)
        elif flag.startswith("--config."):
            absent += [word] * (flag.removeprefix("--config.") not in FIELDS)
        elif flag.startswith("--"):
            known = flag[2:] in main.flags.FLAGS or flag in source
            known |= flag.startswith("--no") and f'"{flag[4:]}"' in source  # A switch, off.
            absent += [word] * (not known)
    return absent


def _faults_of_config(value):
    file, _, variant = value.removeprefix("cat_jax:").partition(":")
    stem = pathlib.Path(file).stem
    if not (ROOT / "configs" / f"{stem}.py").is_file():
        return [value]
    config = importlib.import_module(f"cat_jax.configs.{stem}")
    return [value] * (variant != "" and variant not in config.VARIANTS)


def _paths(config, prefix=""):
    for field, value in config.items():
        if isinstance(value, ConfigDict):
            yield from _paths(value, f"{prefix}{field}.")
        yield f"{prefix}{field}"


FIELDS = {*_paths(default.get_config())}

"""Lists the commands: python -m cat_jax."""

import ast
import pathlib
import sys
import textwrap
from collections.abc import Sequence

from cat_jax import __version__


def commands() -> dict[str, str]:
    """The name of each module that can be run, and the first line of its docstring.

    None is imported: that takes seconds.
    """
    folder = pathlib.Path(__file__).parent
    found = {}
    for file in sorted([*folder.glob("[!_]*.py"), *folder.glob("*/__main__.py")]):
        source = file.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' in source:
            name = file.parent.name if file.stem == "__main__" else file.stem
            found[name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return found


def main(arguments: Sequence[str]) -> int:
    """Prints the list, or with --version that; 2 for what it does not understand."""
    if list(arguments) == ["--version"]:
        print(f"cat_jax {__version__}")
        return 0
    if not set(arguments) <= {"-h", "--help"}:
        print(
            f"error: {' '.join(arguments)!r} is not understood; expected nothing, --help or "
            "--version. A command is a module: python -m cat_jax.main.",
            file=sys.stderr,
        )
        return 2
    print(f"cat_jax {__version__}: calibrated adversarial training. Each has --help:\n")
    for name, line in commands().items():
        command = f"  {f'python -m cat_jax.{name}':<27}  "
        print(textwrap.fill(line, 80, initial_indent=command, subsequent_indent=" " * len(command)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

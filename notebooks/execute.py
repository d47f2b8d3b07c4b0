"""Executes the notebooks beside this file, and keeps what they show.

    python notebooks/execute.py [FILE ...]

Needs the extras docs and test. Each runs in an empty folder, so that no output depends on what lies
around, and is written back without what differs from run to run or from machine to machine.
"""

import os
import pathlib
import re
import sys
import tempfile

import nbformat
from nbclient import NotebookClient

HERE = pathlib.Path(__file__).parent
ROOTED = re.compile(r"""(?:^|[\s"'(=:])(/(?:home|root|tmp|usr|var|work|opt|Users)/\S+)""")
# What the environment of a caller, such as the tests, sets for other ends.
UNSET = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")


def execute(file: pathlib.Path, folder: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; raises CellExecutionError at a cell that fails.

    Args:
      file: the notebook; left as it is.
      folder: empty, in which it runs.
    """
    notebook = nbformat.read(file, as_version=4)
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    here = str(pathlib.Path(sys.executable).parent)  # Whose `python` the cells run.
    environment["PATH"] = os.pathsep.join([here, environment.get("PATH", "")])
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources)
    return tidy(client.execute(env=environment))


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without times and the versions of tools; texts of a stream that follow each other joined."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        joined: list[nbformat.NotebookNode] = []
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
                joined[-1].text += output.text
                continue
            if "metadata" in output:
                output.metadata = {}
            joined.append(output)
        if cell.cell_type == "code":
            cell.outputs = joined
    return notebook


def paths_of_this_machine(notebook: nbformat.NotebookNode) -> list[str]:
    """Absolute paths in what the cells print."""
    texts = []
    for output in (o for cell in notebook.cells for o in cell.get("outputs", [])):
        texts += [output.get("text", ""), *output.get("traceback", [])]
        texts.append(output.get("data", {}).get("text/plain", ""))
    return [path for text in texts for path in ROOTED.findall(text)]


def main() -> None:
    """Executes the named notebooks, or all."""
    for file in [pathlib.Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(file, pathlib.Path(folder))
        if paths := paths_of_this_machine(notebook):
            sys.exit(f"error: {file} prints {paths[0]}, a path of this machine; print none.")
        nbformat.write(notebook, file)
        print(file)


if __name__ == "__main__":
    main()

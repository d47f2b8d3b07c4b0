"""Prepares the site: equations as MathML, notebooks as pages, and a link to the repository.

Equations become MathML while the site is built, so that no page needs a script or a font from
another host.
"""

import base64
import html
import json
import pathlib
import re
import subprocess
from typing import Any

from latex2mathml import converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
# The output of pymdownx.arithmatex for $...$ and $$...$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adds the repository to the last table of the home page, if the clone has a remote."""
    if page.file.src_uri != "index.md" or not (address := repository(_remote())):
        return markdown
    return f"{markdown.rstrip()}\n| want the source code | [Repository]({address}) |\n"


def repository(remote: str) -> str:
    """Returns the web address of a git remote on a host, or ""."""
    match = re.fullmatch(r"(?:https://|ssh://git@|git@)([\w.-]+)[:/](.+?)(?:\.git)?/?", remote)
    return f"https://{match[1]}/{match[2]}" if match else ""


def _remote() -> str:
    command = ["git", "-C", str(NOTEBOOKS), "remote", "get-url", "origin"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:  # Because git is not installed.
        return ""


def on_page_content(content: str, **_: Any) -> str:
    """Turns equations into MathML, and keeps numbers beside their intervals."""
    return EQUATION.sub(_mathml, content).replace(" ± ", "\u00a0±\u00a0")


def _mathml(match: re.Match[str]) -> str:
    text, _, tag = html.unescape(match[3]).strip().partition(r"\tag{")
    if match[2] == "(":
        return str(converter.convert(text))
    number = f"<span>({tag.removesuffix('}')})</span>" if tag else ""
    return f'<div class="equation">{converter.convert(text, display="block")}{number}</div>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook, its pictures, and the notebook for download."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, pictures = page_of(json.loads(file.read_text(encoding="utf-8")), file.stem)
        contents: dict[str, str | bytes] = {f"{file.stem}.md": text, **pictures}
        contents[file.name] = file.read_bytes()
        for name, content in contents.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page_of(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """Returns a notebook as Markdown, and its pictures by their names."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shell = source.startswith("%%bash")
        code = source.removeprefix("%%bash\n")
        parts.append(f"```{'bash' if shell else 'python'}\n{code}\n```")
        for output in cell["outputs"]:
            picture = output.get("data", {}).get("image/png")
            if picture:
                name = f"{stem}_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(picture)
                parts.append(f"![Output of the cell above]({name})")
            elif text := "".join(output.get("text", output.get("data", {}).get("text/plain", ""))):
                parts.append(f"```text {{ .output }}\n{text.rstrip()}\n```")
    head, rest = parts[0].partition("\n")[::2]
    note = f"*A notebook: [download it]({stem}.ipynb), or find it in `notebooks/`.*"
    return "\n\n".join([head, note, rest, *parts[1:]]), pictures

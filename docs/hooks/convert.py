"""What the site needs beyond its plugins: equations as MathML, and the notebooks as pages.

Equations become MathML while the site is built, so that a page needs no script and no font from
elsewhere to show them.
"""

import base64
import html
import json
import pathlib
import re
from typing import Any

from latex2mathml import converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
# What pymdownx.arithmatex leaves of $...$ and $$...$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """The page with its equations as MathML, and with numbers that stay beside their intervals."""
    return EQUATION.sub(_mathml, content).replace(" ± ", "\u00a0±\u00a0")


def _mathml(found: re.Match[str]) -> str:
    text, _, tag = html.unescape(found[3]).strip().partition(r"\tag{")
    if found[2] == "(":
        return str(converter.convert(text))
    number = f"<span>({tag.removesuffix('}')})</span>" if tag else ""
    return f'<div class="equation">{converter.convert(text, display="block")}{number}</div>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook, its pictures, and itself for download."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, pictures = page_of(json.loads(file.read_text(encoding="utf-8")), file.stem)
        made: dict[str, str | bytes] = {f"{file.stem}.md": text, **pictures}
        made[file.name] = file.read_bytes()
        for name, content in made.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page_of(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names that it has for them."""
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

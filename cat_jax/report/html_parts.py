"""Pieces of HTML for pages that need no other file: their pictures are inside them."""

import base64
import html
import re
from collections.abc import Iterable, Sequence

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 76em;
  padding: 0 1.2em; }
h1, h2, h3 { line-height: 1.2; }
h1 { margin-bottom: 0.4em; }
h2 { margin-top: 2.2em; padding-bottom: 0.2em; border-bottom: 2px solid #0072b2; }
nav a { display: inline-block; margin: 0 0.4em 0.4em 0; padding: 0.1em 0.8em; color: #0072b2;
  border: 1px solid #9cc7e0; border-radius: 1em; text-decoration: none; font-size: 0.9em; }
nav a:hover { background: #e6f2f9; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.94em; }
th, td { padding: 0.25em 0.6em; border-bottom: 1px solid #ddd; text-align: left;
  vertical-align: top; }
thead th { background: #f2f5f7; vertical-align: bottom; }
tbody th { font-weight: normal; }
.number, .right { text-align: right; }
td.number { white-space: nowrap; }
td.long { min-width: 9em; overflow-wrap: anywhere; }
tr.published { color: #666; font-style: italic; }
.wide { overflow-x: auto; }
.better { background: #d9f0e3; } .worse { background: #fbe0d3; } .none { color: #777; }
td.ok, td.failed, td.none { white-space: nowrap; }
.ok { color: #00694d; } .failed { color: #b30000; font-weight: bold; }
.scaled { background: #fff3cd; border-left: 5px solid #e0a800; padding: 0.5em 1em; }
.note { color: #444; max-width: 60em; font-size: 0.92em; }
progress { width: 14em; height: 1.1em; vertical-align: middle; }
figure { display: inline-block; margin: 1em 1em 0 0; vertical-align: top; max-width: 100%; }
figure img { max-width: 100%; }
figcaption { max-width: 40em; color: #555; font-size: 0.9em; }
img.formula { display: block; }
details { border: 1px solid #ddd; border-radius: 4px; padding: 0.3em 0.8em; margin: 0.4em 0; }
summary { cursor: pointer; }
pre { background: #f6f6f6; padding: 1em; overflow-x: auto; }
"""


def document(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def sections(parts: Sequence[tuple[str, str]]) -> str:
    """Headings with what is below them; those with nothing below are left out."""
    return "\n".join(
        f'<h2 id="{_anchor(name)}">{html.escape(name)}</h2>\n{text}' for name, text in parts if text
    )


def contents(parts: Sequence[tuple[str, str]]) -> str:
    """Links to `sections` of the same parts."""
    links = [f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name, text in parts if text]
    return f"<nav>{' '.join(links)}</nav>"


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower()).strip("-")


def paragraph(text: str, kind: str = "") -> str:
    """Plain text, of a class of STYLE if one is named."""
    return f"<p{_of_class(kind)}>{html.escape(text)}</p>"


def cell(inside: str, kind: str = "", tag: str = "td", rows: int = 1) -> str:
    """A table's cell around HTML; over several rows if asked for."""
    span = f' rowspan="{rows}"' if rows > 1 else ""
    return f"<{tag}{_of_class(kind)}{span}>{inside}</{tag}>"


def texts(*cells: str, tag: str = "td") -> list[str]:
    """Cells of plain text."""
    return [cell(html.escape(text), tag=tag) for text in cells]


def _of_class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def table(head: Iterable[str], rows: Iterable[str]) -> str:
    """Of the cells of its head, and the rows of its body as HTML."""
    body = "\n".join(rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{"".join(head)}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def row(cells: Iterable[str], kind: str = "") -> str:
    """Of a table's body."""
    return f"<tr{_of_class(kind)}>{''.join(cells)}</tr>"


def details(summary: str, inside: str) -> str:
    """HTML that is folded until its summary, plain text, is clicked."""
    return f"<details><summary>{html.escape(summary)}</summary>\n{inside}</details>"


def source(image: bytes, kind: str = "png") -> str:
    """A picture as the address of itself; its kind may be svg+xml."""
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def picture(png: bytes | None, title: str, caption: str = "") -> str:
    """A figure with the picture inside the page; "" without one."""
    if png is None:
        return ""
    text = html.escape(f"{title}. {caption}".strip() if caption else title)
    alt = html.escape(title)
    return f'<figure><img src="{source(png)}" alt="{alt}"><figcaption>{text}</figcaption></figure>'


def markdown_table(text: str) -> str:
    """A Markdown table as HTML: its first column left, numbers right."""
    head, _, *body = (
        [_code(part.strip()) for part in line.strip().strip("|").split("|")]
        for line in text.strip().splitlines()
    )

    def cells(texts: Sequence[str], tag: str) -> list[str]:
        return [cell(text, "right" if i else "", tag) for i, text in enumerate(texts)]

    return table(cells(head, "th"), (row(cells(texts, "td")) for texts in body))


def markdown(text: str) -> str:
    """Headings of the second order, tables, and paragraphs with `code` in them, as HTML."""
    made = []
    for block in text.strip().split("\n\n"):
        if block.startswith("## "):
            made.append(f"<h2>{_code(block.removeprefix('## '))}</h2>")
        else:
            made.append(markdown_table(block) if block[0] == "|" else f"<p>{_code(block)}</p>")
    return "\n".join(made)


def _code(text: str) -> str:
    """Escaped, with `code` marked; what a number has in brackets stays on one line."""
    if text[:1].isdigit():
        text = re.sub(r"\([^)]*\)", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))

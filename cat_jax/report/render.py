"""Fills the HTML and LaTeX templates of each room; a page needs no other file."""

import base64
import functools
import html
import re
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "%_&#${}"},
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
PANORAMA_WIDTH = 950  # Pixels; one panel has fewer.


class Picture(NamedTuple):
    """A figure of a page; pages omit one without a PNG.

    Attributes:
      png: the image.
      title: heading.
      caption: sentences below it.
      is_chart: whether it has dark lines on white, which a dark page inverts.
    """

    png: bytes | None
    title: str
    caption: str = ""
    is_chart: bool = True

    @property
    def css_class(self) -> str:
        """ "panorama" if the picture is unreadable on a narrow screen, "chart" for a chart."""
        width = int.from_bytes((self.png or b"")[16:20], "big")  # The header of a PNG file.
        panorama = ["panorama"] if width > PANORAMA_WIDTH else []
        return " ".join([*panorama, *(["chart"] if self.is_chart else [])])


def render(template: str, **values: Any) -> str:
    """Fills a template; `template` is its path in the package, "report/templates/run.html"."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cat_jax", ""),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"anchor": _anchor, "code": _code, "data_uri": data_uri, "latex": escape_latex}
    environment.filters |= filters
    return environment


def data_uri(image: bytes, kind: str = "png") -> str:
    """An image as an address that contains it; `kind` may also be "svg+xml"."""
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def is_maths(text: str) -> bool:
    """Whether a cell is TeX mathematics, written between dollars."""
    return len(text) > 2 and text.startswith("$") and text.endswith("$")


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX, except mathematics."""
    return text if is_maths(text) else "".join(LATEX_ESCAPES.get(sign, sign) for sign in text)


def _anchor(heading: str) -> str:
    return re.sub(r"\W+", "-", heading.lower()).strip("-")


def _code(text: str) -> Markup:
    """Escaped text with its `code` marked."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text)))

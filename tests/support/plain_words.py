"""Words that this project does not use, and what it writes instead.

`faults` takes any text: the prose of a page, a docstring, an error message, a line of --help.
`texts` finds the docstrings and messages of a Python file.
"""

import ast
import re

# Regular expressions of complete words, and what to write instead.
REPLACEMENTS = {
    r"mend(s|ed|ing)?": "fix or repair",
    r"told": "who reports it, and how",
    r"said": "who reports it, and how",
    r"(go|goes|going|gone|went) on": "resume or continue",
    r"(make|makes|made|making) room": "free disk space",
    r"to be had": "where to get it",
    r"of (one's|your|its|their) own": "your, its or their own, before the noun",
    r"(left|leave|leaves) away": "drop or leave out",
    r"(is|are|was|be|all|still) sound|unsound": "intact or complete; or damaged",
    r"as (it is|it was|they are|they were)": "unchanged",
    r"(is|are|was|when|writes|written) whole(?! number)": "complete",
    r"by what": "how or by which",
    r"anew": "again",
}
_PATTERNS = {
    re.compile(rf"\b({words})\b", re.IGNORECASE): use for words, use in REPLACEMENTS.items()
}


def faults(text: str) -> list[str]:
    """One line for each place in `text` that uses such a word, with what to write instead."""
    line = " ".join(text.split())
    return [
        f"...{line[max(match.start() - 30, 0) : match.end() + 30]}...: write {use}"
        for pattern, use in _PATTERNS.items()
        for match in pattern.finditer(line)
    ]


def texts(source):
    """Each string of a Python file: docstrings, messages with X for inserted values, and others."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value

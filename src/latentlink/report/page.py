"""One self-contained HTML page: headings, paragraphs, tables and figures, nothing fetched from elsewhere."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentlink import _checks
from latentlink._files import replacing

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --band: #f6f8fa; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin-bottom: .25rem; }
h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
p { max-width: 46rem; }
footer { color: var(--soft); font-size: .85rem; margin-top: 3rem; border-top: 1px solid var(--line); }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
thead th { background: var(--band); }
@media print { body { margin: 0; max-width: none; } figure, table { break-inside: avoid; } }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for section in sections %}
<section>
<h2>{{ section.heading }}</h2>
{% for paragraph in section.paragraphs %}<p>{{ paragraph }}</p>
{% endfor %}
{% for item in section.parts %}
{% if item.svg %}<figure>{{ item.svg }}</figure>
{% else %}<div class="wide"><table>
{% if item.caption %}<caption>{{ item.caption }}</caption>{% endif %}
<thead><tr>{% for cell in item.columns %}<th scope="col">{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in item.rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table></div>
{% endif %}{% endfor %}
</section>
{% endfor %}
<footer><p>Made by latentlink {{ version }}.</p></footer>
</body>
</html>
"""


@dataclass(frozen=True)
class Table:
    """A table of a report: column heads, rows of cells (numbers are shown to four figures), a caption."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


# A heading, its paragraphs (split at blank lines), and tables or matplotlib figures.
Section = tuple[str, str, Sequence[Any]]


def page(title: str, sections: Sequence[Section], path: str | os.PathLike[str]) -> Path:
    """Write a report as one self-contained HTML file, atomically.

    Parameters
    ----------
    title : str
    sections : sequence of (heading, text, items)
        Text is plain (escaped), its paragraphs parted by blank lines; items are `Table` or matplotlib figures,
        which become inline SVG.
    path : path
        Of the file; its folder is made when missing.

    Returns
    -------
    Path
        Of the file written.

    Raises
    ------
    MissingExtra
        jinja2 is not installed (extra ``report``).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = page("Tails", [("One", "Two < three.", [Table(["a"], [[0.5]])])], f"{folder}/r.html")
    ...     "Two &lt; three." in path.read_text()
    True
    """
    jinja2 = _checks.need("jinja2", extra="report", job="page")
    from latentlink import __version__

    markup = _checks.need("markupsafe", extra="report", job="page").Markup
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE)
    shown = [
        {
            "heading": heading,
            "paragraphs": [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()],
            "parts": [_item(item, markup) for item in items],
        }
        for heading, text, items in sections
    ]
    html = template.render(title=title, sections=shown, version=__version__)
    with replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return Path(path)


def _item(item: Any, markup: Any) -> dict[str, Any]:
    if isinstance(item, Table):
        rows = [[_cell(cell) for cell in row] for row in item.rows]
        return {"svg": "", "caption": item.caption, "columns": item.columns, "rows": rows}
    stream = io.StringIO()
    item.savefig(stream, format="svg", bbox_inches="tight")
    svg = stream.getvalue()
    return {"svg": markup(svg[svg.index("<svg") :])}  # without the XML prologue, which HTML forbids inside


def _cell(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)

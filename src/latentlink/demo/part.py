"""A part of the demo: what it found as sentences, tables, figures and plain values."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from latentlink._metrics import Interval
from latentlink.report.page import Section, Table


@dataclass(frozen=True)
class Part:
    """One job of the demo.

    Attributes
    ----------
    heading : str
    text : str
        What was found, in sentences; paragraphs parted by blank lines.
    record : dict
        The same in plain values, for JSON.
    tables : sequence of Table
    figures : sequence of matplotlib figures
        For the report only.
    """

    heading: str
    text: str
    record: dict[str, Any]
    tables: Sequence[Table] = ()
    figures: Sequence[Any] = field(default=(), repr=False)

    def section(self) -> Section:
        """Return the part as a section of a report."""
        return self.heading, self.text, [*self.figures, *self.tables]

    def terminal(self, width: int = 116) -> str:
        """Return the part as text for a terminal of this many columns."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table as RichTable

        stream = io.StringIO()
        console = Console(file=stream, width=width, no_color=True, highlight=False)
        console.print(f"── {self.heading} {'─' * (width - len(self.heading) - 4)}", markup=False)
        console.print(self.text, markup=False)
        for table in self.tables:
            shown = RichTable(
                box=SIMPLE_HEAD,
                title=table.caption or None,
                title_justify="left",
                pad_edge=False,
                padding=(0, 1, 0, 0),
            )
            for number, column in enumerate(table.columns):
                shown.add_column(str(column), justify="left" if number == 0 else "right", overflow="fold")
            for row in table.rows:
                shown.add_row(*(cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row))
            console.print(shown, markup=False)
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def percent(value: float, interval: Interval) -> str:
    """Show a share and its interval in per cent.

    >>> percent(0.985, Interval(0.9741, 0.9915))
    '98.5 (97.4–99.2)'
    """
    return f"{100 * value:.1f} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def brief_percent(value: float, interval: Interval) -> str:
    """Show a share and its rounded interval in per cent, for a narrow column.

    >>> brief_percent(0.985, Interval(0.9741, 0.9915))
    '98.5 97–99'
    """
    return f"{100 * value:.1f} {100 * interval.low:.0f}–{100 * interval.high:.0f}"

"""Run the demo's parts in order and write the report."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentlink._checks import look_for
from latentlink._files import replacing
from latentlink.demo import steps
from latentlink.demo.part import Part
from latentlink.demo.sentences import load_sentences
from latentlink.report.page import page


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    Attributes
    ----------
    parts : dict of Part
        "diagnose", "certify", "align", "search" and "train".
    report : Path
        The HTML page; its figures lie beside it as SVG.
    """

    parts: dict[str, Part]
    report: Path

    def record(self) -> dict[str, Any]:
        """Return everything as plain values, the three headline figures first."""
        align, search = self.parts["align"].record, self.parts["search"].record
        return {
            "strong_mean_recall_at_1": align["strong_mean_recall_at_1"],
            "param_strong_mean_recall_at_1": align["param_strong_mean_recall_at_1"],
            "german_to_english_recall_at_1": search["german_to_english_recall_at_1"],
            "shuffled_recall_at_1": align["shuffled_recall_at_1"],
            **{name: part.record for name, part in self.parts.items()},
            "report": str(self.report),
        }

    def __str__(self) -> str:
        shown = "\n".join(part.terminal() for part in self.parts.values())
        return f"{shown}\nThe report with its figures: {self.report}"


def _one_thread() -> Any:
    """Limit NumPy and torch to one thread inside a `with`: the arrays are small, and waiting threads cost more."""
    from threadpoolctl import threadpool_limits

    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch")  # before the limit, which reaches only what is loaded
    return threadpool_limits(1)


def run_demo(
    folder: str | os.PathLike[str] = "latentlink-demo", *, say: Callable[[str], None] = lambda _: None
) -> DemoResult:
    """Run the main job on the bundled sentences and digits, and write `folder`/report.html.

    Parameters
    ----------
    folder : path
        Made when missing.
    say : callable
        Told what is being done, a line at a time.

    Returns
    -------
    DemoResult

    Raises
    ------
    MissingExtra
        FAISS, matplotlib or jinja2 is not installed. Without torch, training and PARAM are left out.
    """
    for module in ("faiss", "matplotlib", "jinja2"):  # now, not after a minute's work
        look_for(module, extra="demo", job="the demo")
    data = load_sentences()
    jobs: dict[str, tuple[str, Callable[[], Part]]] = {
        "diagnose": ("diagnosing the tails of four encoders", lambda: steps.diagnose(data)),
        "certify": ("certifying a search", lambda: steps.certify(data)),
        "align": ("fitting and comparing every map", lambda: steps.align(data)),
        "search": ("searching one index with another encoder", lambda: steps.search(data)),
        "train": ("training two encoders with three seeds each", steps.train),
    }
    parts = {}
    for number, (name, (doing, job)) in enumerate(jobs.items(), start=1):
        say(f"{number}/{len(jobs)} {doing}")
        with _one_thread():
            parts[name] = job()
    sections = [part.section() for part in parts.values()]
    report = page("latentlink on real data", sections, Path(folder) / "report.html")
    for name, part in parts.items():
        for drawing in part.figures:
            with replacing(Path(folder) / f"{name}.svg") as temporary:
                drawing.savefig(temporary, format="svg")
    return DemoResult(parts, report)

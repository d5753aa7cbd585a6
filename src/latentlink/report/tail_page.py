"""The page of a diagnosis: what the tails say, in tables and figures."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from latentlink.report import tail_plots
from latentlink.report.page import Table, page

if TYPE_CHECKING:
    from latentlink.tails.diagnosis import Diagnosis


def write_tail_page(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write a diagnosis as one HTML file."""
    r, v = diagnosis.record(), diagnosis.verdict
    shapes = Table(
        ["tail", "xi", "low", "high"],
        [
            [f"queries, end held at {diagnosis.tail.endpoint:g}", *_row(r["endpoint_held"])],
            ["queries, end free", *_row(r["endpoint_free"])],
            [f"top {r['pooled']['pairs']:,} pairs, end free", *_row(r["pooled"])],
        ],
        f"xi below 0 is a bounded tail; medians over queries; intervals at {diagnosis.level:.0%}, by resampled "
        "queries, of pairs with their dependence counted",
    )
    verdict = Table(
        ["", "bounded", "heavy", "undecided"],
        [["queries", *map(_percent, v.shares)], ["normal similarities would show", *map(_percent, v.normal)]],
        f"Exact tests at {v.level:.0%}, two-sided",
    )
    sections: list[tuple[str, str, list[Any]]] = [
        (f"Verdict: {v.call}", str(diagnosis), [shapes, verdict]),
        (
            "Does the law fit?",
            "The excesses of the most similar pairs beside a generalised Pareto and an exponential law.",
            [tail_plots.plot_density(diagnosis.pooled), tail_plots.plot_quantiles(diagnosis.pooled)],
        ),
        (
            "Over the depth of the tail",
            "A flat line: the law holds at every threshold. A falling mean residual life: the tail is bounded.",
            [tail_plots.plot_stability(diagnosis.tail), tail_plots.plot_residual_life(diagnosis.pooled)],
        ),
        (
            "Query by query",
            "Normal similarities look bounded at any finite number of candidates: compare with the blue line.",
            [
                tail_plots.plot_evidence(diagnosis.evidence, v),
                tail_plots.plot_map(diagnosis.embeddings, diagnosis.fit.xi),
            ],
        ),
    ]
    if diagnosis.choice is not None:
        c = diagnosis.choice
        low, high = c.interval("blend", diagnosis.level)
        links = Table(
            ["link", "log-likelihood", "AIC"],
            [[name, value, c.aic[name]] for name, value in c.log_likelihoods.items()],
            f"{c.n_choices:,} choices; the positive is the most similar candidate in {c.top_share:.0%}",
        )
        words = (
            f"Blend {c.blend:.2f}, from {low:.2f} to {high:.2f}; temperature {c.temperature:.3g}, "
            f"beta {c.beta:.3g}. Against the softmax p = {c.against_softmax.p:.2g}, against the shortfall link "
            f"p = {c.against_shortfall.p:.2g}."
        )
        sections.append((f"Link the positives ask for: {c.preferred}", words, [links]))
    page("Tails of similarities", sections, path)


def _row(found: dict[str, Any]) -> list[float]:
    return [found["xi"], *found["xi_interval"]]


def _percent(share: float) -> str:
    return f"{share:.1%}"

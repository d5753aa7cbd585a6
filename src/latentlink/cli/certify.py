"""`latentlink certify`: how well a fixed encoder searches unseen data, from held-out pairs and a pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from latentlink.cli._frame import Json, Out, Quiet, Report, emit

if TYPE_CHECKING:
    from latentlink.risk import Certificate, RiskCurve


def certify(
    queries: Annotated[Path, typer.Argument(help="Vectors of the queries, one row each.")],
    positives: Annotated[Path, typer.Argument(help="Vectors of their positives, in the same order.")],
    pool: Annotated[Path, typer.Argument(help="Vectors drawn from the data, apart from the pairs.")],
    temperature: Annotated[float, typer.Option("--temperature", help="Divides the cosine similarity.")] = 0.1,
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    leaks: Annotated[
        str, typer.Option("--leaks", help="Pool rows that are also pairs: refuse, exclude or allow.")
    ] = "refuse",
    tolerance: Annotated[float, typer.Option("--tolerance", help="Nats, for the number of negatives.")] = 0.01,
    json: Json = False,
    out: Out = None,
    report: Report = None,
    quiet: Quiet = False,
) -> None:
    """Certify a search: its k → ∞ cross-entropy with an interval, recall, gates and advice."""
    from latentlink.io import read_vectors
    from latentlink.risk import certify as run
    from latentlink.risk import negatives_for

    (q, q_ids), (p, p_ids), (candidates, pool_ids) = (read_vectors(path) for path in (queries, positives, pool))
    named = [ids for ids in (q_ids, p_ids) if ids is not None and len(ids) == len(q)]
    both = bool(named) and pool_ids is not None
    c = run(
        q,
        p,
        candidates,
        temperature,
        level,
        pair_ids=np.stack(named, axis=1) if both else None,
        pool_ids=pool_ids if both else None,
        leaks=leaks,
        progress=not (quiet or json),
    )
    needed = negatives_for(c.rows, tolerance)
    record = summary(c) | {"negatives_needed": needed.value, "negatives_trusted": needed.trusted}
    if report is not None:
        from latentlink.risk import risk_curve

        sizes = [2**i for i in range(2, 20) if 2**i <= c.n_negatives]
        kept = candidates if c.excluded == 0 else None  # a curve over leaked rows would mislead
        curve = None if kept is None else risk_curve(q, p, kept, sizes, temperature)
        _write_report(c, curve, report)
    emit(f"{c}\n{needed.advice}", record, as_json=json, out=out)


def summary(c: Certificate) -> dict[str, Any]:
    """Collect the numbers of a certificate for JSON."""
    return {
        "cross_entropy": c.cross_entropy,
        "interval": c.interval(),
        "level": c.level,
        "standard_error": c.standard_error,
        "sandwich": c.sandwich,
        "risk_at_k": c.risk_at_k,
        "bias": c.bias,
        "n_pairs": c.n_pairs,
        "n_negatives": c.n_negatives,
        "recall_at_1": c.recall_at_1,
        "recall_at_1_interval": c.recall_interval(1),
        "recall_at_10": c.recall_at_10,
        "recall_at_10_interval": c.recall_interval(10),
        "ess": c.ess,
        "hubness": c.hubness,
        "loss_share": c.loss_share,
        "gates": {
            gate.name: {"value": gate.value, "limit": gate.limit, "passed": gate.passed} for gate in c.gates
        },
        "verdict": c.verdict,
        "advice": c.advice,
        "excluded": c.excluded,
    }


def _write_report(c: Certificate, curve: RiskCurve | None, path: Path) -> None:
    from latentlink.report.page import Table, page
    from latentlink.report.risk_plots import plot_certificate, plot_risk_curve

    low, high = c.interval()
    numbers = Table(
        ["what", "value", "low", "high"],
        [
            ["cross-entropy (nats)", c.cross_entropy, low, high],
            ["sandwich (nats)", "", *c.sandwich],
            ["recall at 1", c.recall_at_1, *c.recall_interval(1)],
            ["recall at 10", c.recall_at_10, *c.recall_interval(10)],
        ],
        f"{c.n_pairs:,} held-out pairs, {c.n_negatives:,} candidates, intervals at {c.level:.0%}",
    )
    gates = Table(
        ["gate", "value", "limit", "passed", "what it is"],
        [[g.name, g.value, g.limit, "yes" if g.passed else "no", g.meaning] for g in c.gates],
        "Gates",
    )
    sections: list[Any] = [
        (f"Verdict: {c.verdict}", c.advice, [numbers, gates]),
        (
            "Queries and candidates",
            f"{c.loss_share:.0%} of the queries carry 80 % of the loss. An effective {c.ess:,.0f} of the "
            f"{c.n_negatives:,} candidates compete for the median query; hubness is {c.hubness:.3g}.",
            [plot_certificate(c)],
        ),
    ]
    if curve is not None:
        words = "Disjoint blocks of the pool give the measured points; the line is predicted from all of it."
        sections.append(("Risk over the number of negatives", words, [plot_risk_curve(curve)]))
    page("Certificate of a search", sections, path)

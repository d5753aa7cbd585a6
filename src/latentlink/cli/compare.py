"""`latentlink compare`: every map between encoders, side by side on held-out pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latentlink.cli._frame import Json, Out, Report, Seed, emit
from latentlink.cli.align import pairs_of, read_spaces

if TYPE_CHECKING:
    from latentlink.spaces import MapComparison


def compare(
    files: Annotated[list[str], typer.Argument(help="NAME=FILE, at least two; joined on ids, else on rows.")],
    holdout: Annotated[float, typer.Option("--holdout", help="Share of the items to hold out.")] = 0.2,
    n_anchors: Annotated[int, typer.Option("--n-anchors", help="Dimension of the shared space.")] = 256,
    csls: Annotated[bool, typer.Option("--csls", help="Subtract the hubness of gallery items.")] = False,
    certify_at: Annotated[
        int | None, typer.Option("--certify-at", help="Certify each search among so many candidates.")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the certificate's softmax.")] = 0.1,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    report: Report = None,
) -> None:
    """Compare all maps by retrieval on pairs that were not fitted."""
    import numpy as np

    from latentlink.spaces import compare_maps
    from latentlink.spaces.items import join

    vectors, ids = read_spaces(pairs_of(files))
    arrays = {name: np.asarray(x) for name, x in vectors.items()}
    rows, _ = join(arrays, ids)
    found = compare_maps(
        {name: x[rows[name]] for name, x in arrays.items()},
        holdout=holdout,
        n_anchors=n_anchors,
        csls=csls,
        certify_at=certify_at,
        temperature=temperature,
        seed=seed,
    )
    if report is not None:
        _write_report(found, report)
    emit(found.table(), found.to_dict(), as_json=json, out=out)


def _write_report(found: MapComparison, path: Path) -> None:
    from latentlink.report.page import Table, page
    from latentlink.report.space_plots import plot_comparison

    rows = [
        (s.method, s.source, s.target, s.recall_at_1, *s.recall_at_1_interval, s.recall_at_10, s.mrr, s.seconds)
        for s in found.scores
    ]
    columns = ["method", "source", "target", "R@1", "low", "high", "R@10", "MRR", "CPU s"]
    text = (
        f"{found.n_fit} pairs fitted, {found.n_held_out} held out. Queries come from the source, the gallery is "
        "the target. Intervals are Wilson's at 95 % over queries."
    )
    page(
        "Maps between encoders",
        [("Held-out retrieval", text, [plot_comparison(found), Table(columns, rows)])],
        path,
    )

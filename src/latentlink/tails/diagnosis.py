"""All that the tail of an encoder's similarities says, in one call."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, to_numpy
from latentlink._metrics import Interval
from latentlink.tails.choice import LinkChoice, choose_link
from latentlink.tails.evidence import Evidence, weigh
from latentlink.tails.pareto import TailFit, TailSummary, fit_tail
from latentlink.tails.sample import Tail, take_tail
from latentlink.tails.verdicts import EndpointTest, Verdict, endpoint_test, judge
from latentlink.tails.winners import positive_choices


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Hold the tails of queries and of pairs, their fits, tests and the link that positives ask for.

    Attributes
    ----------
    tail, pooled : Tail
        Of each query, and of the most similar hundredth of all pairs.
    fit, free, pooled_fit : TailFit
        With the endpoint held, with it free, and of the pooled tail with it free.
    verdict : Verdict
    evidence : Evidence
    end : EndpointTest
    choice : LinkChoice or None
        None without positives.
    level : float
        Of the intervals.
    embeddings : array (q, d)
        Of the queries, for the map.
    """

    tail: Tail
    pooled: Tail
    fit: TailFit
    free: TailFit
    pooled_fit: TailFit
    verdict: Verdict
    evidence: Evidence
    end: EndpointTest
    choice: LinkChoice | None
    level: float
    embeddings: np.ndarray[Any, Any]

    def record(self) -> dict[str, Any]:
        """Collect the numbers for JSON."""
        v, e = self.verdict, self.evidence
        low, high = (float(to_numpy(end)[0]) for end in self.pooled_fit.interval(self.level))
        found: dict[str, Any] = {
            "n_queries": self.tail.n_queries,
            "n_candidates": v.n_candidates,
            "tail_size": self.tail.tail_size,
            "level": self.level,
            "threshold_median": float(np.nanmedian(to_numpy(self.tail.threshold))),
            "excluded": self.tail.excluded._asdict(),
            "endpoint_held": _summary(self.fit.summary(self.level)),
            "endpoint_free": _summary(self.free.summary(self.level)),
            "pooled": {
                "pairs": int(self.pooled.counts[0]),
                "xi": float(to_numpy(self.pooled_fit.xi)[0]),
                "xi_interval": [low, high],
                "design_effect": self.pooled_fit.design_effect,
                "threshold": float(to_numpy(self.pooled.threshold)[0]),
            },
            "verdict": {
                "call": v.call,
                "level": v.level,
                "shares": v.shares._asdict(),
                "normal": v.normal._asdict(),
                "bounded_interval": list(v.bounded_interval),
                "discoveries": v.discoveries,
                "untested": v.untested,
            },
            "endpoint": {"rejected": self.end.rejected, "discoveries": self.end.discoveries},
            "evidence": {"median": float(np.nanmedian(e.bounded)), "aic": e.shares("aic")._asdict()},
        }
        if self.choice is not None:
            c = self.choice
            found["link"] = {
                "preferred": c.preferred,
                "blend": c.blend,
                "relative_blend": c.relative_blend,
                "relative_blend_interval": list(c.interval("relative_blend", self.level)),
                "blend_interval": list(c.interval("blend", self.level)),
                "temperature": c.temperature,
                "beta": c.beta,
                "softmax_temperature": c.softmax_temperature,
                "shortfall_beta": c.shortfall_beta,
                "against_softmax": c.against_softmax._asdict(),
                "against_shortfall": c.against_shortfall._asdict(),
                "aic": c.aic,
                "top_share": c.top_share,
                "n_choices": c.n_choices,
                "separated": c.separated,
            }
        return found

    def __str__(self) -> str:
        """Say it in a dozen lines."""
        r, v = self.record(), self.verdict
        held, free, pooled = r["endpoint_held"], r["endpoint_free"], r["pooled"]
        lines = [
            f"{r['n_queries']} queries, the {r['tail_size']} largest of {r['n_candidates']} similarities each, "
            f"median threshold {r['threshold_median']:.3f}",
            f"left out: {r['excluded']['duplicates']} duplicates, {r['excluded']['positives']} known positives",
            f"xi, end held at {self.tail.endpoint:g}: {held['xi']:.3f} {_ends(held['xi_interval'])}, "
            f"beta {held['beta']:.1f}, intrinsic dimension {held['lid']:.1f}",
            f"xi, end free: {free['xi']:.3f} {_ends(free['xi_interval'])} (medians over queries)",
            f"xi of the top {pooled['pairs']} pairs, end free: {pooled['xi']:.3f} "
            f"{_ends(pooled['xi_interval'])}, variance {pooled['design_effect']:.1f} times independent pairs'",
            f"verdict: {v.call}; bounded {v.shares.bounded:.0%} of queries "
            f"(normal similarities: {v.normal.bounded:.0%}), heavy {v.shares.heavy:.0%} "
            f"({v.normal.heavy:.0%}), undecided {v.shares.undecided:.0%}",
            f"the end lies below {self.tail.endpoint:g} for {self.end.discoveries} queries "
            "(false discovery rate 5 %)",
        ]
        if self.choice is not None:
            c = self.choice
            lines.append(
                f"link of {c.n_choices} positives: {c.preferred}; blend {c.blend:.2f} "
                f"{_ends(c.interval('blend', self.level))}, against softmax p = {c.against_softmax.p:.2g}, "
                f"against shortfall p = {c.against_shortfall.p:.2g}; positive first in {c.top_share:.0%}"
            )
        return "\n".join(lines)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a self-contained HTML page with tables and figures."""
        from latentlink.report.tail_page import write_tail_page

        write_tail_page(self, path)


def diagnose(
    embeddings: Array,
    positives: Array | None = None,
    *,
    same: Any = None,
    tail_size: int = 64,
    n_queries: int | None = 5000,
    level: float = 0.95,
    seed: int = 0,
) -> Diagnosis:
    """Diagnose the upper tail of an encoder's cosine similarities.

    Parameters
    ----------
    embeddings : array or tensor (n, d)
    positives : array or tensor (n, d), optional
        Row i is the positive of row i. Candidates are then the positives, each query's own left out of its
        tail, and the link is chosen by which positives win.
    same : array (n,), optional
        Labels: items of one label are positives of each other and no candidates.
    tail_size : int
    n_queries : int or None
        Drawn by `seed` where there are more.
    level : float
    seed : int

    Returns
    -------
    Diagnosis

    Notes
    -----
    Cost: n_queries · n · d multiply-adds, twice.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = diagnose(rng.normal(size=(400, 5)), tail_size=32)
    >>> found.verdict.call, found.choice is None
    ('bounded', True)
    """
    x = _checks.matrix("embeddings", embeddings)
    _checks.integer("tail_size", tail_size, low=1)
    if x.shape[0] < tail_size + 2:
        raise _checks.InvalidInput(
            f"tail_size is {tail_size} but embeddings has {x.shape[0]} rows; needs at least {tail_size + 2}. "
            "Lower tail_size or add rows."
        )
    n = int(x.shape[0])
    options: dict[str, Any] = {"n_queries": n_queries, "seed": seed}
    choice = None
    if positives is not None:
        p = _checks.matrix("positives", positives)
        _checks.same_rows(embeddings=x, positives=p)
        options |= {"corpus": p, "exclude": np.repeat(np.arange(n)[:, None], 2, axis=1)}
        sets = positive_choices(x, p, n_queries=n_queries, seed=seed)
        choice = choose_link(sets.similarities, sets.winners)
    if same is not None:
        options["same"] = same if positives is None else (same, same)
    tail = take_tail(x, tail_size=tail_size, **options)
    n_pairs = tail.n_candidates.sum() / (2 if positives is None else 1)
    pooled = take_tail(x, tail_size=max(64, min(100_000, round(n_pairs / 100))), pooled=True, **options)
    rows = to_numpy(x)[tail.rows]
    return Diagnosis(
        tail=tail,
        pooled=pooled,
        fit=fit_tail(tail),
        free=fit_tail(tail, "zhang_stephens"),
        pooled_fit=fit_tail(pooled, "zhang_stephens"),
        verdict=judge(tail),
        evidence=weigh(tail),
        end=endpoint_test(tail),
        choice=choice,
        level=level,
        embeddings=rows,
    )


def _summary(s: TailSummary) -> dict[str, Any]:
    return s._asdict() | {"xi_interval": list(s.xi_interval), "beta_interval": list(s.beta_interval)}


def _ends(interval: Any) -> str:
    low, high = Interval(*interval)
    return f"[{low:.3f}, {high:.3f}]"

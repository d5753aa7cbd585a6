"""`certify`: how well a fixed encoder searches unseen data, as an interval from held-out pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval, proportion_interval
from latentlink.links import Link
from latentlink.risk._measure import Measured, Vectors, against_own, against_pool, check_pairs, within_batch
from latentlink.risk.complexity import empirical_bernstein
from latentlink.risk.designs import DESIGNS, in_batches, standard_errors
from latentlink.risk.estimators import FloatArray, RowStatistics
from latentlink.risk.finite_k import universal_bias
from latentlink.risk.gates import Gate, carrying_share, judge_rows
from latentlink.risk.leaks import leaked_rows


@dataclass(frozen=True)
class Certificate:
    """What held-out pairs say about a search; made by `certify`.

    Attributes
    ----------
    cross_entropy : float
        H = E[−logit(x, x⁺) + log E_y exp(logit(x, y))], nats relative to the data law: lower is better, and an
        encoder that tells nothing apart has 0. Estimated by the jackknife.
    standard_error : float
        Of `cross_entropy`, with both parts below.
    query_error, pool_error : float
        Parts of the standard error: from the pairs, and from the pool that all queries share.
    sandwich : Interval
        Two averages that enclose `cross_entropy` in expectation without any assumption on the weights.
    risk_at_k : float
        The InfoNCE loss with `n_negatives` negatives and the positive in the denominator, as trainers log it.
    n_negatives, n_pairs : int
    ess : float
        Effective number of negatives, median over queries.
    hubness : float
        Variance over candidates of how much search they draw, 0 when all draw alike; NaN where no candidate is
        shared by all queries (designs "iid" and "batches").
    ranks : int array (n,)
        Place of each positive among its negatives, from 1; a tie counts against it.
    mass : array (N,)
        Search drawn by each candidate relative to an even share, 1 on average; empty where none is shared.
    loss_share : float
        Smallest share of queries that carries 80 % of `risk_at_k`.
    gates : tuple of Gate
    verdict : str
        "trust", "widen the pool" or "raise the temperature".
    advice : str
    rows : RowStatistics
        The estimates of each query.
    link : Link
    design : str
    level : float
        Default level of the intervals.
    excluded : int
        Pool rows left out because they were also among the pairs.
    degrees : int or None
        Degrees of freedom of Student's law, for "batches".
    """

    cross_entropy: float
    standard_error: float
    query_error: float
    pool_error: float
    sandwich: Interval
    risk_at_k: float
    n_negatives: int
    n_pairs: int
    ess: float
    hubness: float
    loss_share: float
    gates: tuple[Gate, ...]
    verdict: str
    advice: str
    link: Link
    design: str
    level: float
    excluded: int
    degrees: int | None
    ranks: np.ndarray[Any, np.dtype[np.int64]] = field(repr=False)
    mass: FloatArray = field(repr=False)
    rows: RowStatistics = field(repr=False)

    @property
    def bias(self) -> float:
        """What finitely many negatives add to the logged loss: risk_at_k − log(k + 1) − cross_entropy."""
        return self.risk_at_k - math.log(self.n_negatives + 1) - self.cross_entropy

    @property
    def recall_at_1(self) -> float:
        """Share of queries whose positive comes before all negatives."""
        return self.recall(1)

    @property
    def recall_at_10(self) -> float:
        """Share of queries with at most nine negatives before the positive."""
        return self.recall(10)

    def recall(self, k: int) -> float:
        """Return the share of queries whose positive is among the first k."""
        return float((self.ranks <= _checks.integer("k", k, low=1)).mean())

    def recall_interval(self, k: int, level: float | None = None) -> Interval:
        """Return Wilson's interval of `recall(k)` over queries, for this very pool."""
        hits = self.ranks <= _checks.integer("k", k, low=1)
        return proportion_interval(hits, level=_level(level, self.level))

    def interval(self, level: float | None = None) -> Interval:
        """Return the interval of `cross_entropy`.

        Parameters
        ----------
        level : float, optional
            In (0, 1); the certificate's own level when left out.

        Returns
        -------
        Interval
            Asymptotic: valid as the numbers of pairs and candidates grow, provided that the gates pass.
        """
        half = self._quantile((1 + _level(level, self.level)) / 2) * self.standard_error
        return Interval(self.cross_entropy - half, self.cross_entropy + half)

    def conservative_interval(self, level: float | None = None) -> Interval:
        """Return an interval around the sandwich, which needs no estimate of the bias.

        Parameters
        ----------
        level : float, optional

        Returns
        -------
        Interval
            With fresh negatives for each query and a bounded link its lower end holds for every n (empirical
            Bernstein); all other ends rest on the central limit theorem.
        """
        delta = 1 - _level(level, self.level)
        quantile = self._quantile(1 - delta / 4)
        below = quantile * self.standard_error
        if self.design == "iid" and self.link.bounded:
            below = empirical_bernstein(self.rows.low, 4 / self.link.temperature, delta / 2)
        spread = max(float(self.rows.up.std(ddof=1)) / math.sqrt(self.n_pairs), self.query_error)
        above = quantile * math.hypot(spread, self.pool_error)
        return Interval(self.sandwich.low - below, self.sandwich.high + above)

    @property
    def universal_bias(self) -> Interval | None:
        """What theory alone promises about `bias`, for a softmax of cosines; None for unbounded links."""
        if not self.link.bounded:
            return None
        return universal_bias(self.link.temperature, self.n_negatives, variant="corpus")

    def _quantile(self, probability: float) -> float:
        if self.degrees is None:
            return NormalDist().inv_cdf(probability)
        from scipy.stats import t

        return float(t.ppf(probability, self.degrees))

    def plot(self) -> Any:
        """Draw the surprise of the queries and the search that candidates draw; needs the extra `report`."""
        from latentlink.report.risk_plots import plot_certificate

        return plot_certificate(self)

    def __str__(self) -> str:
        span = f"[{self.interval().low:+.4f}, {self.interval().high:+.4f}] nats ({self.level:.0%})"
        hits = [
            f"recall at {k:<2}      {self.recall(k):.3f}  {_shown(self.recall_interval(k))}" for k in (1, 10)
        ]
        return "\n".join(
            [
                f"cross-entropy     {self.cross_entropy:+.4f}  {span}",
                f"sandwich          [{self.sandwich.low:+.4f}, {self.sandwich.high:+.4f}]",
                f"risk at k         {self.risk_at_k:.4f}  (k = {self.n_negatives:,}, bias {self.bias:+.4f})",
                *hits,
                f"verdict           {self.verdict}",
                self.advice,
            ]
        )


def certify(
    queries: Any,
    positives: Any,
    pool: Any = None,
    temperature: float = 0.1,
    level: float = 0.95,
    *,
    link: Link | None = None,
    design: str = "pool",
    batch_negatives: str = "positives",
    batch_size: int | None = None,
    groups: Any = None,
    pair_ids: Any = None,
    pool_ids: Any = None,
    leaks: str = "refuse",
    progress: bool = True,
) -> Certificate:
    """Certify the search of a fixed encoder on held-out pairs.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
        Row i of one belongs to row i of the other; n ≥ 2 pairs that the encoder was not trained on. Compared by
        cosine similarity, normalised inside.
    pool : array, memory map or tensor (N, d)
        Draws of the data law, independent of the pairs; N ≥ 2. For design "iid" (n, k, d); for "in_batch" and
        "batches" it is left out.
    temperature : float
        Of the softmax link, > 0. Ignored when `link` is given.
    level : float
        Default level of the intervals, in (0, 1).
    link : Link, optional
        Another link from similarity to logit.
    design : {"pool", "iid", "in_batch", "batches"}
        Where negatives come from, which decides the standard error: one pool shared by all queries; fresh ones
        for each query; the other pairs; the other pairs of consecutive batches of `batch_size`, an interval
        over batches.
    batch_negatives : {"positives", "queries", "both"}
        For the last two designs: which side of the other pairs. The data law is then the law of that side.
        "both" averages the two views of an instance, as for NT-Xent: an instance counts once.
    batch_size : int, optional
        For "batches": at least 3, a divisor of n.
    groups : array (N,), optional
        Instance of each pool row, when several rows are views of one instance.
    pair_ids : array (n,) or (n, 2), optional
        Names of the pairs, or of their two sides; with `pool_ids` (N,).
    leaks : {"refuse", "exclude", "allow"}
        What to do when the pool holds a vector of the pairs, by id or as an exact duplicate: raise naming it,
        leave these pool rows out, or keep them (right when the data law itself repeats items).
    progress : bool
        Show a bar on stderr when that is a terminal.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInput
        Rows that are not finite or have norm 0, shapes that do not fit, or a leak.

    Notes
    -----
    The standard error is √(s²(jackknife)/n + s²(mass)/N): the second part does not shrink with more queries, so
    the usual s/√n is not valid here. Cost: n N d multiply-adds and n N exponentials; memory: one block of at
    most 16 million logits, whatever N is.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items, pool = rng.normal(size=(200, 16)), rng.normal(size=(1000, 16))
    >>> c = certify(items + 0.5 * rng.normal(size=items.shape), items, pool, temperature=0.5)
    >>> c.verdict, round(c.cross_entropy, 1), c.interval().high < 0
    ('trust', -1.7, True)
    """
    link = Link.of(link, temperature)
    level = _level(level, 0.95)
    _checks.one_of("leaks", leaks, ["refuse", "exclude", "allow"])
    _checks.one_of("design", design, DESIGNS)
    _checks.one_of("batch_negatives", batch_negatives, ["positives", "queries", "both"])
    q, p = check_pairs(queries, positives)
    fewest = 2 if pool is not None else 3
    if q.n < fewest:
        raise _checks.InvalidInput(f"queries has {q.n} rows; needs at least {fewest}.")
    if (pool is None) != (design in ("in_batch", "batches")):
        state = "left out" if pool is None else "given"
        raise _checks.InvalidInput(
            f"pool is {state} with design {design!r}; 'pool' and 'iid' need it, the others do without."
        )
    if (batch_size is not None) != (design == "batches"):
        raise _checks.InvalidInput(
            f"batch_size is {batch_size} with design {design!r}; it belongs to 'batches'."
        )
    if design == "iid":
        own = against_own(q, p, pool, link, groups=groups, show=progress)
        return _certificate(own, link=link, design=design, level=level)
    if design == "in_batch":
        batch = within_batch(q, p, link, negatives=batch_negatives, show=progress)
        return _certificate(batch, link=link, design=design, level=level)
    if batch_size is not None:
        batches = in_batches(q, p, link, batch_size, batch_negatives)
        return _certificate(batches, link=link, design=design, level=level, batch_size=batch_size)
    candidates = Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    candidates, groups, excluded = _without_leaks(candidates, [q, p], groups, pair_ids, pool_ids, leaks)
    measured = against_pool(q, p, candidates, link, groups=groups, show=progress)
    return _certificate(measured, link=link, design="pool", level=level, excluded=excluded)


def _without_leaks(
    pool: Vectors, pairs: list[Vectors], groups: Any, pair_ids: Any, pool_ids: Any, leaks: str
) -> tuple[Vectors, Any, int]:
    if leaks == "allow":
        return pool, groups, 0
    leaked, message = leaked_rows(pool, pairs, pool_ids=pool_ids, pair_ids=pair_ids)
    if not leaked.any():
        return pool, groups, 0
    count = int(leaked.sum())
    if leaks == "refuse":
        raise _checks.InvalidInput(
            f"{message} ({count} such rows in all); a pool apart from the pairs is needed. "
            'Pass leaks="exclude" to leave them out, or leaks="allow" when the data law repeats items.'
        )
    return pool.without(leaked), None if groups is None else np.asarray(groups)[~leaked], count


def _certificate(
    measured: Measured,
    *,
    link: Link,
    design: str,
    level: float,
    excluded: int = 0,
    batch_size: int | None = None,
) -> Certificate:
    rows = measured.rows
    errors = standard_errors(rows, design, batch_size)
    judged = judge_rows(rows)
    return Certificate(
        cross_entropy=float(rows.jackknife.mean()),
        standard_error=errors.total,
        query_error=errors.query,
        pool_error=errors.pool,
        sandwich=Interval(float(rows.low.mean()), float(rows.up.mean())),
        risk_at_k=float(rows.loss_inside.mean()),
        n_negatives=rows.n_negatives,
        n_pairs=rows.low.size,
        ess=float(np.median(rows.ess)),
        hubness=errors.hubness,
        loss_share=carrying_share(rows.loss_inside),
        gates=judged.gates,
        verdict=judged.verdict,
        advice=judged.advice,
        link=link,
        design=design,
        level=level,
        excluded=excluded,
        degrees=errors.degrees,
        ranks=measured.ranks,
        mass=errors.mass,
        rows=rows,
    )


def _level(level: float | None, default: float) -> float:
    if level is None:
        return default
    value = _checks.number("level", level, low=0, high=1, open_low=True)
    if value == 1:
        raise _checks.InvalidInput("level is 1; needs a number in (0, 1).")
    return value


def _shown(interval: Interval) -> str:
    return f"[{interval.low:.3f}, {interval.high:.3f}]"

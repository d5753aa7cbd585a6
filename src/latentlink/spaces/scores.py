"""What a comparison of maps measures, and how it prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval
from latentlink.spaces.routes import SHARED


@dataclass(frozen=True)
class CertifiedSearch:
    """What the certificate of `latentlink.certify` says about a mapped search; made by `compare_maps`.

    Attributes
    ----------
    n_candidates : int
        Size of the search that is spoken of: the right item and the rest.
    temperature : float
    loss : float
        Expected nats of the right item's share of the search, −log: 0 is perfect, log(n_candidates) is blind
        choice. The certified cross-entropy plus log(n_candidates) and the predicted bias of so many candidates.
    interval : Interval
        95 %, from that of the cross-entropy.
    verdict : str
        Of the certificate: "trust", or what to do first.
    """

    n_candidates: int
    temperature: float
    loss: float
    interval: Interval
    verdict: str


@dataclass(frozen=True)
class MapScore:
    """How well queries of one encoder find the same items among vectors of another.

    Attributes
    ----------
    method, source, target : str
    n_queries : int
        Held-out items; all of them are the gallery.
    recall_at_1, recall_at_10, mrr : float
    recall_at_1_interval, recall_at_10_interval : Interval
        Wilson's 95 % interval over queries.
    mean_cosine : float
        Of a translated vector with the target's own, both around the target's fitted mean; NaN for methods
        that do not translate.
    seconds : float
        CPU time of the fit; a shared space is fitted once for all pairs.
    certified : CertifiedSearch or None
        When asked for.
    """

    method: str
    source: str
    target: str
    n_queries: int
    recall_at_1: float
    recall_at_1_interval: Interval
    recall_at_10: float
    recall_at_10_interval: Interval
    mrr: float
    mean_cosine: float
    seconds: float
    certified: CertifiedSearch | None = None


@dataclass(frozen=True)
class MapComparison:
    """What `compare_maps` measured.

    Attributes
    ----------
    scores : tuple of MapScore
        One for each (method, source, target).
    n_fit, n_held_out : int
    notes : tuple of str
        What was left out and why.
    """

    scores: tuple[MapScore, ...]
    n_fit: int
    n_held_out: int
    notes: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that ran, in order."""
        return tuple(dict.fromkeys(score.method for score in self.scores))

    def of(self, method: str, source: str, target: str) -> MapScore:
        """Return one score."""
        for score in self.scores:
            if (score.method, score.source, score.target) == (method, source, target):
                return score
        raise _checks.InvalidInput(f"no score of {method!r} from {source!r} to {target!r}; see .scores.")

    def mean(self, method: str, *, names: Sequence[str] | None = None, metric: str = "recall_at_1") -> float:
        """Return the mean of a metric over ordered pairs, of all encoders or of those named."""
        _checks.one_of("method", method, self.methods)
        _checks.one_of("metric", metric, ["recall_at_1", "recall_at_10", "mrr", "mean_cosine", "seconds"])
        values = [
            getattr(score, metric)
            for score in self.scores
            if score.method == method and (names is None or {score.source, score.target} <= set(names))
        ]
        if not values:
            raise _checks.InvalidInput(f"names is {names!r}; needs two encoders of the comparison.")
        return float(np.mean(values))

    def table(self) -> str:
        """Format the means over pairs, the best recall first, and the notes.

        With certificates: the mean loss at so many candidates, the largest upper end of the pairs' intervals, and
        for how many pairs the verdict is "trust".
        """
        rows = sorted(self.methods, key=lambda method: -self.mean(method))
        first = self.scores[0].certified
        certified = "" if first is None else f"{'nats':>8}{'at most':>9}{'trust':>8}"
        lines = [
            f"{'method':14}{'R@1':>7}{'worst':>8}{'R@10':>8}{'MRR':>8}{'cosine':>8}{'CPU s':>8}{certified}"
        ]
        for method in rows:
            worst = min(score.recall_at_1 for score in self.scores if score.method == method)
            cosine, tenth = self.mean(method, metric="mean_cosine"), self.mean(method, metric="recall_at_10")
            lines.append(
                f"{method:14}{self.mean(method):7.3f}{worst:8.3f}{tenth:8.3f}"
                f"{self.mean(method, metric='mrr'):8.3f}{'-' if np.isnan(cosine) else f'{cosine:.3f}':>8}"
                f"{self.seconds(method):8.2f}{self._certified(method)}"
            )
        lines.append(f"means over ordered pairs; {self.n_fit} pairs fitted, {self.n_held_out} held out")
        if first is not None:
            lines.append(
                f"nats: certified loss among {first.n_candidates:,} candidates at temperature "
                f"{first.temperature:g}, blind choice {math.log(first.n_candidates):.2f}; "
                "at most: the largest upper end of the 95 % intervals"
            )
        return "\n".join([*lines, *self.notes])

    def _certified(self, method: str) -> str:
        found = [s.certified for s in self.scores if s.method == method and s.certified is not None]
        if not found:
            return ""
        trusted = f"{sum(c.verdict == 'trust' for c in found)}/{len(found)}"
        mean, most = np.mean([c.loss for c in found]), max(c.interval.high for c in found)
        return f"{mean:8.3f}{most:9.3f}{trusted:>8}"

    def seconds(self, method: str) -> float:
        """Return the CPU time of all fits of a method: once for a shared space, summed over pairs else."""
        times = [score.seconds for score in self.scores if score.method == method]
        return times[0] if method in SHARED else float(sum(times))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self)

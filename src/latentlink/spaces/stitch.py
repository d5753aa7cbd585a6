"""One head for all encoders: train it on one encoder's relative vectors, use it with every other's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval, bootstrap_interval
from latentlink.spaces.relative import RelativeSpace, known_space

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class StitchReport:
    """Scores of one head used across encoders.

    Attributes
    ----------
    source : str
        The encoder the head was trained on.
    stitched : dict of str to float
        Macro F1 of that head with each encoder; with `source` itself it is the head's own score.
    own : dict of str to float
        Macro F1 of a head trained on each encoder's own vectors of the same training items.
    intervals : dict of str to Interval
        95 % bootstrap over test items of the stitched score.
    """

    source: str
    stitched: dict[str, float]
    own: dict[str, float]
    intervals: dict[str, Interval]


class Head:
    """A classifier on relative vectors: standardised by its training data, then linear or a small MLP.

    Nothing depends on the batch that is predicted: one vector gets the same answer alone or among others.

    Parameters
    ----------
    kind : {"linear", "mlp"}
        Logistic regression, or one hidden layer of 128.
    strength : "auto" or float
        Inverse L2 penalty of the linear head; "auto" takes the best macro F1 on a held-out fifth.
    scaling : {"common", "each"}
        Divide by one standard deviation of all coordinates together, or by each coordinate's own. In a shared
        space a coordinate is as large as the encoders' agreement on it; "common" keeps that, so the penalty
        holds the head back where another encoder would contradict.
    seed : int

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(60, 3))
    >>> head = Head().fit(x, x[:, 0] > 0)
    >>> bool((head.predict(x) == (x[:, 0] > 0)).mean() > 0.9)
    True
    """

    def __init__(
        self,
        kind: str = "linear",
        *,
        strength: str | float = "auto",
        scaling: str = "common",
        seed: int = 0,
    ) -> None:
        self.scaling = _checks.one_of("scaling", scaling, ["common", "each"])
        self.kind = _checks.one_of("kind", kind, ["linear", "mlp"])
        if not _checks.is_auto(strength):
            _checks.number("strength", strength, low=0, open_low=True)
        self.strength = strength
        self.seed = _checks.integer("seed", seed, high=2**32 - 1)

    def fit(self, relative: Any, labels: Any) -> Head:
        """Train on (n, k) vectors and (n,) labels."""
        r = _checks.numpy_matrix("relative", relative, min_rows=4, dtype=np.float64)
        y = np.asarray(labels)
        if y.shape != (r.shape[0],):
            raise _checks.InvalidInput(f"labels has shape {y.shape}; needs ({r.shape[0]},).")
        self.mean_, spread = r.mean(axis=0), r.std(axis=0)
        if self.scaling == "common":
            spread = np.full_like(spread, np.sqrt((spread**2).mean()))
        self.spread_ = np.where(spread > 0, spread, 1.0)
        z = (r - self.mean_) / self.spread_
        if self.kind == "linear" and self.strength == "auto":
            order = np.random.default_rng(self.seed).permutation(y.size)
            held, kept = order[: y.size // 5], order[y.size // 5 :]
            scores = [
                macro_f1(y[held], self._model(c).fit(z[kept], y[kept]).predict(z[held])) for c in STRENGTHS
            ]
            self.strength_ = STRENGTHS[int(np.argmax(scores))]
        else:
            self.strength_ = 1.0 if self.strength == "auto" else float(self.strength)
        self.model_ = self._model(self.strength_).fit(z, y)
        return self

    def predict(self, relative: Any) -> np.ndarray[Any, Any]:
        """Predict the label of each (n, k) vector."""
        r = _checks.numpy_matrix("relative", relative, columns=self.mean_.size, dtype=np.float64)
        return np.asarray(self.model_.predict((r - self.mean_) / self.spread_))

    def _model(self, strength: float) -> Any:
        if self.kind == "linear":
            from sklearn.linear_model import LogisticRegression

            return LogisticRegression(C=strength, max_iter=2000, random_state=self.seed)
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier((128,), alpha=1e-2, max_iter=400, early_stopping=True, random_state=self.seed)


def measure_stitch(
    space: RelativeSpace,
    train: Mapping[str, Any],
    labels: Any,
    test: Mapping[str, Any],
    test_labels: Any,
    *,
    source: str,
    kind: str = "linear",
    seed: int = 0,
) -> StitchReport:
    """Train one head on `source` and test it with every encoder.

    Parameters
    ----------
    space : RelativeSpace
    train : mapping of name to (n, d_i) array
        Of the source at least; the other encoders' rows train only their own heads, for comparison.
    labels : array (n,)
    test : mapping of name to (t, d_i) array
    test_labels : array (t,)
    source : str
    kind : {"linear", "mlp"}
    seed : int

    Returns
    -------
    StitchReport
    """
    known_space(space)
    train, test = _checks.mapping("train", train), _checks.mapping("test", test)
    _checks.one_of("source", source, train)
    y = np.asarray(test_labels)
    head = Head(kind, seed=seed).fit(space.encode(train[source], source=source), labels)
    stitched, own, intervals = {}, {}, {}
    for name, x in test.items():
        predicted = head.predict(space.encode(x, source=name))
        if y.shape != predicted.shape:
            raise _checks.InvalidInput(
                f"test_labels has shape {y.shape}; needs {predicted.shape}, one for each row."
            )
        stitched[name] = macro_f1(y, predicted)
        codes = np.stack([np.unique(np.concatenate([y, predicted]), return_inverse=True)[1]], axis=0)[0]
        pairs = np.column_stack([codes[: y.size], codes[y.size :]])
        intervals[name] = bootstrap_interval(
            pairs, n_resamples=200, seed=seed, statistic=lambda p: macro_f1(p[:, 0], p[:, 1])
        )
        if name in train:
            own[name] = macro_f1(y, Head(kind, scaling="each", seed=seed).fit(train[name], labels).predict(x))
    return StitchReport(source, stitched, own, intervals)


def carry_threshold(threshold: float, source_similarities: Any, target_similarities: Any) -> float:
    """Carry a similarity threshold to another space: the same share of similarities passes it.

    Parameters
    ----------
    threshold : float
        Tuned in the source space.
    source_similarities, target_similarities : array (n,), (m,)
        Similarities of pairs of the same kind in both spaces, of ordinary items.

    Returns
    -------
    float

    Examples
    --------
    >>> carry_threshold(5.0, np.arange(11), 10.0 * np.arange(11))
    50.0
    """
    source = np.sort(_checks.numpy_vector("source_similarities", source_similarities, dtype=np.float64))
    target = _checks.numpy_vector("target_similarities", target_similarities, dtype=np.float64)
    if not source.size or not target.size:
        raise _checks.InvalidInput("source_similarities or target_similarities is empty; needs both.")
    limit = _checks.number("threshold", threshold)
    level = np.interp(limit, source, np.linspace(0, 1, source.size))
    return float(np.quantile(target, level))


def macro_f1(truth: Any, predicted: Any) -> float:
    """Average over the classes of the truth the harmonic mean of precision and recall.

    >>> macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1])).__round__(4)
    0.6667
    """
    y, p = np.asarray(truth), np.asarray(predicted)
    scores = []
    for value in np.unique(y):
        hit = float(((y == value) & (p == value)).sum())
        scores.append(2 * hit / float((y == value).sum() + (p == value).sum()))
    return float(np.mean(scores))

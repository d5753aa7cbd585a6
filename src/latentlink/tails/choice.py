"""Choose a link by the likelihood of observed winners.

A query picks one of its candidates with probability proportional to exp(logit). The nested family has logit = a
s − b log(endpoint − s + softening) with a, b >= 0: b = 0 is the softmax of temperature 1 / a, a = 0 the
shortfall link of exponent b, and blend = b / (a + b) lies between. The log-likelihood is concave in (a, b).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink._metrics import Interval
from latentlink.links import Link

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

_STEPS = 100
# A weight that grows beyond this many logits a unit of its coordinate has no finite maximum.
_LARGEST = 1e6


class RatioTest(NamedTuple):
    """A likelihood-ratio test of one end of the family: twice the gain, and its p-value at the boundary."""

    statistic: float
    p: float


@dataclass(frozen=True, eq=False)
class LinkChoice:
    """Hold the link that the winners ask for.

    Attributes
    ----------
    blend : float
        In [0, 1]: 0 softmax, 1 shortfall.
    temperature, beta : float
        Of `Link.blended` at this blend: 1 / (a + b) and a + b.
    softmax_temperature, shortfall_beta : float
        Of the two pure links: 1 / a with b = 0, and b with a = 0; infinite or 0 where that link gains nothing.
    power_alpha : float
        Of the power link with origin −endpoint.
    weights : tuple of float
        (a, b).
    covariance : array (2, 2)
        Of (a, b), robust and clustered by query.
    log_likelihoods : dict
        Of "uniform" (no parameter), "softmax", "shortfall", "power" (one) and "blend" (two).
    aic : dict
        −2 log-likelihood + 2 parameters, of the same links; the smallest is preferred.
    against_softmax, against_shortfall : RatioTest
        Of blend = 0 and of blend = 1; half chi² with one degree of freedom at the boundary.
    n_choices : int
    top_share : float
        Share of winners that are the most similar candidate; at 1 no finite weights exist.
    separated : bool
        The winners are predicted perfectly, so that the weights have no finite maximum.
    edge_profile : array (g, 2)
        Blends and twice the log-likelihood lost at each, where `blend` is 0 or 1; (0, 2) otherwise.
    """

    blend: float
    temperature: float
    beta: float
    softmax_temperature: float
    shortfall_beta: float
    power_alpha: float
    weights: tuple[float, float]
    covariance: FloatArray
    log_likelihoods: dict[str, float]
    aic: dict[str, float]
    against_softmax: RatioTest
    against_shortfall: RatioTest
    n_choices: int
    top_share: float
    separated: bool
    endpoint: float
    softening: float
    edge_profile: FloatArray

    @property
    def link(self) -> Link:
        """The chosen link, for `logits`."""
        if self.blend == 0:
            return Link.softmax(self.temperature)
        return Link.blended(
            self.blend,
            temperature=self.temperature,
            beta=self.beta,
            endpoint=self.endpoint,
            softening=self.softening,
        )

    @property
    def preferred(self) -> str:
        """Name of the link with the smallest AIC."""
        return min((value, name) for name, value in self.aic.items())[1]

    @property
    def relative_blend(self) -> float:
        """The blend in units of the two pure fits: (b / b₀) / (a / a₀ + b / b₀).

        Unlike `blend` it does not depend on how far apart the units of s and of the log shortfall are.
        """
        return self._relative(self.blend)

    def _relative(self, blend: float) -> float:
        shortfall = blend / self.shortfall_beta if self.shortfall_beta > 0 else 0.0
        softmax = (1 - blend) * self.softmax_temperature if np.isfinite(self.softmax_temperature) else 0.0
        return shortfall / (shortfall + softmax) if shortfall + softmax > 0 else float("nan")

    def interval(self, parameter: str = "blend", level: float = 0.95) -> Interval:
        """Compute an interval of "blend", "relative_blend", "beta" (a + b) or "temperature" (1 / (a + b)).

        By the delta method with errors clustered by query, cut to the allowed range; of a blend at an end of the
        family, where that method knows no width, by the profile likelihood (`edge_profile`), choices independent.
        """
        from statistics import NormalDist

        _checks.one_of("parameter", parameter, ["blend", "relative_blend", "beta", "temperature"])
        if parameter == "relative_blend":  # a rising function of the blend, the pure fits taken as known
            return Interval(*map(self._relative, self.interval("blend", level)))
        level = _checks.number("level", level, low=0, high=1)
        z = NormalDist().inv_cdf((1 + level) / 2)
        a, b = self.weights
        total = a + b
        if not total > 0 or not np.isfinite(self.covariance).all():
            return Interval(float("nan"), float("nan"))
        if parameter == "blend" and self.edge_profile.size:
            inside = self.edge_profile[self.edge_profile[:, 1] <= z * z, 0]
            outside = self.edge_profile[self.edge_profile[:, 1] > z * z]
            if self.blend == 0:
                return Interval(0.0, _crossing(self.edge_profile, z) if outside.size else float(inside.max()))
            return Interval(_crossing(self.edge_profile[::-1], z) if outside.size else float(inside.min()), 1.0)
        slope: FloatArray = np.asarray([-b / total**2, a / total**2] if parameter == "blend" else [1.0, 1.0])
        error = max(float(slope @ self.covariance @ slope), 0.0) ** 0.5
        if parameter == "blend":
            return Interval(max(0.0, self.blend - z * error), min(1.0, self.blend + z * error))
        low, high = max(0.0, total - z * error), total + z * error
        if parameter == "beta":
            return Interval(low, high)
        return Interval(1.0 / high, 1.0 / low if low > 0 else float("inf"))


def choose_link(
    similarities: Any,
    winners: Any,
    *,
    endpoint: float = 1.0,
    softening: float = 1e-6,
    clusters: Any = None,
) -> LinkChoice:
    """Fit the family of links to observed winners and test it against both ends.

    Parameters
    ----------
    similarities : array or tensor (n, m)
        Of each query to its candidates; −inf marks what is no candidate.
    winners : int array (n,)
        Column of the candidate each query picked: its positive, or the best under an independent view.
    endpoint : float
        Largest possible similarity.
    softening : float
        Added to the shortfall, as in `Link`.
    clusters : array (n,), optional
        Label of what belongs together (repeated queries); standard errors are robust over clusters. Each query
        is its own when not given.

    Returns
    -------
    LinkChoice

    Raises
    ------
    InvalidInput
        A winner is no candidate, a row has fewer than two candidates, or a similarity lies beyond the endpoint.

    Notes
    -----
    Cost: about ten Newton steps of n m operations for each link. Blend, temperature and beta cannot be told
    apart further: (a, b) has two parameters. With the positive as winner the result says what separates
    positives from negatives as much as it says which law the top follows; an independent view of the same
    candidates is cleaner.

    References
    ----------
    McFadden 1974 (conditional logit); Self and Liang 1987 (tests at a boundary); arXiv 2606.00262 (the family).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = rng.uniform(-0.2, 0.97, (4000, 16))
    >>> picked = np.argmax(4 * s + rng.gumbel(size=s.shape), axis=1)  # a softmax of temperature 1/4
    >>> choice = choose_link(s, picked)
    >>> choice.blend < 0.1, round(choice.softmax_temperature, 1)
    (True, 0.3)
    """
    s, picked = _checked(similarities, winners, endpoint)
    softening = _checks.number("softening", softening, low=0)
    groups = (
        np.arange(s.shape[0]) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    )
    if groups.shape != (s.shape[0],):
        raise _checks.InvalidInput(f"clusters has shape {groups.shape}; needs ({s.shape[0]},).")
    candidate = s > -np.inf
    inside = np.where(candidate, s, endpoint - 1.0)
    shortfall = -np.log(np.maximum(endpoint - inside, np.finfo(float).eps) + softening)
    power = np.log(np.maximum(inside + endpoint, np.finfo(float).eps))
    model = _Choices(candidate, picked)

    softmax = model.fit([inside])
    pure = model.fit([shortfall])
    heavy = model.fit([power])
    blend = model.fit([inside, shortfall])
    if (blend.weights < 0).any() or blend.value < max(softmax.value, pure.value):
        edge = softmax if softmax.value >= pure.value else pure
        blend = _Fit(
            np.asarray([edge.weights[0], 0.0] if edge is softmax else [0.0, edge.weights[0]]),
            edge.value,
            edge.diverged,
        )
    a, b = (float(weight) for weight in blend.weights)
    total = a + b
    uniform = float(-np.log(candidate.sum(axis=1)).sum())
    values = {
        "uniform": uniform,
        "softmax": softmax.value,
        "shortfall": pure.value,
        "power": heavy.value,
        "blend": blend.value,
    }
    parameters = {"uniform": 0, "softmax": 1, "shortfall": 1, "power": 1, "blend": 2}
    top = np.where(candidate, s, -np.inf).max(axis=1)
    return LinkChoice(
        blend=b / total if total > 0 else 0.0,
        temperature=1.0 / total if total > 0 else float("inf"),
        beta=total,
        softmax_temperature=1.0 / float(softmax.weights[0]) if softmax.weights[0] > 0 else float("inf"),
        shortfall_beta=float(pure.weights[0]),
        power_alpha=float(heavy.weights[0]),
        weights=(a, b),
        covariance=model.covariance([inside, shortfall], blend.weights, groups),
        log_likelihoods=values,
        aic={name: 2.0 * parameters[name] - 2.0 * value for name, value in values.items()},
        against_softmax=_boundary_test(blend.value - softmax.value),
        against_shortfall=_boundary_test(blend.value - pure.value),
        n_choices=int(s.shape[0]),
        top_share=float((s[np.arange(s.shape[0]), picked] >= top).mean()),
        separated=blend.diverged,
        endpoint=float(endpoint),
        softening=softening,
        edge_profile=_edge_profile(model, inside, shortfall, a, b, blend),
    )


def _edge_profile(
    model: _Choices, inside: FloatArray, shortfall: FloatArray, a: float, b: float, best: _Fit
) -> FloatArray:
    """Compute the profile likelihood of the blend, from the end it lies at until twice its loss passes 12."""
    if (a > 0 and b > 0) or a + b == 0 or best.diverged:
        return np.zeros((0, 2))
    near = np.concatenate([[0.0], np.geomspace(1e-3, 0.5, 16)])
    grid = np.concatenate([near, 1 - near[-2::-1]])
    if a == 0:
        grid = grid[::-1]
    rows: list[list[float]] = []
    weight = np.asarray([a + b])
    for blend in grid:
        fitted = model.fit([(1 - blend) * inside + blend * shortfall], weight)
        weight = fitted.weights
        rows.append([float(blend), 2 * (best.value - fitted.value)])
        if rows[-1][1] > 12:
            break
    return np.asarray(sorted(rows))


def _crossing(profile: FloatArray, z: float) -> float:
    """Find where the loss first passes z², linear in its root between grid points."""
    place = int(np.flatnonzero(profile[:, 1] > z * z)[0])
    (x0, d0), (x1, d1) = profile[place - 1], profile[place]
    r0, r1 = max(d0, 0.0) ** 0.5, d1**0.5
    return float(x0 + (x1 - x0) * (z - r0) / (r1 - r0))


class _Fit(NamedTuple):
    weights: FloatArray
    value: float
    diverged: bool


class _Choices:
    """The conditional logit of one set of choices: fits weights (p,) of coordinates, each (n, m)."""

    def __init__(self, candidate: np.ndarray[Any, Any], picked: np.ndarray[Any, Any]) -> None:
        self.candidate = candidate
        self.picked = picked
        self.rows = np.arange(picked.size)

    def fit(self, coordinates: list[FloatArray], start: FloatArray | None = None) -> _Fit:
        """Maximise by Newton steps with halving; one weight is held at >= 0, two are left free."""
        # Coordinates relative to the winner: the likelihood then needs no winner's term, and its exponents are
        # small.
        relative = [x - x[self.rows, self.picked][:, None] for x in coordinates]
        weights = np.zeros(len(relative)) if start is None else start
        value, gradient, hessian = self._at(relative, weights)
        for _ in range(_STEPS):
            step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
            size = 1.0
            while True:
                trial = weights + size * step
                if len(relative) == 1:
                    trial = np.maximum(trial, 0.0)
                new, new_gradient, new_hessian = self._at(relative, trial)
                if new >= value - 1e-12 * abs(value) or size < 1e-10:
                    break
                size /= 2
            moved = float(np.abs(trial - weights).max())
            weights, value, gradient, hessian = trial, new, new_gradient, new_hessian
            if np.abs(weights).max() > _LARGEST:
                return _Fit(weights, value, True)
            if moved <= 1e-10 * (1.0 + float(np.abs(weights).max())):
                break
        return _Fit(weights, value, bool(value > -1e-6 * self.picked.size and weights.max() > 0))

    def covariance(self, coordinates: list[FloatArray], weights: FloatArray, groups: Any) -> FloatArray:
        """Compute the sandwich covariance over clusters; a weight at 0 is held there and has variance 0."""
        free = np.flatnonzero(weights > 0)
        result = np.zeros((weights.size, weights.size))
        if free.size == 0:
            return result
        relative = [coordinates[i] - coordinates[i][self.rows, self.picked][:, None] for i in free]
        _, _, hessian = self._at(relative, weights[free])
        chance = self._chances(relative, weights[free])[0]
        scores = -np.stack([(chance * x).sum(axis=1) for x in relative], axis=1)  # (n, p)
        sums = np.zeros((int(groups.max()) + 1, free.size))
        np.add.at(sums, groups, scores)
        inverse = np.linalg.pinv(hessian)
        result[np.ix_(free, free)] = inverse @ (sums.T @ sums) @ inverse
        return result

    def _chances(self, relative: list[FloatArray], weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        logits = sum((w * x for w, x in zip(weights, relative, strict=True)), np.zeros(self.candidate.shape))
        logits = np.where(self.candidate, logits, -np.inf)
        largest = logits.max(axis=1, keepdims=True)
        mass = np.exp(logits - largest)
        total = mass.sum(axis=1, keepdims=True)
        return mass / total, (largest + np.log(total))[:, 0]

    def _at(self, relative: list[FloatArray], weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        chance, log_total = self._chances(relative, weights)
        means = np.stack([(chance * x).sum(axis=1) for x in relative], axis=1)  # (n, p)
        p = len(relative)
        hessian = np.empty((p, p))
        for i in range(p):
            for j in range(i, p):
                second = (chance * relative[i] * relative[j]).sum()
                hessian[i, j] = hessian[j, i] = second - means[:, i] @ means[:, j]
        return float(-log_total.sum()), -means.sum(axis=0), hessian


def _checked(similarities: Any, winners: Any, endpoint: float) -> tuple[FloatArray, np.ndarray[Any, Any]]:
    _checks.number("endpoint", endpoint)
    s = _checks.numpy_matrix("similarities", similarities, finite=False, dtype=np.float64)
    picked = np.asarray(to_numpy(winners))
    if picked.shape != (s.shape[0],) or picked.dtype.kind not in "iu":
        raise _checks.InvalidInput(
            f"winners has shape {picked.shape} and type {picked.dtype}; needs whole numbers ({s.shape[0]},)."
        )
    if picked.size == 0 or picked.min() < 0 or picked.max() >= s.shape[1]:
        raise _checks.InvalidInput(
            f"winners has columns outside 0 to {s.shape[1] - 1}; needs one column a query."
        )
    _checks.finite_rows("similarities", np.where(s == -np.inf, 0.0, s))
    few = np.flatnonzero((s > -np.inf).sum(axis=1) < 2)
    if few.size:
        raise _checks.InvalidInput(f"row {few[0]} of similarities has fewer than two candidates; drop it.")
    lost = np.flatnonzero(s[np.arange(picked.size), picked] == -np.inf)
    if lost.size:
        raise _checks.InvalidInput(f"the winner of row {lost[0]} is no candidate: its similarity is -inf.")
    if s.max() > endpoint + 1e-4:
        raise _checks.InvalidInput(
            f"similarity {s.max():g} exceeds the endpoint {endpoint:g} beyond rounding (tolerance 0.0001); "
            "are the rows normalised?"
        )
    return s, picked.astype(np.int64)


def _boundary_test(gain: float) -> RatioTest:
    from scipy import stats

    statistic = max(2.0 * gain, 0.0)
    p = 0.5 * float(stats.chi2.sf(statistic, 1)) if statistic > 0 else 1.0
    return RatioTest(statistic, p)

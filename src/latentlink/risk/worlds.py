"""Worlds where everything is known exactly: a sphere and finite sets. For teaching, and for tests.

The exact bias at k uses Frullani's integral, E log U = ∫ (e^(−e^y) − φ(e^y/k)^k) dy with φ the Laplace
transform of W, by the trapezoid rule, which converges geometrically for such integrands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.risk.estimators import FloatArray
from latentlink.risk.expansion import VARIANTS

# The integrand is analytic in a strip of half-width π/2: the rule's error is about exp(−π²/step).
_STEP = 0.1


@dataclass(frozen=True)
class ExactWorld:
    """A data law, a law of positives, and an encoder, all known; made by `sphere`, `discrete` or `two_points`.

    Attributes
    ----------
    law : array (q,)
        Probability of each query.
    candidates : array (q, J)
        Data law over candidates, for each query.
    positives : array (q, J)
        Law of the positive over the same candidates.
    similarities : array (q, J)
    temperature : float
    """

    law: FloatArray
    candidates: FloatArray
    positives: FloatArray
    similarities: FloatArray
    temperature: float

    @classmethod
    def sphere(
        cls, dimension: int, temperature: float, concentration: float, *, nodes: int = 800
    ) -> ExactWorld:
        """Make the uniform law on the sphere with von Mises–Fisher positives and the identity as encoder.

        By rotation one query stands for all; its candidates are the nodes of a Gauss rule over the angle.

        Examples
        --------
        >>> world = ExactWorld.sphere(3, 0.2, 10.0)
        >>> round(world.cross_entropy, 4), world.variance.round(4)
        (-1.8026, array([4.0005]))
        """
        d = _checks.integer("dimension", dimension, low=2)
        points, weights = np.polynomial.legendre.leggauss(nodes)
        angle = (points + 1) * np.pi / 2
        s = np.cos(angle)
        log_density = (d - 2) * np.log(np.sin(angle))
        pi = _normal(weights * np.exp(log_density - log_density.max()))
        tilt = log_density + concentration * s
        positives = _normal(weights * np.exp(tilt - tilt.max()))
        return cls(np.ones(1), pi[None], positives[None], s[None], temperature)

    @classmethod
    def discrete(cls, points: Any, law: Any, positives: Any, temperature: float) -> ExactWorld:
        """Make a world of finitely many unit vectors (J, d), with law (J,) and positives (J, J)."""
        x = _checks.numpy_matrix("points", points, dtype=np.float64)
        pi = _checks.numpy_vector("law", law, length=x.shape[0], dtype=np.float64)
        m = _checks.numpy_matrix("positives", positives, columns=x.shape[0], dtype=np.float64)
        return cls(pi, np.broadcast_to(pi, m.shape), m, x @ x.T, temperature)

    @classmethod
    def two_points(cls, temperature: float, near: float, hit: float) -> ExactWorld:
        """Make one query with candidates at similarity +1 and −1.

        A candidate is at +1 with probability `near`, the positive with probability `hit`.
        """
        return cls(
            np.ones(1),
            np.array([[near, 1 - near]]),
            np.array([[hit, 1 - hit]]),
            np.array([[1.0, -1.0]]),
            temperature,
        )

    @property
    def log_partition(self) -> FloatArray:
        """Log Z of each query (q,)."""
        top = self.similarities.max(axis=1, keepdims=True)
        mean = (self.candidates * np.exp((self.similarities - top) / self.temperature)).sum(axis=1)
        return np.asarray(np.log(mean) + top[:, 0] / self.temperature)

    @property
    def density(self) -> FloatArray:
        """Density W of the search law relative to the data law (q, J)."""
        return np.asarray(np.exp(self.similarities / self.temperature - self.log_partition[:, None]))

    @property
    def cross_entropy(self) -> float:
        """The k → ∞ cross-entropy, nats relative to the data law."""
        surprise = self.log_partition[:, None] - self.similarities / self.temperature
        return float(self.law @ (self.positives * surprise).sum(axis=1))

    def moment(self, order: int) -> FloatArray:
        """Central moment of W of each query (q,)."""
        return np.asarray((self.candidates * (self.density - 1) ** order).sum(axis=1))

    @property
    def variance(self) -> FloatArray:
        """χ² distance V of each query's search law from the data law (q,)."""
        return self.moment(2)

    @property
    def ratio(self) -> FloatArray:
        """Mean density of the search law at the positive (q,)."""
        return np.asarray((self.positives * self.density).sum(axis=1))

    @property
    def hubs(self) -> FloatArray:
        """For a discrete world: search drawn by each candidate relative to the data law, less 1 (J,)."""
        return np.asarray(self.law @ self.density - 1)

    def bias(self, n_negatives: int, *, variant: str = "inside") -> float:
        """Compute the exact bias of the risk with k negatives, by quadrature (relative error about 1e-12)."""
        k = _checks.integer("n_negatives", n_negatives, low=1)
        _checks.one_of("variant", variant, VARIANTS)
        total = 0.0
        for i, weight in enumerate(self.law):
            total += float(weight) * self._log_mean(i, k, variant)
        return total - (np.log1p(1 / k) if variant == "corpus" else 0.0)

    def _log_mean(self, i: int, k: int, variant: str) -> float:
        w, pi = self.density[i], self.candidates[i]
        with_positive = variant != "outside"
        r, m = (w, self.positives[i]) if with_positive else (np.zeros(1), np.ones(1))
        low, high = np.arange(-42.0, 2.0, _STEP), np.arange(2.0, np.log(50 / w.min()) + 1, _STEP)
        # Where e^y is small both terms are near 1: their difference is e^(−e^y)(1 − e^gap), and the gap
        # k (log φ(t) + t) − t r is had without cancellation, since E(W − 1) = 0.
        t = np.exp(low)[:, None] / k  # (b, 1)
        x = -t * (w - 1)  # (b, J)
        curved = np.where(np.abs(x) < 0.02, _expm1_minus(x), np.expm1(x) - x) @ pi
        gap = k * np.log1p(curved)[:, None] - t * r
        near = -np.exp(-t[:, 0] * k) * (np.expm1(gap) @ m)
        t = np.exp(high)[:, None] / k
        laplace = np.exp(-t * w) @ pi  # (b,), φ(t)
        log_laplace = np.where(
            laplace < 0.5, np.log(laplace), np.log1p(np.maximum(np.expm1(-t * w) @ pi, -0.9))
        )
        far = np.exp(-t[:, 0] * k) - np.exp(k * log_laplace[:, None] - t * r) @ m
        return float(near.sum() + far.sum()) * _STEP


def _normal(weights: FloatArray) -> FloatArray:
    return np.asarray(weights / weights.sum())


def _expm1_minus(x: FloatArray) -> FloatArray:
    """e^x − 1 − x for small x."""
    return np.asarray(x * x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x / 5040))))))

"""Known laws for simulation, number oracles and a small sample of pairs."""

import json

import numpy as np
import pytest

from latentlink.risk import ExactWorld


@pytest.fixture(scope="module")
def theory(oracles):
    return json.loads((oracles / "theory_oracle.json").read_text())


@pytest.fixture
def pairs(rng):
    """Two hundred noisy pairs and a pool of a thousand, in 16 dimensions."""
    items, pool = rng.normal(size=(200, 16)), rng.normal(size=(1000, 16))
    return items + 0.5 * rng.normal(size=items.shape), items, pool


class Discrete:
    """Finitely many candidates with a law; queries at the same points, or at points of their own."""

    def __init__(self, points, law, positives, queries=None, query_law=None):
        self.points, self.law, self.positives = (np.asarray(a, dtype=float) for a in (points, law, positives))
        self.queries = self.points if queries is None else queries
        self.query_law = self.law if query_law is None else query_law
        self.cumulative = self.positives.cumsum(axis=1)

    def pairs(self, rng, n):
        query = rng.choice(self.query_law.size, size=n, p=self.query_law)
        positive = (rng.random(n)[:, None] > self.cumulative[query]).sum(axis=1)
        return self.queries[query], self.points[np.minimum(positive, self.law.size - 1)]

    def pool(self, rng, *shape):
        return self.points[rng.choice(self.law.size, size=shape, p=self.law)]

    def truth(self, temperature, negatives="pool"):
        points, law = {
            "pool": (self.points, self.law),
            "queries": (self.queries, self.query_law),
            "positives": (self.points, self.query_law @ self.positives),
        }[negatives]
        similarities = self.queries @ points.T
        surprise = (
            np.log(np.exp(similarities / temperature) @ law)[:, None]
            - self.queries @ self.points.T / temperature
        )
        return float(self.query_law @ (self.positives * surprise).sum(axis=1))


class Sphere:
    """Uniform on S², positives by von Mises and Fisher."""

    def __init__(self, concentration):
        self.concentration = concentration

    def pairs(self, rng, n):
        x = self.pool(rng, n)
        u = rng.random(n)
        c = 1 + np.log(u + (1 - u) * np.exp(-2 * self.concentration)) / self.concentration
        side = np.cross(x, self.pool(rng, n))
        side /= np.linalg.norm(side, axis=1, keepdims=True)
        return x, c[:, None] * x + np.sqrt(1 - c**2)[:, None] * side

    def pool(self, rng, *shape):
        x = rng.normal(size=(*shape, 3))
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def truth(self, temperature, negatives="pool"):
        return ExactWorld.sphere(3, temperature, self.concentration).cross_entropy  # both sides are uniform


def ring(height, count):
    """Evenly spaced points of a circle of latitude."""
    angle = np.arange(count) * 2 * np.pi / count
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), np.full(count, height)], axis=1)


def hubs():
    """Queries around a pole; one candidate in ten sits on it, near to every query, the others far away."""
    points = np.concatenate([[[0.0, 0.0, 1.0]], ring(0.2, 6), ring(-0.5, 3)])
    law = np.array([0.1] + [0.08] * 6 + [0.14] * 3)
    queries = ring(0.85, 6)
    positives = np.concatenate([np.full((6, 1), 0.5), 0.4 * np.eye(6) + 0.1 / 6, np.zeros((6, 3))], axis=1)
    return Discrete(points, law, positives, queries, np.full(6, 1 / 6))


@pytest.fixture
def law_of(theory):
    """A function from a name to one of three known laws: a finite one, a sphere, and one with hubs."""
    case = theory["discrete"][0]
    laws = {
        "circle": lambda: Discrete(case["X"], case["pi"], case["M"]),
        "sphere": lambda: Sphere(10.0),
        "hubs": hubs,
    }
    return lambda name: laws[name]()

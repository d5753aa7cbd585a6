"""Plain, slow versions of hot functions: the first oracle of each. Ten lines a function, no cleverness."""

import math


def nearest_labels(train, labels, query, k):
    """Labels of the k training rows of largest cosine with the query, nearest first."""
    cosines = [float(row @ query) / float((row @ row) ** 0.5 * (query @ query) ** 0.5) for row in train]
    order = sorted(range(len(train)), key=lambda i: -cosines[i])[:k]
    return [labels[i] for i in order]


def knn_label(train, labels, query, k, temperature):
    """The label of the largest sum of exp(cosine / temperature) over the k nearest."""
    votes = {}
    for label, row in zip(nearest_labels(train, labels, query, k), nearest_rows(train, query, k), strict=True):
        cosine = float(row @ query) / float((row @ row) ** 0.5 * (query @ query) ** 0.5)
        votes[label] = votes.get(label, 0.0) + 2.718281828459045 ** (cosine / temperature)
    return max(sorted(votes), key=votes.get)


def nearest_rows(train, query, k):
    """The k training rows of largest cosine with the query, nearest first."""
    return nearest_labels(train, train, query, k)


def retrieval_of_one(similarities, gains, k):
    """(hit, recall, nDCG at k, 1 / rank) of one query by a full sort, the worse item first among equals."""
    order = sorted(range(len(gains)), key=lambda i: (-similarities[i], gains[i]))
    found = [gains[i] for i in order]
    ideal = sorted(gains, reverse=True)
    dcg, best = (sum(g / math.log2(place + 2) for place, g in enumerate(x[:k])) for x in (found, ideal))
    first = next(place for place, g in enumerate(found) if g > 0)
    n_found = sum(g > 0 for g in found[:k])
    return float(n_found > 0), n_found / sum(g > 0 for g in gains), dcg / best, 1 / (first + 1)


def nt_xent_slow(z0, z1, temperature):
    """NT-Xent by its definition, one view at a time; NumPy float64."""
    import numpy as np

    z = np.concatenate([z0, z1]).astype(float)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    logits = z @ z.T / temperature
    n = len(z0)
    others = [[j for j in range(2 * n) if j != i] for i in range(2 * n)]
    totals = [np.logaddexp.reduce(logits[i, others[i]]) for i in range(2 * n)]
    return np.array([totals[i] - logits[i, (i + n) % (2 * n)] for i in range(2 * n)])


def info_nce_slow(queries, positives, temperature):
    """One-way InfoNCE by its definition; NumPy float64."""
    import numpy as np

    q = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    p = positives / np.linalg.norm(positives, axis=1, keepdims=True)
    logits = q.astype(float) @ p.astype(float).T / temperature
    return np.logaddexp.reduce(logits, axis=1) - np.diagonal(logits)

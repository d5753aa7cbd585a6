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


def pareto_negative_log_likelihood(y, sigma, xi):
    """Of excesses y under the generalised Pareto law, by its formula."""
    import math

    if xi == 0:
        return sum(math.log(sigma) + value / sigma for value in y)
    return sum(math.log(sigma) + (1 + 1 / xi) * math.log1p(xi * value / sigma) for value in y)


def zhang_stephens(y):
    """Shape and scale by Zhang and Stephens 2009, one loop a sum."""
    import math

    y, n = sorted(y), len(y)
    m = 20 + int(n**0.5)
    quartile = y[int(n / 4 + 0.5) - 1]
    thetas = [1 / y[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * quartile) for j in range(1, m + 1)]
    xis = [sum(math.log(1 - theta * value) for value in y) / n for theta in thetas]
    heights = [n * (math.log(-theta / xi) - xi - 1) for theta, xi in zip(thetas, xis, strict=True)]
    weights = [math.exp(height - max(heights)) for height in heights]
    theta = sum(w * t for w, t in zip(weights, thetas, strict=True)) / sum(weights)
    xi = sum(math.log(1 - theta * value) for value in y) / n
    return xi, -xi / theta


def largest_similarities(embeddings, tail_size):
    """The tail of each row of unit vectors against all others: values and threshold, by full sorts."""
    values, thresholds = [], []
    for i, query in enumerate(embeddings):
        others = sorted((float(query @ x) for j, x in enumerate(embeddings) if j != i), reverse=True)
        values.append(others[:tail_size])
        thresholds.append(others[tail_size])
    return values, thresholds


def jackknife_surprise(positive, negatives):
    """The surprise −l⁺ + log mean exp(l) of one positive, freed of its 1/k bias by leaving one out at a time."""

    def surprise(logits):
        return -positive + math.log(sum(math.exp(value) for value in logits) / len(logits))

    k = len(negatives)
    without = [surprise([*negatives[:j], *negatives[j + 1 :]]) for j in range(k)]
    return k * surprise(negatives) - (k - 1) * sum(without) / k

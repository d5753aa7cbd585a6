"""Trials on the seven text encoders that real_spaces.py writes to its page, and what they share."""

import itertools
from functools import partial

import numpy as np

from latentlink.losses import WEINCELoss
from latentlink.spaces import RelativeSpace, fit_cca
from latentlink.spaces.anchors import farthest_anchors, gcca_anchors, kmeans_anchors, random_anchors
from latentlink.spaces.learned import learn_anchors
from latentlink.spaces.mixtures import learn_mixtures
from latentlink.whitening import Whitener

TEXT = ("minilm", "use", "e5", "wordllama", "glove50", "tokenlearn64", "mpnet")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def text(data):
    z = np.load(data / "embeddings" / "stsb_pool3000.npz")
    return {name: z[name].astype(np.float32) for name in TEXT}


def spread(values):
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def ablation_seven(data):
    """As `ablation`, over all seven encoders and 42 ordered pairs; PARAM single learns on the first, MiniLM."""
    spaces = text(data)
    fit = {name: x[:2000] for name, x in spaces.items()}
    test = {name: x[2000:] for name, x in spaces.items()}
    frames = [Whitener().fit(x).transform(x.astype(np.float64)) for x in fit.values()]
    single = {"contrast": 0, "coverage": 1, "orthogonality": 1, "length": 1}
    made = {
        "random": lambda: random_anchors(2000, 256).toarray(),
        "k-means": lambda: kmeans_anchors(frames, 256).toarray(),
        "PARAM single (MiniLM)": lambda: learn_mixtures(frames[:1], 256, **single).weights.toarray(),
        "PARAM multi": lambda: learn_anchors(frames, 256).weights,
        "closed form": lambda: gcca_anchors(frames, 256),
    }
    rows = []
    for label, make in made.items():
        weights = make()
        row = [label]
        for similarity in ("cosine", "whitened", "wip"):
            row.append(RelativeSpace(256, weights, similarity).fit(fit).evaluate(test).mean("space"))
        rows.append(row)
        print(*row, flush=True)
    return table(["anchors", "cosine", "whitened cosine", "WIP"], rows)


def gaps(data):
    """Take items away from each encoder at random: the overlap of any two against the join of all."""
    spaces = text(data)
    test = {name: x[2000:] for name, x in spaces.items()}
    rows = []
    for share, draws in ((0.3, 2), (0.5, 1)):
        found = {"overlap": [], "joined": [], "pairs": []}
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            ids = {name: np.sort(rng.permutation(2000)[: round(2000 * (1 - share))]) for name in TEXT}
            fit = {name: x[ids[name]] for name, x in spaces.items()}
            overlap = RelativeSpace().fit(fit, ids=ids)
            found["overlap"].append(overlap.evaluate(test).mean("space"))
            common = len(set.intersection(*(set(i.tolist()) for i in ids.values())))
            joined = RelativeSpace(min(256, common - 1)).fit(fit, ids=ids, seen_by="all")
            found["joined"].append(joined.evaluate(test).mean("space"))
            found["pairs"].append(pairwise(spaces, ids))
        rows.append((f"{share:.0%}", overlap.ids_.size, common, *(spread(values) for values in found.values())))
        print(*rows[-1], flush=True)
    head = ["items taken from each", "items seen by two or more", "by all", "gcca on both", "gcca on the join"]
    return table([*head, "CCA, each pair on its own common items"], rows)


def pairwise(spaces, ids):
    """Mean R@1 of CCA fitted for each pair on the items that these two have seen."""
    recalls = []
    for first, second in itertools.combinations(TEXT, 2):
        both = np.intersect1d(ids[first], ids[second])
        maps = fit_cca(spaces[first][both], spaces[second][both], n_components=256)
        r, s = (
            v / np.linalg.norm(v, axis=1, keepdims=True)
            for v in (maps[0](spaces[first][2000:]), maps[1](spaces[second][2000:]))
        )
        similarities = r @ s.T
        recalls += [(similarities.argmax(axis) == np.arange(1000)).mean() for axis in (0, 1)]
    return float(np.mean(recalls))


def support(data):
    """Choose 500 of the 2,000 fitted items as the support; nothing is chosen by held-out rows."""
    spaces = text(data)
    fit = {name: x[:2000].astype(np.float64) for name, x in spaces.items()}
    test = {name: x[2000:] for name, x in spaces.items()}
    frames = [Whitener().fit(x).transform(x) for x in fit.values()]
    together = np.hstack([z / np.sqrt(z.shape[1]) for z in frames])

    def score(rows):
        return RelativeSpace().fit({name: x[rows] for name, x in fit.items()}).evaluate(test).mean("space")

    def grown(seed, hard):
        rows = np.random.default_rng(seed).permutation(2000)[:300]
        for _ in range(4):
            space = RelativeSpace().fit({name: x[rows] for name, x in fit.items()})
            rest = np.setdiff1d(np.arange(2000), rows)
            r = [space.encode(x[rest], source=name) for name, x in fit.items()]
            r = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in r]
            agreement = sum((a * b).sum(axis=1) for a, b in itertools.combinations(r, 2))
            rows = np.concatenate([rows, rest[np.argsort(agreement if hard else -agreement)[:50]]])
        return score(rows)

    seeds = range(2)
    rows = [
        ("random", spread([score(np.random.default_rng(s).permutation(2000)[:500]) for s in seeds])),
        ("farthest points", spread([score(farthest_anchors(frames, 500, seed=s).indices) for s in seeds])),
        ("longest in the whitened frames", spread([score(np.argsort(-(together**2).sum(axis=1))[:500])])),
        ("shortest", spread([score(np.argsort((together**2).sum(axis=1))[:500])])),
        ("300 random, then 4 x 50 on which the space agrees least", spread([grown(s, True) for s in seeds])),
        ("300 random, then 4 x 50 on which it agrees most", spread([grown(s, False) for s in seeds])),
        ("all 2,000", spread([score(np.arange(2000))])),
    ]
    return table(["support of 500", "R@1"], rows)


def curved(data):
    """Add random Fourier features to each whitened encoder: the inner product is then a kernel's.

    Width and weight are chosen on the last 400 fitted rows, after a fit on the first 1,600.
    """
    spaces = {name: x.astype(np.float64) for name, x in text(data).items()}

    def features(z, width, weight, seed):
        rng = np.random.default_rng(seed)
        omega = rng.normal(size=(z.shape[1], 256)) / (width * np.sqrt(z.shape[1]))
        waves = np.sqrt(2) * np.cos(z @ omega + rng.uniform(0, 2 * np.pi, 256))
        return np.hstack([z, weight * waves])

    def score(n_fit, rows, width, weight):
        views = {}
        for number, (name, x) in enumerate(spaces.items()):
            whitener = Whitener().fit(x[:n_fit])
            z = whitener.transform(x)
            views[name] = z if weight == 0 else features(z, width, weight, number)
        space = RelativeSpace().fit({name: v[:n_fit] for name, v in views.items()})
        return space.evaluate({name: v[rows] for name, v in views.items()}).mean("space")

    inner, held = np.arange(1600, 2000), np.arange(2000, 3000)
    tried = {(w, 1.0): score(1600, inner, w, 1.0) for w in (1.0, 2.0)}
    best = max(tried, key=tried.get)
    rows = [("WIP, linear", score(1600, inner, 0, 0), score(2000, held, 0, 0))]
    rows += [
        (f"with Fourier features of width {key[0]:g}", value, score(2000, held, *key) if key == best else "-")
        for key, value in tried.items()
    ]
    return table(["similarity", "R@1 on 400 fitted rows left out", "R@1 held out"], rows)


def param(data):
    """PARAM on four of the encoders: starts, losses, and rows of few items, started from the dense weights."""
    spaces = {name: text(data)[name] for name in ("minilm", "use", "e5", "glove50")}
    fit = {name: x[:2000] for name, x in spaces.items()}
    test = {name: x[2000:] for name, x in spaces.items()}
    frames = [Whitener().fit(x).transform(x.astype(np.float64)) for x in fit.values()]
    dense = learn_anchors(frames, 256).weights
    made = [
        ("closed form", lambda: gcca_anchors(frames, 256)),
        ("PARAM from random", lambda: dense),
        ("PARAM from k-means", lambda: learn_anchors(frames, 256, start="kmeans").weights),
        ("PARAM, WEINCE, sound gate", lambda: learn_anchors(frames, 256, loss="weince").weights),
        (
            "PARAM, WEINCE, the paper's gate",
            lambda: learn_anchors(frames, 256, loss="weince", gate=WEINCELoss.paper().gate).weights,
        ),
    ]
    for s in (16, 64, 256, 1024):
        made.append((f"rows of {s} items, cut", partial(_mixed, frames, dense, s, 0)))
        made.append((f"rows of {s} items, learned", partial(_mixed, frames, dense, s, 30)))
    rows = []
    for label, make in made:
        space = RelativeSpace(256, make()).fit(fit)
        rows.append((label, space.evaluate(test).mean("space"), space.evaluate(test, csls=fit).mean("space")))
        print(*rows[-1], flush=True)
    return table(["anchors, four encoders", "R@1", "with CSLS"], rows)


def _mixed(frames, start, n_items, steps):
    options = {"learning_rate": 0.1, "temperature": 0.03}
    return learn_mixtures(frames, 256, n_items=n_items, start=start, steps=steps, **options).weights.toarray()

"""Shared spaces on real encoders: writes docs/real-spaces.md from the data folder given as argument.

python benchmarks/real_spaces.py DATA [SECTION …]
"""

import itertools
import sys
import time
from pathlib import Path

import numpy as np
from _space_trials import ablation_seven, curved, gaps, param, spread, support, table, text

from latentlink.spaces import (
    Head,
    RelativeSpace,
    audit,
    compare_maps,
    doctor,
    foreign_rows,
    learning_curve,
)
from latentlink.spaces.anchors import gcca_anchors, kmeans_anchors, random_anchors
from latentlink.spaces.learned import learn_anchors
from latentlink.spaces.mixtures import learn_mixtures
from latentlink.spaces.stitch import macro_f1
from latentlink.whitening import Whitener

# CIFAR-100: the coarse class of each fine class, in alphabetical order of the fine names.
_COARSE = (
    "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 "
    "15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 "
    "19 5 5 8 19 18 1 2 15 6 0 17 8 14 13"
)
COARSE = np.array([int(label) for label in _COARSE.split()])


def seven(data):
    spaces, held = text(data), np.arange(2000, 3000)
    plain = compare_maps(spaces, holdout=held)
    csls = compare_maps(spaces, holdout=held, csls=True, methods=["gcca", "cca"])
    rows = []
    for method in sorted(plain.methods, key=plain.mean, reverse=True):
        values = [s.recall_at_1 for s in plain.scores if s.method == method]
        rows.append(
            (
                method,
                plain.mean(method),
                min(values),
                max(values),
                plain.mean(method, metric="recall_at_10"),
                plain.mean(method, metric="mrr"),
                csls.mean(method) if method in csls.methods else "-",
                f"{plain.seconds(method):.1f}",
            )
        )
    head = ["method", "R@1", "worst pair", "best pair", "R@10", "MRR", "R@1 with CSLS", "CPU s"]
    return table(head, rows)


def ablation(data):
    """Every row's weights are chosen once, on whitened vectors, and used with each similarity."""
    spaces = {name: text(data)[name] for name in ("minilm", "use", "e5")}
    fit = {name: x[:2000] for name, x in spaces.items()}
    test = {name: x[2000:] for name, x in spaces.items()}
    frames = [Whitener().fit(x).transform(x.astype(np.float64)) for x in fit.values()]
    made = (
        ("random", random_anchors(2000, 256).toarray()),
        ("k-means", kmeans_anchors(frames, 256).toarray()),
        (
            "PARAM single (MiniLM)",
            learn_mixtures(
                frames[:1], 256, contrast=0, coverage=1, orthogonality=1, length=1
            ).weights.toarray(),
        ),
        ("PARAM multi, from k-means", learn_anchors(frames, 256, start="kmeans").weights),
        ("PARAM multi, from random", learn_anchors(frames, 256).weights),
        ("PARAM multi, from the closed form", learn_anchors(frames, 256, start="gcca").weights),
        ("PARAM multi, softmax rows, from k-means", learn_mixtures(frames, 256).weights.toarray()),
        ("closed form", gcca_anchors(frames, 256)),
    )
    columns = (("cosine", "none"), ("whitened", "none"), ("wip", "none"), ("wip", "gram"))
    rows = []
    for label, weights in made:
        fitted = (RelativeSpace(256, weights, *column).fit(fit) for column in columns)
        rows.append([label, *(space.evaluate(test).mean("space") for space in fitted)])
    return table(["anchors", "cosine", "whitened cosine", "WIP", "WIP, gram"], rows)


def sizes(data):
    spaces = text(data)
    rows = []
    held = np.arange(2000, 3000)
    for n in (100, 250, 500, 1000, 2000):
        row = [n]
        for k in (50, 100, 200, 400, 600):
            (result,) = learning_curve(spaces, sizes=[n], holdout=held, methods=["gcca"], n_anchors=k)
            row.append("-" if result.notes else result.mean("gcca"))
        rows.append(row)
    return table(["fitted pairs", *(f"{k} anchors" for k in (50, 100, 200, 400, 600))], rows)


def languages(data):
    spaces = text(data)
    z = np.load(data / "embeddings" / "multi30k_test2016.npz")
    fit = {name: spaces[name][:3000] for name in ("minilm", "use", "e5")}
    english = z["minilm_en"].astype(np.float32)
    rows = []
    for label, shrinkage in (("automatic", "auto"), ("0.2", 0.2)):
        space = RelativeSpace(shrinkage=shrinkage).fit(fit)
        for source, language in itertools.product(("use", "e5"), ("en", "de", "fr")):
            x = z[f"{source}_{language}"].astype(np.float32)
            row = [label, source, language]
            for fitted in (None, {name: x[:2000] for name, x in fit.items()}):
                test = {source: x, "minilm": english}
                result = space.evaluate(test, csls=fitted)
                row.append(result.of("space", source, "minilm").recall_at_1)
            rows.append(row)
    return table(["shrinkage", "query encoder", "language", "R@1 to MiniLM English", "with CSLS"], rows)


def tatoeba(data):
    z = np.load(data / "embeddings" / "tatoeba_demo.npz")
    names = ("minilm", "use", "e5", "glove50")
    rows = []
    truth = np.arange(2000, 2400)
    german, english = z["e5_de"].astype(np.float32), z["minilm"].astype(np.float32)
    for label, keep, shrinkage in (
        ("four encoders, automatic", names, "auto"),
        ("four encoders, 0.2", names, 0.2),
        ("without GloVe, automatic", names[:3], "auto"),
        ("without GloVe, 0.2", names[:3], 0.2),
    ):
        fit = {name: z[name][:1600].astype(np.float32) for name in keep}
        space = RelativeSpace(shrinkage=shrinkage).fit(fit)
        unit = [
            r / np.linalg.norm(r, axis=1, keepdims=True)
            for r in (
                space.encode(german, source="e5"),
                space.encode(english, source="minilm"),
                space.encode(fit["e5"], source="e5"),
            )
        ]
        similarities = unit[0] @ unit[1].T
        hubness = np.sort(unit[1] @ unit[2].T, axis=1)[:, -10:].mean(axis=1)
        rows.append(
            (
                label,
                float((similarities.argmax(1) == truth).mean()),
                float(((2 * similarities - hubness).argmax(1) == truth).mean()),
            )
        )
    return table(["space, shrinkage", "R@1 of 2,400", "with CSLS"], rows)


def retrieval(data):
    z = np.load(data / "embeddings" / "cifar100_effnetlite.npz")
    x = {name: z[name].astype(np.float32) for name in ("lite0", "lite2")}
    held = np.flatnonzero(~z["is_train"])
    result = compare_maps(x, holdout=held)
    return table(
        ["method", "Lite0 to Lite2", "Lite2 to Lite0"],
        [
            (m, result.of(m, "lite0", "lite2").recall_at_1, result.of(m, "lite2", "lite0").recall_at_1)
            for m in sorted(result.methods, key=result.mean, reverse=True)
        ],
    )


def stitching(data):
    """Heads never see a test image: `Head` picks its strength on a held-out fifth of the fitted rows."""
    z = np.load(data / "embeddings" / "cifar100_effnetlite.npz")
    x = {name: z[name].astype(np.float32) for name in ("lite0", "lite2")}
    levels = {"coarse, 20": COARSE[z["y"]], "fine, 100": z["y"].astype(int)}
    found = {}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        order = np.argsort(z["y"] + rng.random(z["y"].size), kind="stable").reshape(100, 30)
        train, test = order[:, :20].ravel(), order[:, 20:].ravel()
        fit = {name: v[train] for name, v in x.items()}
        own = {}
        for (level, labels), (name, v) in itertools.product(levels.items(), x.items()):
            head = Head(scaling="each", seed=seed).fit(fit[name], labels[train])
            own[level, name] = macro_f1(labels[test], head.predict(v[test]))
        # The rivals are slow to fit for what they say: one split.
        for anchors, similarity in (("gcca", "wip"), ("kmeans", "wip"), ("random", "cosine"))[
            : 1 if seed else 3
        ]:
            space = RelativeSpace(256, anchors, similarity, seed=seed).fit(fit)
            for (level, labels), (source, target) in itertools.product(
                levels.items(), itertools.permutations(x)
            ):
                head = Head(seed=seed).fit(space.encode(fit[source], source=source), labels[train])
                score = macro_f1(labels[test], head.predict(space.encode(x[target][test], source=target)))
                lower = min(own[level, name] for name in x)
                row = (own[level, source], own[level, target], score, score - lower)
                key = (level, f"{anchors}, {similarity}", f"{source} to {target}")
                found.setdefault(key, []).append(row)
                print(seed, *key, *row, flush=True)
    rows = [(*key, *map(spread, zip(*values, strict=True))) for key, values in found.items()]
    head = ["classes", "space", "head from, used with", "source's own F1", "target's own F1", "stitched F1"]
    return table([*head, "less the lower own"], sorted(rows, key=lambda row: row[0]))


def foreign(data):
    spaces = text(data)
    fit = {name: x[:2000] for name, x in spaces.items()}
    space = RelativeSpace().fit(fit)
    rng = np.random.default_rng(0)
    rows = []
    for name, x in spaces.items():
        home = x[2000:]
        d = home.shape[1]
        same = [n for n, v in spaces.items() if n != name and v.shape[1] == d]
        other = foreign_rows(space, spaces[same[0]][2000:], source=name).mean() if same else None
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)
        rows.append(
            (
                name,
                float(foreign_rows(space, home, source=name).mean()),
                f"{other:.3f} ({same[0]})" if same else "-",
                float(foreign_rows(space, home[:, rng.permutation(d)], source=name).mean()),
                float(foreign_rows(space, home @ turn, source=name).mean()),
                float(foreign_rows(space, -home, source=name).mean()),
                doctor(space, home, source=name).verdict,
                str(audit(home, space=space, source=name).foreign_rows.size),
            )
        )
    head = [
        "encoder",
        "home, held out",
        "other encoder",
        "permuted",
        "rotated",
        "sign-flipped",
        "doctor on home",
        "foreign of 1,000",
    ]
    return table(head, rows)


SECTIONS = {
    make.__name__: make
    for make in (
        seven,
        param,
        sizes,
        gaps,
        tatoeba,
        languages,
        foreign,
        retrieval,
        stitching,
        ablation,
        ablation_seven,
        support,
        curved,
    )
}


def replace(name, made):
    """Put a table between the marks of its section of the page."""
    page = Path(__file__).parents[1] / "docs" / "real-spaces.md"
    before, rest = page.read_text(encoding="utf-8").split(f"<!-- {name} -->\n")
    after = rest.partition("<!-- end -->")[2]
    page.write_text(f"{before}<!-- {name} -->\n{made}<!-- end -->{after}", encoding="utf-8")


def main():
    data = Path(sys.argv[1])
    for name in sys.argv[2:] or SECTIONS:
        started = time.process_time()
        replace(name, SECTIONS[name](data))
        print(f"{name}: {time.process_time() - started:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()

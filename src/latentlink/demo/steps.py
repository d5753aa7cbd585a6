"""The five jobs of the demo. Each is what a user would write, plus the words and tables around it."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

import latentlink as ll
from latentlink._metrics import bootstrap_interval, proportion_interval
from latentlink.demo import digits, figures
from latentlink.demo.part import Part, brief_percent, percent
from latentlink.demo.sentences import FIRST_GERMAN_ROW, FIT_ROWS, Sentences
from latentlink.report.page import Table

TEMPERATURE = 0.1
STRONG = ("minilm", "use", "e5")
METHODS = ("random-cosine", "param-wip", "gcca", "ridge", "procrustes", "cca", "shuffled")
SEEDS = (0, 1, 2)


def diagnose(data: Sentences) -> Part:
    """Say for each encoder which tail its similarities have, and which link its choices ask for."""
    rows, record, fits = [], {}, {}
    for name, x in data.english_by.items():
        tail = ll.take_tail(x, tail_size=64)
        fits[name] = ll.fit_tail(tail, estimator="zhang_stephens")
        held, free, verdict = ll.fit_tail(tail).summary(), fits[name].summary(), ll.judge(tail)
        rows.append(
            [
                name,
                _shape(free),
                _shape(held),
                f"{held.lid:.0f}",
                verdict.call,
                f"{verdict.shares.bounded:.0%} ({verdict.normal.bounded:.0%})",
                f"{verdict.shares.heavy:.0%} ({verdict.normal.heavy:.0%})",
            ]
        )
        record[name] = {
            "xi": free.xi,
            "xi_interval": free.xi_interval,
            "xi_end_at_1": held.xi,
            "xi_end_at_1_interval": held.xi_interval,
            "beta": held.beta,
            "lid": held.lid,
            "verdict": verdict.call,
            "bounded_share": verdict.shares.bounded,
            "bounded_share_of_normal_similarities": verdict.normal.bounded,
            "heavy_share": verdict.shares.heavy,
        }
    head = ["encoder", "xi, end free (95 %)", "xi, end at 1 (95 %)", "dimension", "verdict", "bounded", "heavy"]
    choices, links = _chosen_links(data)
    return Part(
        "Diagnose: the upper tail of the similarities, and the link it asks for",
        "xi is the shape of the tail of the 64 most similar other sentences of each of 2,400: below 0 it ends, 0 "
        "is exponential, above 0 heavy. With the end held at 1 it is negative by construction and tells the local "
        "dimension, −2 / xi; with the end free it tells whether there is an end within reach. In brackets behind "
        "the shares of bounded and heavy queries: what the same exact test calls similarities that are normal.\n\n"
        "The second table asks the choices themselves: each German sentence picks its English translation among "
        "400; the link is fitted by maximum likelihood. A blend of 0 is softmax, 1 is the shortfall link.",
        {"tails": record, "links": links},
        [Table(head, rows), choices],
        [figures.tails(fits)],
    )


def _shape(summary: Any) -> str:
    return f"{summary.xi:+.3f} ({summary.xi_interval.low:+.3f} to {summary.xi_interval.high:+.3f})"


def _chosen_links(data: Sentences) -> tuple[Table, dict[str, Any]]:
    rows, record = [], {}
    for name, german in data.german_by.items():
        similarities = ll.cosine(german, data.english_by[name][FIRST_GERMAN_ROW:])
        choice = ll.choose_link(similarities, np.arange(len(german)))
        low, high = choice.interval("blend")
        rows.append(
            [
                name,
                f"{choice.blend:.2f} ({low:.2f} to {high:.2f})",
                choice.preferred,
                f"{choice.temperature:.4f}",
                f"{choice.softmax_temperature:.4f}",
                f"{choice.against_softmax.p:.2g}",
                f"{choice.against_shortfall.p:.2g}",
            ]
        )
        record[name] = {
            "blend": choice.blend,
            "blend_interval": (low, high),
            "preferred": choice.preferred,
            "temperature": choice.temperature,
            "softmax_temperature": choice.softmax_temperature,
            "p_against_softmax": choice.against_softmax.p,
            "p_against_shortfall": choice.against_shortfall.p,
        }
    head = ["encoder", "blend (95 %)", "preferred", "temperature", "of softmax", "p: softmax", "p: shortfall"]
    return Table(head, rows), record


def certify(data: Sentences) -> Part:
    """Certify how well USE finds the English translation of an unseen German sentence."""
    queries = data.german_by["use"]
    positives = data.english_by["use"][FIRST_GERMAN_ROW:]
    pool = data.english_by["use"][:FIRST_GERMAN_ROW]
    certificate = ll.certify(queries, positives, pool, temperature=TEMPERATURE)
    low, high = certificate.interval(0.95)
    needed = ll.negatives_needed(queries, positives, pool, temperature=TEMPERATURE, tolerance=0.01)
    needed_outside = ll.negatives_needed(
        queries, positives, pool, temperature=TEMPERATURE, tolerance=0.01, variant="outside"
    )
    first, tenth = (certificate.recall_interval(k) for k in (1, 10))
    return Part(
        "Certify: how well USE finds the English translation of an unseen German sentence",
        f"Cross-entropy of the search, debiased to infinitely many negatives, at temperature {TEMPERATURE}: "
        f"{certificate.cross_entropy:.3f} nats, 95 % interval [{low:.3f}, {high:.3f}] (0 is an encoder that tells "
        f"nothing apart; lower is better). The loss with {certificate.n_negatives:,} negatives is "
        f"{certificate.risk_at_k:.3f}, of which log(k + 1) and a bias of {certificate.bias:+.3f} are owed to the "
        f"number of negatives. Recall among {certificate.n_negatives + 1:,} unseen sentences: at 1 "
        f"{percent(certificate.recall_at_1, first)} %, at 10 {percent(certificate.recall_at_10, tenth)} %.\n\n"
        f"Negatives needed to be within 0.01 nat of the limit: {int(needed):,} with the positive in the "
        f"denominator (InfoNCE), {int(needed_outside):,} with it outside.\n\n"
        f"Verdict: {certificate.verdict}. {certificate.advice}",
        {
            "cross_entropy": certificate.cross_entropy,
            "interval": (low, high),
            "risk_at_k": certificate.risk_at_k,
            "bias": certificate.bias,
            "negatives_needed": int(needed),
            "negatives_needed_positive_outside": int(needed_outside),
            "recall_at_1": certificate.recall_at_1,
            "recall_at_10": certificate.recall_at_10,
            "verdict": certificate.verdict,
        },
    )


def align(data: Sentences) -> Part:
    """Fit every map on 1,600 sentences and search among the 800 others, for every ordered pair of encoders."""
    result = ll.compare_maps(
        data.english_by, holdout=np.arange(FIT_ROWS, len(data.english)), methods=METHODS, n_anchors=256
    )
    pairs = list(dict.fromkeys((score.source, score.target) for score in result.scores))
    tables = []
    for metric, caption in [("recall_at_1", "R@1"), ("recall_at_10", "R@10")]:
        rows = []
        for source, target in pairs:
            scores = [result.of(method, source, target) for method in result.methods]
            cells = [brief_percent(getattr(s, metric), getattr(s, f"{metric}_interval")) for s in scores]
            rows.append([f"{source} → {target}", *cells])
        means = [f"{100 * result.mean(method, metric=metric):.1f}" for method in result.methods]
        strong = [f"{100 * result.mean(method, names=STRONG, metric=metric):.1f}" for method in result.methods]
        rows += [["mean", *means], ["mean, strong", *strong]]
        caption = f"{caption} in per cent (95 % interval) among 800 held-out sentences"
        tables.append(Table(["from → to", *result.methods], rows, caption))
    strong_mean = {method: result.mean(method, names=STRONG) for method in result.methods}
    record: dict[str, Any] = {
        "strong_mean_recall_at_1": strong_mean["gcca"],
        "param_strong_mean_recall_at_1": strong_mean.get("param-wip"),
        "shuffled_recall_at_1": result.mean("shuffled"),
        "mean_recall_at_1": {method: result.mean(method) for method in result.methods},
        "cpu_seconds": {method: result.seconds(method) for method in result.methods},
        "pairs": result.to_dict()["scores"],
        "notes": result.notes,
    }
    seconds = ", ".join(f"{method} {result.seconds(method):.1f}" for method in result.methods)
    return Part(
        "Align: four encoders in one space, every ordered pair, beside every rival",
        f"Fitted on {result.n_fit:,} sentences, searched among the other {result.n_held_out}. gcca and param-wip "
        "fit one space for all four encoders; ridge, procrustes and cca fit one map for each pair. random-cosine "
        "is the baseline of the paper; shuffled is the closed form fitted on broken pairs and must be at chance "
        f"(0.1 %). Strong are minilm, use and e5. CPU seconds of all fits: {seconds}."
        + "".join(f"\n\nNote: {note}." for note in result.notes),
        record,
        tables,
        [figures.recalls(result, STRONG)],
    )


def search(data: Sentences) -> Part:
    """Search an index of an English-only encoder with English and German queries of another encoder."""
    plain = _index(data, ll.RelativeSpace(n_anchors=256).fit(_fitted(data)))
    settings, chosen = _for_german(data)
    truth = data.english[FIRST_GERMAN_ROW:]
    asked = {
        "English by e5": (plain, data.english_by["e5"][FIRST_GERMAN_ROW:]),
        "German by e5, default settings": (plain, data.german_by["e5"]),
        "German by e5": (chosen, data.german_by["e5"]),
    }
    record: dict[str, Any] = dict(settings)
    rows = []
    for label, (index, queries) in asked.items():
        similarities, found = index.search(queries, source="e5", k=10)
        hits = found == truth[:, None]
        one, ten = hits[:, 0], hits.any(axis=1)
        rows.append(
            [
                label,
                percent(one.mean(), proportion_interval(one)),
                percent(ten.mean(), proportion_interval(ten)),
            ]
        )
        record[label] = {"recall_at_1": one.mean(), "recall_at_10": ten.mean()}
    record["german_to_english_recall_at_1"] = record["German by e5"]["recall_at_1"]
    shown = [[f"{data.german[i]} → {found[i, 0]}", f"{similarities[i, 0]:.2f}"] for i in range(0, 400, 57)]
    return Part(
        "Search: German questions by e5 in an index of English sentences by MiniLM, which knows no German",
        "The FAISS index holds all 2,400 English sentences embedded by MiniLM; the queries are 400 sentences "
        "embedded by e5. The space was fitted on English sentences alone, so German queries are foreign to it: "
        f"{settings['n_anchors']} anchors and a shrinkage of {settings['shrinkage']} were chosen on "
        "German queries of USE, another encoder, and are judged here on those of e5.",
        record,
        [
            Table(["400 queries", "R@1 (95 %)", "R@10 (95 %)"], rows),
            Table(["query → first sentence found", "similarity"], shown),
        ],
    )


def _fitted(data: Sentences) -> dict[str, Any]:
    return {name: x[:FIT_ROWS] for name, x in data.english_by.items()}


def _index(data: Sentences, space: ll.RelativeSpace) -> ll.Index:
    corpus = data.english_by["minilm"]
    return ll.Index.build(corpus, space=space, source="minilm", ids=list(data.english), kind="flat")


def _for_german(data: Sentences) -> tuple[dict[str, Any], ll.Index]:
    """Choose the space in which German queries of USE find most translations: its settings, and its index."""
    truth = data.english[FIRST_GERMAN_ROW:]

    def recall(tried: tuple[dict[str, Any], ll.Index]) -> float:
        _, found = tried[1].search(data.german_by["use"], source="use", k=1)
        return float((found[:, 0] == truth).mean())

    grid: list[dict[str, Any]] = [
        {"n_anchors": k, "shrinkage": share} for k in (128, 192, 256) for share in (0.1, 0.2, 0.3, 0.4)
    ]
    tried = [(settings, _index(data, ll.RelativeSpace(**settings).fit(_fitted(data)))) for settings in grid]
    return max(tried, key=recall)


def train(epochs: int = 30) -> Part:
    """Train two small encoders on real digits, by NT-Xent and by WEINCE, and compare their features."""
    heading = "Train: NT-Xent and WEINCE on scikit-learn's digits"
    if importlib.util.find_spec("torch") is None:
        text = 'Left out: training needs torch (pip install "latentlink[torch]").'
        return Part(heading, text, {"left_out": True})
    from latentlink.evaluate import knn_accuracy, linear_probe, paired_difference
    from latentlink.losses import NTXentLoss, WEINCELoss

    images, labels = digits.load_digits()
    fit, test = slice(0, digits.TRAIN_IMAGES), slice(digits.TRAIN_IMAGES, None)
    losses = {"NT-Xent": NTXentLoss(temperature=0.5), "WEINCE": WEINCELoss(temperature=0.5)}
    hits: dict[str, dict[str, list[Any]]] = {name: {"k-NN": [], "linear probe": []} for name in losses}
    for seed in SEEDS:
        for name, loss in losses.items():
            features = digits.train_encoder(images, loss, epochs=epochs, seed=seed)
            known = features[fit], labels[fit], features[test], labels[test]
            hits[name]["k-NN"].append(knn_accuracy(*known, k=20).hits)
            hits[name]["linear probe"].append(linear_probe(*known).hits)
    rows, record = [], {}
    for judge in ("k-NN", "linear probe"):
        values = {name: np.asarray(hits[name][judge], dtype=float) for name in losses}
        difference = paired_difference(values["WEINCE"], values["NT-Xent"])
        low, high = difference.interval()
        cells = [percent(v.mean(), bootstrap_interval(v.mean(axis=0))) for v in values.values()]
        rows.append([judge, *cells, f"{100 * difference.effect:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"])
        record[judge] = {
            **{name: v.mean() for name, v in values.items()},
            "difference": difference.effect,
            "difference_interval": (low, high),
        }
    return Part(
        heading,
        f"A convolutional encoder trained without labels on {digits.TRAIN_IMAGES:,} images, judged by its frozen "
        f"features on the {len(images) - digits.TRAIN_IMAGES} others; {len(SEEDS)} seeds, equal weights and "
        "batches for both losses. The interval of the difference counts seeds and images. Whatever comes out is "
        "printed: a small study like this cannot decide between losses.",
        record,
        [Table(["accuracy, %", *losses, "WEINCE − NT-Xent (95 %)"], rows)],
    )

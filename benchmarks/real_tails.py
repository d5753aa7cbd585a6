"""What the tails of real encoders look like, and which link their positives ask for.

Reads a folder of .npz files of embeddings (see docs/real-tails.md for names and sources) and prints the tables of
that page. The script takes a few minutes of one core.

    OMP_NUM_THREADS=1 python benchmarks/real_tails.py DATA/embeddings [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from latentlink.tails import (
    choose_link,
    choose_threshold,
    endpoint_test,
    fit_tail,
    judge,
    maxima_by_size,
    positive_choices,
    take_tail,
    view_choices,
    weigh,
)

PAIRS = [
    # name, file, queries, positives: what a positive is
    ("use en-de captions", "multi30k_test2016", "use_en", "use_de"),
    ("use en-fr captions", "multi30k_test2016", "use_en", "use_fr"),
    ("e5 en-de captions", "multi30k_test2016", "e5_en", "e5_de"),
    ("e5 en-fr captions", "multi30k_test2016", "e5_en", "e5_fr"),
    ("use en-de sentences", "tatoeba_demo", "use", "use_de"),
    ("e5 en-de sentences", "tatoeba_demo", "e5", "e5_de"),
]


def encoders(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray | None]]:
    """Yield (name, embeddings (n, d), labels (n,) or None)."""
    for name in ("minilm", "mpnet", "use", "e5", "wordllama", "tokenlearn64", "glove50"):
        yield f"sentences, {name}", _read(folder, "stsb_pool3000", name), None
    file = np.load(folder / "cifar100_effnetlite.npz")
    for name in ("lite0", "lite2"):
        yield f"CIFAR-100, {name}", file[name].astype(np.float32), None
        yield f"CIFAR-100, {name}, other classes", file[name].astype(np.float32), file["y"]
    for name in ("glove50", "glove100"):
        yield f"words, {name}", _read(folder, "words_glove50_glove100", name), None


def tail_row(name: str, x: np.ndarray, labels: np.ndarray | None, tail_size: int) -> dict[str, object]:
    """Describe the tails of one encoder."""
    options = {"same": labels, "n_queries": min(3000, len(x))}
    tail = take_tail(x, tail_size=tail_size, **options)
    held, free, verdict = fit_tail(tail).summary(), fit_tail(tail, "zhang_stephens").summary(), judge(tail)
    pooled = fit_tail(take_tail(x, fraction=0.01, pooled=True, **options), "zhang_stephens")
    low, high = pooled.interval()
    evidence = weigh(tail)
    return {
        "encoder": name,
        "threshold": float(np.median(tail.threshold)),
        "xi_held": held.xi,
        "xi_held_interval": list(held.xi_interval),
        "dimension": held.lid,
        "xi_free": free.xi,
        "xi_free_interval": list(free.xi_interval),
        "xi_free_quartiles": list(free.quartiles),
        "xi_pooled": float(pooled.xi[0]),
        "xi_pooled_interval": [float(low[0]), float(high[0])],
        "design_effect": pooled.design_effect,
        "call": verdict.call,
        "bounded": verdict.shares.bounded,
        "normal_bounded": verdict.normal.bounded,
        "heavy": verdict.shares.heavy,
        "beyond_normal": float((verdict.p_beyond_normal < 0.05).mean()),
        "end_below_1": endpoint_test(tail).discoveries / tail.n_queries,
        "aic": evidence.shares("aic")._asdict(),
        "duplicates": tail.excluded.duplicates,
        "xi_held_at_rest": fit_tail(take_tail(x, tail_size=16, **options)).summary().xi,
        "fitting_size": choose_threshold(take_tail(x, tail_size=257, n_queries=200, same=labels)).size,
    }


def choice_row(name: str, s: np.ndarray, winners: np.ndarray) -> dict[str, object]:
    """Describe the link that winners ask for."""
    c = choose_link(s, winners)
    return {
        "pairs": name,
        "n": c.n_choices,
        "candidates": s.shape[1],
        "top_share": c.top_share,
        "blend": c.blend,
        "blend_interval": list(c.interval()),
        "relative_blend": c.relative_blend,
        "relative_blend_interval": list(c.interval("relative_blend")),
        "temperature": c.softmax_temperature,
        "beta": c.shortfall_beta,
        "lr_softmax": list(c.against_softmax),
        "lr_shortfall": list(c.against_shortfall),
        "preferred": c.preferred,
        "separated": c.separated,
    }


def choices(folder: Path) -> Iterator[dict[str, object]]:
    """Yield one row for each set of positives, and for each independent second view."""
    for name, file, first, second in PAIRS:
        queries, positives = _read(folder, file, first), _read(folder, file, second)
        if len(positives) < len(queries):  # the translated rows are the last ones
            queries = queries[-len(positives) :]
        yield choice_row(
            f"{name}, positive wins", *positive_choices(queries, positives, n_negatives=len(positives) - 1)
        )
    cifar = np.load(folder / "cifar100_effnetlite.npz")
    for name in ("lite0", "lite2"):
        x, y = cifar[name].astype(np.float32), cifar["y"]
        rng = np.random.default_rng(0)
        order = rng.permutation(len(x))
        first = np.array([order[y[order] == label][:2] for label in np.unique(y)])  # (100, 2): one pair a class
        yield choice_row(
            f"CIFAR-100 {name}, same class wins",
            *positive_choices(x[first[:, 0]], x[first[:, 1]], n_negatives=99),
        )
    for name, file, first, second in [
        ("minilm, e5's best wins", "stsb_pool3000", "minilm", "e5"),
        ("e5, minilm's best wins", "stsb_pool3000", "e5", "minilm"),
        ("mpnet, use's best wins", "stsb_pool3000", "mpnet", "use"),
        ("lite0, lite2's best wins", "cifar100_effnetlite", "lite0", "lite2"),
        ("lite2, lite0's best wins", "cifar100_effnetlite", "lite2", "lite0"),
    ]:
        a, b = _unit(_read(folder, file, first)), _unit(_read(folder, file, second))
        s, winners = second_encoder_choices(a, b)
        yield choice_row(name, s, winners)
    use = [_read(folder, "multi30k_test2016", f"use_{language}") for language in ("en", "de", "fr")]
    own = np.arange(len(use[0]))
    yield choice_row(
        "use captions, en view, de view's best wins", *view_choices(use[0], use[1], use[2], exclude=own)
    )


def second_encoder_choices(
    a: np.ndarray, b: np.ndarray, n_candidates: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Take each row's most similar others under one encoder; the one most similar under the other wins."""
    first, second = a @ a.T, b @ b.T
    np.fill_diagonal(first, -np.inf)
    first[first > 1 - 1e-6] = -np.inf  # duplicates
    top = np.argpartition(first, -n_candidates, axis=1)[:, -n_candidates:]
    return np.take_along_axis(first, top, axis=1), np.take_along_axis(second, top, axis=1).argmax(axis=1)


def maxima_rows(folder: Path) -> Iterator[dict[str, object]]:
    """Yield the law of row maxima for growing numbers of candidates."""
    for name, x, labels in encoders(folder):
        if labels is None:
            yield {
                "encoder": name,
                "fits": [
                    {"K": f.block_size, "xi": f.xi, "interval": list(f.interval()), "limit": f.limit()}
                    for f in maxima_by_size(x, (64, 256, 1024, 4096))
                ],
            }


def _read(folder: Path, file: str, name: str) -> np.ndarray:
    with np.load(folder / f"{file}.npz") as stored:
        return stored[name].astype(np.float32)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _show(rows: list[dict[str, object]]) -> None:
    def text(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.3g}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        if isinstance(value, dict):
            return ", ".join(f"{k} {text(v)}" for k, v in value.items())
        return str(value)

    for row in rows:
        print("; ".join(f"{k} {text(v)}" for k, v in row.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tail-size", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = {
        "tails": [
            tail_row(name, x, labels, arguments.tail_size) for name, x, labels in encoders(arguments.folder)
        ],
        "maxima": list(maxima_rows(arguments.folder)),
        "choices": list(choices(arguments.folder)),
    }
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    for rows in result.values():
        _show(rows)
        print()


if __name__ == "__main__":
    main()

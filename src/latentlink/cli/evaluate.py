"""`latentlink evaluate labels | retrieval | sts`: judge embeddings, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from latentlink import _checks
from latentlink.cli._frame import Json, Out, Seed, emit

evaluate = typer.Typer(help="Judge embeddings, with intervals.", no_args_is_help=True)


@evaluate.command()
def labels(
    train: Annotated[
        Path, typer.Argument(help="An .npz file of vectors and labels, or the folder of an image run.")
    ],
    test: Annotated[
        Path | None, typer.Argument(help="The same for the test; else a part of the first.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Labelled images, for the folder of a run.")
    ] = None,
    share: Annotated[float, typer.Option("--share", help="Part that is the test when no file is given.")] = 0.2,
    k: Annotated[int, typer.Option("-k", help="Neighbours that vote.")] = 50,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
) -> None:
    """Judge features by a linear probe and by nearest neighbours."""
    from latentlink.evaluate import knn_accuracy, linear_probe, neighbour_recall

    x, y = _features(train, data)
    if test is not None:
        x_test, y_test = _features(test, data)
    else:
        x, y, x_test, y_test = _parted(
            x, y, _checks.number("share", share, low=0, high=0.9, open_low=True), seed
        )
    neighbours = min(k, len(x))
    probe = linear_probe(x, y, x_test, y_test, seed=seed)
    votes = knn_accuracy(x, y, x_test, y_test, k=neighbours)
    recalls = neighbour_recall(x, y, x_test, y_test, ks=[n for n in (1, 5, 10, 50) if n <= len(x)])
    record = {
        "n_train": len(x),
        "linear_probe": probe.record(),
        "knn": votes.record(),
        "recall": {str(n): float(hits.mean()) for n, hits in recalls.items()},
    }
    lines = [
        f"{len(x)} training and {len(x_test)} test items",
        f"linear probe      {_percent(probe.accuracy, probe.interval())}",
        f"{neighbours}-neighbour vote  {_percent(votes.accuracy, votes.interval())}",
        *(f"R@{n:<15} {100 * value:.2f} %" for n, value in record["recall"].items()),  # type: ignore[attr-defined]
    ]
    emit("\n".join(lines), record, as_json=json, out=out)


@evaluate.command()
def retrieval(
    queries: Annotated[Path, typer.Argument(help="A file of vectors.")],
    corpus: Annotated[Path, typer.Argument(help="A file of vectors.")],
    similarity: Annotated[str, typer.Option("--similarity", help="cosine or dot.")] = "cosine",
    json: Json = False,
    out: Out = None,
) -> None:
    """Find each query's own item: the one of the same id, or of the same row where a file has no ids."""
    from latentlink.evaluate import retrieval as ranked
    from latentlink.io import read_vectors

    (q, q_ids), (c, c_ids) = read_vectors(queries), read_vectors(corpus)
    result = ranked(q, c, _own_rows(len(q), q_ids, len(c), c_ids), similarity=similarity)
    lines = [f"{len(q)} queries, {len(c)} items"]
    for name in ("hit@1", "hit@5", "hit@10", "mrr", "ndcg@10"):
        low, high = result.interval(name)
        lines.append(f"{name:8} {result.mean(name):.4f} ({low:.4f} to {high:.4f})")
    emit("\n".join(lines), result.record(), as_json=json, out=out)


@evaluate.command()
def sts(
    model: Annotated[str, typer.Argument(help="The folder of a text run, or any sentence-transformers model.")],
    data: Annotated[Path, typer.Option("--data", help="A table of pairs and scores.")],
    columns: Annotated[str, typer.Option("--columns", help="Both texts and the score.")] = "a,b,score",
    json: Json = False,
    out: Out = None,
) -> None:
    """Correlate similarities of sentence pairs with people's scores."""
    import numpy as np

    from latentlink.evaluate import sts_spearman
    from latentlink.train import load_text_encoder
    from latentlink.train.texts import load_columns

    names = columns.split(",")
    if len(names) != 3:
        raise _checks.InvalidInput(f"columns is {columns!r}; needs three names with commas between them.")
    first, second, scores = load_columns(data, names)
    try:
        values = np.array([float(score) for score in scores])
    except ValueError as error:
        raise _checks.InvalidInput(f"column {names[2]!r} of {data} is not all numbers ({error}).") from error
    encoder = load_text_encoder(model)
    a, b = (encoder.encode(side, show_progress_bar=False) for side in (first, second))
    result = sts_spearman(a, b, values)
    low, high = result.interval()
    text = f"{len(values)} pairs: Spearman {result.spearman:.4f} ({low:.4f} to {high:.4f})"
    emit(text, result.record(), as_json=json, out=out)


def _features(path: Path, data: str | None) -> tuple[Any, Any]:
    """Read vectors and labels of a file, or encode labelled images by the encoder of a run."""
    from latentlink.io import read_vectors

    if path.is_dir():
        from latentlink.train import load_image_encoder
        from latentlink.train.batches import load_images

        if data is None:
            raise _checks.InvalidInput(
                f"{path} is the folder of a run; needs --data, labelled images to encode."
            )
        encoder = load_image_encoder(path)
        images = load_images(data, encoder.settings.image_size)
        if (images.labels < 0).any():
            raise _checks.InvalidInput(f"{data} has images without a label; needs a folder for each class.")
        return encoder.encode(images), images.labels
    if path.suffix != ".npz":
        raise _checks.InvalidInput(f"{path} is no .npz file; needs one with arrays vectors and labels.")
    from latentlink.io import read_npz

    arrays = read_npz(path)
    if "labels" not in arrays:
        raise _checks.InvalidInput(f"{path} has no array labels; it has {', '.join(sorted(arrays))}.")
    return read_vectors(path)[0], arrays["labels"]


def _parted(x: Any, y: Any, share: float, seed: int) -> tuple[Any, Any, Any, Any]:
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(x))
    n = max(1, round(share * len(x)))
    return x[order[n:]], y[order[n:]], x[order[:n]], y[order[:n]]


def _own_rows(n: int, q_ids: Any, m: int, c_ids: Any) -> Any:
    import numpy as np

    if q_ids is None or c_ids is None:
        if n > m:
            raise _checks.InvalidInput(
                f"there are {n} queries and {m} items without ids; each query needs its item."
            )
        return np.arange(n)
    place = {name: row for row, name in enumerate(c_ids.tolist())}
    missing = [name for name in q_ids.tolist() if name not in place]
    if missing:
        raise _checks.InvalidInput(
            f"{len(missing)} queries have no item of their id, {missing[0]!r} among them; drop them."
        )
    return np.array([place[name] for name in q_ids.tolist()])


def _percent(value: float, interval: tuple[float, float]) -> str:
    return f"{100 * value:.2f} % ({100 * interval[0]:.2f} to {100 * interval[1]:.2f})"

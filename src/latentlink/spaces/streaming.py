"""Spaces of files: moments in one pass, and encoding batch by batch, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latentlink._files import replacing
from latentlink.io import arrow_writer, open_vectors, read_vectors, write_vectors
from latentlink.moments import Moments, collect
from latentlink.spaces.relative import RelativeSpace

PathLike = str | os.PathLike[str]


def file_moments(
    space: str, files: Sequence[PathLike], *, policy: str = "none", support_size: int = 10_000, n_folds: int = 1
) -> Moments:
    """Gather moments and a support sample from files of vectors, read once in order.

    Parameters
    ----------
    space : str
        The encoder's name.
    files : sequence of paths
        See `latentlink.io.open_vectors`. Without ids, rows are numbered through all files.
    policy, support_size, n_folds
        See `latentlink.moments.Moments`.
    """

    def batches() -> Iterator[tuple[Any, Any]]:
        before = 0
        for path in files:
            file = open_vectors(path)
            for batch in file.batches():
                yield batch.vectors, batch.ids if file.has_ids else batch.ids + before
            before += file.rows

    return collect(space, batches(), policy=policy, support_size=support_size, n_folds=n_folds)


def fit_files(
    space: RelativeSpace, files: Mapping[str, Sequence[PathLike]], *, support_size: int = 10_000
) -> RelativeSpace:
    """Fit a space on files: mean and covariance of every row, anchors from a sample of shared items.

    Parameters
    ----------
    space : RelativeSpace
    files : mapping of name to sequence of paths
    support_size : int
        Items sampled by the hash of their id, the same for every encoder.
    """
    return space.fit(
        {name: file_moments(name, paths, support_size=support_size) for name, paths in files.items()}
    )


def encode_file(
    space: RelativeSpace, path: PathLike, out: PathLike, *, source: str, target: str | None = None
) -> int:
    """Encode (or with `target`, translate) a file of vectors.

    An Arrow IPC file (.arrow) is written batch by batch in bounded memory; any other kind that
    `latentlink.io.write_vectors` knows is held in memory first.

    Returns
    -------
    int
        Rows written.
    """
    file = open_vectors(path)

    def convert(vectors: Any) -> Any:
        x = vectors.astype(np.float32, copy=False)
        if target is None:
            return space.encode(x, source=source)
        return space.translate(x, source=source, target=target)

    if Path(out).suffix.lower() != ".arrow":
        vectors, ids = read_vectors(path)
        write_vectors(out, convert(vectors), ids=ids)
        return len(vectors)
    dimension = int(space.consensus_.shape[1]) if target is None else space.dimension(target)
    rows = 0
    with replacing(out) as temporary, open(temporary, "wb") as stream, arrow_writer(stream, dimension) as write:
        for batch in file.batches():
            write(convert(batch.vectors), batch.ids)
            rows += len(batch.rows)
    return rows

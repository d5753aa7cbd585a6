"""The bundled sentences: 2,400 of Tatoeba by four real encoders, 400 of them in German by two."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
TextArray = np.ndarray[Any, np.dtype[np.str_]]

# Rows 0 to 1,599 fit the space; the other 800 are only ever searched.
FIT_ROWS = 1600
# Row i of the German sentences translates this row + i of the English ones.
FIRST_GERMAN_ROW = 2000


@dataclass(frozen=True)
class Sentences:
    """English sentences, their German translations, and their embeddings by encoder.

    Attributes
    ----------
    english : str array (2400,)
    german : str array (400,)
        Row i translates row 2000 + i of `english`.
    english_by : dict of float array (2400, d)
        "minilm" (384), "use" (512), "e5" (384) and "glove50" (50).
    german_by : dict of float array (400, d)
        "use" and "e5", the two multilingual ones.
    """

    english: TextArray
    german: TextArray
    english_by: dict[str, FloatArray]
    german_by: dict[str, FloatArray]


def load_sentences() -> Sentences:
    """Read the bundled sentences and embeddings (6.6 MB).

    >>> load_sentences().english_by["minilm"].shape
    (2400, 384)
    """
    with as_file(files("latentlink.demo") / "data" / "tatoeba.npz") as path, np.load(path) as archive:
        return Sentences(
            english=archive["text"],
            german=archive["text_de"],
            english_by={name: archive[name].astype(np.float32) for name in ("minilm", "use", "e5", "glove50")},
            german_by={name: archive[f"{name}_de"].astype(np.float32) for name in ("use", "e5")},
        )

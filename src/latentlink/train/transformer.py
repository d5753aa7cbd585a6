"""Text encoders: any of sentence-transformers, or a small one of random weights and a vocabulary of the data."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from latentlink import _checks
from latentlink._progress import watched

_st = _checks.need("sentence_transformers", extra="text", job="load_text_encoder")
_transformers = _checks.need("transformers", extra="text", job="load_text_encoder")

# Of "scratch": 4 layers of width 128 and at most 8,000 words and characters, 2 million weights.
_SCRATCH = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
_VOCABULARY = 8000


def load_text_encoder(folder: str | os.PathLike[str]) -> Any:
    """Load the encoder that a text recipe wrote to a folder, or any other of sentence-transformers.

    Parameters
    ----------
    folder : path or str
        Folder of a run or of a model, or a model's name.

    Returns
    -------
    sentence_transformers.SentenceTransformer
        In evaluation mode.

    Raises
    ------
    InvalidInput
        sentence-transformers cannot load it.
    """
    named = _checks.path("folder", folder)
    inside = named / "model"
    try:
        with calm(bars=watched()):
            model = _st.SentenceTransformer(str(inside if (inside / "modules.json").is_file() else folder))
    except (OSError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        raise _checks.InvalidInput(
            f"{str(folder)!r} is no model that sentence-transformers can load ({first_line}); "
            "needs the folder of a run or of a model, or a model's name."
        ) from error
    return model.eval()


@contextmanager
def calm(*, bars: bool) -> Iterator[None]:
    """Keep the libraries' hints, which speak of their own defaults, from the user, and perhaps their bars."""
    says = _transformers.utils.logging
    level, shown = says.get_verbosity(), says.is_progress_bar_enabled()
    says.set_verbosity_error()
    if not bars:
        says.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            says.set_verbosity(level)
            if shown:
                says.enable_progress_bar()


def scratch_encoder(texts: list[str], max_length: int) -> Any:
    """Build a small transformer with random weights and a vocabulary made of the texts."""
    import tempfile

    from safetensors.torch import save_file
    from sentence_transformers.sentence_transformer import modules as models
    from tokenizers import BertWordPieceTokenizer

    pieces = BertWordPieceTokenizer(vocab=_vocabulary(texts))
    tokenizer = _transformers.BertTokenizerFast(tokenizer_object=pieces._tokenizer, model_max_length=max_length)
    config = _transformers.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=max_length, **_SCRATCH)
    with tempfile.TemporaryDirectory() as folder:
        # Not by save_pretrained, which writes nothing on all processes but the first.
        save_file(_transformers.BertModel(config).state_dict(), f"{folder}/model.safetensors", {"format": "pt"})
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = models.Transformer(folder, max_seq_length=max_length)
        pooling = models.Pooling(config.hidden_size, "mean")
        return _st.SentenceTransformer(modules=[transformer, pooling])


def _vocabulary(texts: list[str]) -> dict[str, int]:
    """Make a numbered vocabulary of all characters and the most frequent words of the texts.

    The library's own trainer of word pieces gives another vocabulary at each call, so that neither a resumed run
    nor a second run with the same seed would be the same run.
    """
    from tokenizers import BertWordPieceTokenizer

    plain = BertWordPieceTokenizer()
    words: Counter[str] = Counter()
    for text in texts:
        split = plain.pre_tokenizer.pre_tokenize_str(plain.normalizer.normalize_str(text))
        words.update(word for word, _ in split)
    characters = sorted(set("".join(words)))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters)]
    frequent = sorted((-count, word) for word, count in words.items() if count > 1 and len(word) > 1)
    pieces += [word for _, word in frequent[: max(0, _VOCABULARY - len(pieces))]]
    return {piece: number for number, piece in enumerate(pieces)}

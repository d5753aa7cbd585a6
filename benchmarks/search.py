"""Measure convert against bare reading, product and writing, and search engines against each other.

python benchmarks/search.py convert --rows 200000     # ratio of CPU time, five alternating pairs
python benchmarks/search.py memory --rows 1000000     # peak resident memory of one streamed convert
python benchmarks/search.py engines --rows 100000     # build, search and recall of each kind of index
python benchmarks/search.py retention --data FOLDER   # known-item search after a migration, real encoders
python benchmarks/search.py recall --data FOLDER      # of an HNSW graph, for queries of another encoder or language
python benchmarks/search.py foreign --data FOLDER     # whom the door refuses: seven text encoders
python benchmarks/search.py unseen --data FOLDER      # whom the door refuses: images, words, fresh sentences
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from latentlink._metrics import bootstrap_interval, proportion_interval
from latentlink.search import Index, convert
from latentlink.search.conversion import BATCH_ROWS
from latentlink.search.gate import Gate, refusals
from latentlink.similarity import normalize
from latentlink.spaces import RelativeSpace

DIMENSION = 768


def world(folder: Path, rows: int) -> RelativeSpace:
    """Write `rows` vectors as float32 npy in bounded memory, and fit a space on synthetic pairs."""
    rng = np.random.default_rng(0)
    block = rng.standard_normal((BATCH_ROWS, DIMENSION), dtype=np.float32)
    with open(folder / "old.npy", "wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, DIMENSION)}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, rows, BATCH_ROWS):
            block[: min(BATCH_ROWS, rows - start)].tofile(stream)
    pairs = rng.standard_normal((2000, DIMENSION))
    return RelativeSpace(n_anchors=DIMENSION).fit({"old": pairs, "new": pairs[:, ::-1] + 0.1})


def bare(folder: Path, rows: int) -> None:
    """Read, multiply and write in the plainest way: the work that no converter can avoid."""
    w = np.ones((DIMENSION, DIMENSION), np.float32)
    with open(folder / "old.npy", "rb") as source, open(folder / "bare.bin", "wb") as target:
        source.seek(128)
        for start in range(0, rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows - start)
            x = np.fromfile(source, np.float32, count * DIMENSION).reshape(count, DIMENSION)
            (x @ w).tofile(target)


def convert_ratio(rows: int, pairs: int = 5) -> None:
    """Print the ratio to the bare work, and to the bare work with the SHA-256 that every shard must have."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = world(folder, rows)
        block = np.ones((BATCH_ROWS, DIMENSION), np.float32)
        ratios = []
        for _ in range(pairs):
            # Each output is deleted before the next is written, so that both go to memory that was just freed: on
            # a virtual machine the first write to memory that the host has not given costs several times more.
            start = time.process_time()
            bare(folder, rows)
            plain = time.process_time() - start
            (folder / "bare.bin").unlink()
            start = time.process_time()
            convert([folder / "old.npy"], folder / "out", space=space, source="old")
            ours = time.process_time() - start
            shutil.rmtree(folder / "out")
            start = time.process_time()
            digest = hashlib.sha256()
            for first in range(0, rows, BATCH_ROWS):
                digest.update(block[: rows - first])
            hashing = time.process_time() - start
            ratios.append((ours / plain, ours / (plain + hashing)))
            load = os.getloadavg()[0]
            print(
                f"bare {plain:.2f}, convert {ours:.2f}, SHA-256 {hashing:.2f} CPU s; load {load:.1f}",
                flush=True,
            )
        for what, found in zip(["bare", "bare + SHA-256"], np.transpose(ratios), strict=True):
            spread = f"{min(found):.3f} to {max(found):.3f}"  # of five, which covers the median with 94 %
            print(f"{rows} x {DIMENSION} over {what}: median {np.median(found):.3f}, {spread}")


def memory(rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = world(folder, rows)
        started = time.process_time()
        convert([folder / "old.npy"], folder / "out", space=space, source="old")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{rows} x {DIMENSION}: {time.process_time() - started:.1f} CPU s, peak resident {peak:.2f} GiB")


def engines(rows: int) -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2000, 384))
    spectrum = np.arange(1, 385) ** -0.45
    labels = rng.integers(0, 2000, rows + 200)
    x = ((centres[labels] + 0.7 * rng.standard_normal((rows + 200, 384))) * spectrum).astype(np.float32)
    corpus, queries = x[:rows], x[rows:]
    truth = Index.build(corpus, source="a", kind="exact").search(queries, source="a")[1]
    for kind in ["exact", "flat", "hnsw", "ivf"]:
        started = time.process_time()
        index = Index.build(corpus, source="a", kind=kind)
        built = time.process_time()
        found = index.search(queries, source="a")[1]
        searched = time.process_time()
        recall = (found[:, :, None] == truth[:, None, :]).any(axis=2).mean()
        print(
            f"{kind:6} build {built - started:6.1f} CPU s, {1e3 * (searched - built) / len(queries):6.2f} CPU ms a "
            f"query, recall@10 of unseen queries {recall:.3f}; {index.recall or 'exact'}",
            flush=True,
        )


def retention(data: Path) -> None:
    from latentlink.search.migrate import shadow

    def read(name: str) -> dict[str, np.ndarray]:
        with np.load(data / f"{name}.npz", allow_pickle=False) as file:
            return {key: file[key].astype(np.float32) for key in file if file[key].dtype.kind == "f"}

    pool, tatoeba, captions = read("stsb_pool3000"), read("tatoeba_demo"), read("multi30k_test2016")
    with np.load(data / "stsb_test.npz", allow_pickle=False) as file:
        sts = {key: file[key] for key in file}
    close = (sts["score"] >= 4) & (sts["ia"] != sts["ib"])
    items, rows = np.unique(sts["ib"][close], return_inverse=True)
    pairs = {name: np.concatenate([pool[name], tatoeba[name][:2000]]) for name in ["minilm", "e5"]}
    space = RelativeSpace(n_anchors=256).fit(pairs)
    held = np.arange(2000, 2400)
    tasks = {
        "Tatoeba German to English": (
            "minilm",
            "e5",
            tatoeba["minilm"],
            tatoeba["e5"],
            tatoeba["e5_de"],
            held,
            None,
        ),
        "Multi30K German to English": (
            "minilm",
            "e5",
            captions["minilm_en"],
            captions["e5_en"],
            captions["e5_de"],
            np.arange(1000),
            None,
        ),
    }
    for old, new in [("minilm", "e5"), ("e5", "minilm")]:
        queries = [sts[name][sts["ia"][close]].astype(np.float32) for name in (old, new)]
        corpora = [sts[name][items].astype(np.float32) for name in (old, new)]
        tasks[f"STS-B paraphrases, {old} to {new}"] = (old, new, *corpora, queries[1], rows, queries[0])
    for title, (old, new, corpus_old, corpus_new, queries, relevant, own) in tasks.items():
        for direction, crowd in [
            (side, one) for side in ["corpus", "query", "shared"] for one in [None, pairs[new]]
        ]:
            found = shadow(
                space,
                old=old,
                new=new,
                direction=direction,
                corpus_old=corpus_old,
                corpus_new=corpus_new,
                queries_new=queries,
                relevant=relevant,
                queries_old=own,
                crowd=crowd,
                progress=False,
            )
            low, high = found.retention_interval
            cells = [
                title,
                direction + ("" if crowd is None else ", hubs"),
                f"{found.native_recall:.3f}",
                f"{found.migrated_recall:.3f}",
            ]
            cells += [f"{found.retention:.3f} [{low:.3f}, {high:.3f}]", f"{found.ndcg_retention:.3f}"]
            print(" | ".join([*cells, f"{found.overlap:.3f}", f"{found.encoder_overlap:.3f}"]), flush=True)


def recall(data: Path) -> None:
    """Tune a graph over MiniLM's vectors on the corpus or on German queries; judge on other German queries."""
    import warnings

    x = floats(data, "tatoeba_demo")
    pool = floats(data, "stsb_pool3000")
    names = ["minilm", "e5", "use"]
    space = RelativeSpace(n_anchors=256).fit({n: np.concatenate([pool[n], x[n][:2000]]) for n in names})
    exact = Index.build(x["minilm"], space=space, source="minilm", kind="exact")
    order = np.random.default_rng(0).permutation(400)
    tuning, judged = order[:200], order[200:]
    for asked in [0.95, 0.99]:
        for given in [None, "e5", "use"]:
            extra: dict[str, Any] = {}
            if given is not None:
                extra = {"queries": x[f"{given}_de"][tuning], "queries_source": given}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the table says when the budget is not reached
                index = Index.build(
                    x["minilm"], space=space, source="minilm", kind="hnsw", recall=asked, **extra
                )
            cells = []
            for title, source, queries in [
                ("minilm en", "minilm", x["minilm"][2000:]),
                ("e5 en", "e5", x["e5"][2000:]),
                ("e5 de", "e5", x["e5_de"][judged]),
                ("use de", "use", x["use_de"][judged]),
            ]:
                (_, truth), (_, found) = (i.search(queries, source=source) for i in (exact, index))
                hits = (found[:, :, None] == truth[:, None, :]).any(axis=2).mean(axis=1)
                low, high = bootstrap_interval(hits)
                cells.append(f"{title} {hits.mean():.3f} [{low:.3f}, {high:.3f}]")
            tuned = "the corpus" if given is None else f"German queries of {given}"
            print(f"asked {asked}, tuned on {tuned}: {index.recall}; " + ", ".join(cells), flush=True)


BATCHES = 500


def altered(d: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return what makes copies that no encoder has made, though each row keeps its norm: drawn anew each time."""
    turns = [np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32) for _ in range(20)]
    return {
        "permuted": lambda x: x[:, rng.permutation(d)],
        "signs": lambda x: x * rng.choice([-1, 1], d).astype(np.float32),
        "negated": lambda x: -x,
        "rotated": lambda x: x @ turns[rng.integers(len(turns))],
    }


def floats(data: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(data / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key].astype(np.float32) for key in file if file[key].dtype == np.float16}


def ask(title: str, space: RelativeSpace, name: str, home: np.ndarray, others: dict[str, Any]) -> None:
    """Print which share of batches of 32 the door refuses, with Wilson's interval where it is not 0 or 1."""
    gate, rng = Gate(space, None), np.random.default_rng(0)

    def cell(x: np.ndarray, alter: Any = np.asarray) -> str:
        hits = refusals(gate, x, name, batches=BATCHES, alter=alter)
        low, high = proportion_interval(hits)
        return f"{hits.mean():.3f}" + ("" if hits.mean() in (0, 1) else f" [{low:.3f}, {high:.3f}]")

    shown = {"home": cell(home)}
    shown |= {key: cell(home, alter) for key, alter in altered(home.shape[1], rng).items()}
    shown |= {key: cell(x) for key, x in others.items() if x is not None}
    print(f"{title}{name} ({home.shape[1]}): " + ", ".join(f"{k} {v}" for k, v in shown.items()), flush=True)


def foreign(data: Path) -> None:
    """Ask the door about the seven text encoders, on rows that chose nothing of the rule."""
    pool, tatoeba, captions = (
        floats(data, name) for name in ["stsb_pool3000", "tatoeba_demo", "multi30k_test2016"]
    )
    for name, x in pool.items():
        other = "use" if name == "minilm" else "minilm"
        space = RelativeSpace(n_anchors=32).fit({n: pool[n][:2000] for n in [name, other]})
        # Even rows of shifted sets were looked at when the rule was made.
        shifted = {"tatoeba": tatoeba.get(name), "tatoeba de": tatoeba.get(f"{name}_de")}
        shifted |= {f"captions {tongue}": captions.get(f"{name}_{tongue}") for tongue in ["en", "de", "fr"]}
        sets = {key: y[1::2] for key, y in shifted.items() if y is not None}
        if name == "glove50":  # the file's Tatoeba averages have norms of 3 to 5, the fitted ones length 1
            sets["tatoeba, length 1"] = normalize(sets["tatoeba"])
        if name in ("minilm", "e5"):
            sets["the other of minilm and e5"] = pool["e5" if name == "minilm" else "minilm"][2000:]
        ask("", space, name, x[2000:], sets)


def unseen(data: Path) -> None:
    """Ask the door about images, words, and the sentences of the STS-B test part."""
    images, words = floats(data, "cifar100_effnetlite"), floats(data, "words_glove50_glove100")
    pool, test = floats(data, "stsb_pool3000"), floats(data, "stsb_test")
    with np.load(data / "cifar100_effnetlite.npz", allow_pickle=False) as file:
        label = file["y"]
    with np.load(data / "stsb_pool3000.npz", allow_pickle=False) as file:
        known = file["text"][:2000]
    with np.load(data / "stsb_test.npz", allow_pickle=False) as file:
        fresh = ~np.isin(file["text"], known)

    def door(title: str, x: dict[str, np.ndarray], fitted: Any, home: Any, shifted: Any = None) -> None:
        space = RelativeSpace(n_anchors=32).fit({name: y[fitted] for name, y in x.items()})
        for name, y in x.items():
            sets = {f"as {n}": z[home] for n, z in x.items() if n != name and z.shape == y.shape}
            if shifted is not None:
                sets["shifted"] = y[shifted]
            ask(f"{title}, ", space, name, y[home], sets)

    # The first 2,000 of each order were looked at when the rule was made; the others were not.
    order = np.random.default_rng(1).permutation(3000)
    early, late = order[:2000], order[2000:]
    door("images", images, early, late)
    door("80 classes", images, early[label[early] < 80], late[label[late] < 80], late[label[late] >= 80])
    order = np.random.default_rng(1).permutation(10_000)
    door("words", words, order[:2000], order[2000:])
    order = np.random.default_rng(1).permutation(5000)
    door("frequent words, shifted: rare", words, order[:2000], order[2000:], slice(5001, None, 2))
    for names in [("minilm", "e5"), ("wordllama", "minilm")]:
        both = {name: np.concatenate([pool[name][:2000], test[name][fresh]]) for name in names}
        door("STS-B test", both, slice(2000), slice(2000, None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "job", choices=["convert", "memory", "engines", "retention", "recall", "foreign", "unseen"]
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--data", type=Path)
    chosen = parser.parse_args()
    on_data = {"retention": retention, "recall": recall, "foreign": foreign, "unseen": unseen}
    if chosen.job in on_data:
        if chosen.data is None:
            sys.exit(f"{chosen.job} needs --data, the folder with the embeddings.")
        on_data[chosen.job](chosen.data)
    else:
        {"convert": convert_ratio, "memory": memory, "engines": engines}[chosen.job](chosen.rows)


if __name__ == "__main__":
    main()

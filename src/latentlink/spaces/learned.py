"""PARAM: learn the anchors' weights so that every encoder ranks the same item first.

One row-stochastic P for all encoders. Under the whitened inner product a relative vector is a linear regression
on the rows of P, so what it would be had its own item not been fitted is known exactly (leave-one-out of least
squares). The contrastive term is computed on those vectors.

That alone is not enough: k m free weights learn the fitted items by heart (docs/spaces.md has the numbers). So P
is learned as a mix of the k directions on which the encoders agree most, k² numbers, and a term keeps the mixed
directions orthogonal and equally long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentlink import _checks
from latentlink.losses import LogitScale, SymmetricInfoNCELoss, WEINCELoss
from latentlink.spaces.anchors import gcca_anchors, kmeans_anchors, row_stochastic
from latentlink.tails.online import Gate

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

LOSSES = ("infonce", "weince")


@dataclass(frozen=True)
class LearnedAnchors:
    """Weights that were learned, and how.

    Attributes
    ----------
    weights : array (k, m), or a sparse one from `learn_mixtures`
        Row-stochastic.
    losses : array (steps,)
        Of each step that was taken.
    held_out : array (checks,)
        Contrastive loss on the pairs held out for early stopping; empty without it.
    temperature : float
        Of the contrastive term, where it ended.
    """

    weights: Any
    losses: FloatArray
    held_out: FloatArray
    temperature: float

    @property
    def effective_items(self) -> FloatArray:
        """1 / sum of squared weights (k,): how many items an anchor averages."""
        return np.asarray(1 / (self.weights**2).sum(axis=1))


def learn_anchors(
    frames: Sequence[FloatArray],
    n_anchors: int,
    *,
    start: str | FloatArray = "random",
    steps: int = 40,
    batch: int = 512,
    learning_rate: float = 0.02,
    temperature: float = 0.03,
    orthogonality: float = 3.0,
    loss: str = "infonce",
    gate: Gate | None = None,
    patience: int = 0,
    seed: int = 0,
) -> LearnedAnchors:
    """Learn one dense row-stochastic P (k, m) shared by all encoders.

    Parameters
    ----------
    frames : sequence of (m, d_i) arrays
        Whitened vectors of the same m items, of two encoders or more.
    n_anchors : int
        k, at most the rank of the stacked frames.
    start : {"random", "kmeans", "gcca"} or array (k, m)
        Where the mix begins: at random, at cluster membership, at the closed form, or at given weights, as far
        as the k shared directions can express them. With few anchors clusters begin farther away than chance
        and take more steps: 24 anchors of noisy views, R@1 0.786 after 40 and 0.806 after 100, closed form 0.812.
    steps, batch, learning_rate
        Of Adam, with a cosine schedule.
    temperature : float
        Where that of the contrastive term begins; it is learned.
    orthogonality : float
        Weight of ‖T'T − I‖² / k, T (k, k) the mix of shared directions, each as long as its agreement. Off the
        diagonal this keeps anchors orthogonal, on it equally long. The larger, the nearer to the closed form.
    loss : {"infonce", "weince"}
        The contrastive term, symmetric and averaged over all pairs of encoders.
    gate : Gate, optional
        Rule of "weince".
    patience : int
        Above 0, a tenth of the items is held out; learning stops when their contrastive loss has not improved
        for this many checks of five steps, and the best mix is kept. Held-out items keep the weight 1/m.
    seed : int

    Returns
    -------
    LearnedAnchors

    Raises
    ------
    InvalidInput
        Fewer than two encoders, or more anchors than the items span.

    Notes
    -----
    Cost: the closed form, then for each step b k (k + sum d_i) and M (M − 1) b² k multiply-adds a few times.

    References
    ----------
    After arXiv 2605.30596, whose formulas and settings are not public; ours are in docs/spaces.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 200, 8)) + 2 * rng.normal(size=(200, 8))
    >>> from latentlink import Whitener
    >>> learned = learn_anchors([Whitener().fit(v).transform(v) for v in (x, y)], 5)
    >>> learned.weights.shape, bool((learned.weights >= 0).all())
    ((5, 200), True)
    """
    if len(frames) < 2:
        raise _checks.InvalidInput(
            f"frames holds {len(frames)} encoder; the contrastive term needs 2. Use learn_mixtures for one."
        )
    generator = torch.Generator().manual_seed(seed)
    m = frames[0].shape[0]
    fitted, part, held = hold_out(frames, patience, generator)
    # The closed form is 1/m plus its directions, so that these need no second way to be found.
    closed = gcca_anchors(part, n_anchors)
    directions = _deviation(closed).T  # (m, k)
    mix = torch.as_tensor(_start(start, part, directions, generator, seed), dtype=torch.float32)
    mix.requires_grad_()
    vectors = [torch.as_tensor(frame, dtype=torch.float32) for frame in part]
    own = torch.as_tensor(directions / np.abs(directions).max(), dtype=torch.float32)
    bases = [z.T @ own for z in vectors]  # (d, k)
    scale = LogitScale(temperature)
    contrast = contrast_of(loss, gate, scale)
    eye = torch.eye(n_anchors)

    def objective(items: Tensor) -> Tensor:
        relative = [
            left_out(z[items], basis, own[items], len(z)) @ mix.T
            for z, basis in zip(vectors, bases, strict=True)
        ]
        gram = mix.T @ mix
        return contrast(relative) + orthogonality * ((gram / gram.diagonal().mean()) - eye).square().sum() / (
            n_anchors
        )

    unseen = [torch.as_tensor(frame, dtype=torch.float32) for frame in held]
    losses, checks = descend(
        [{"params": [mix], "lr": learning_rate}, {"params": list(scale.parameters()), "lr": learning_rate}],
        objective,
        fitted.size,
        steps=steps,
        batch=batch,
        generator=generator,
        patience=patience,
        check=lambda: contrast([z @ basis @ mix.T for z, basis in zip(unseen, bases, strict=True)]),
    )
    deviation = np.zeros((n_anchors, m))
    deviation[:, fitted] = mix.detach().double().numpy() @ directions.T
    return LearnedAnchors(row_stochastic(deviation), losses, checks, float(scale().detach()))


def hold_out(
    frames: Sequence[FloatArray], patience: int, generator: torch.Generator
) -> tuple[Any, list[FloatArray], list[FloatArray]]:
    """Keep a tenth of the items back where learning may stop early: rows fitted, their frames, the other frames."""
    m = frames[0].shape[0]
    order = torch.randperm(m, generator=generator).numpy()
    count = max(2, m // 10) if patience else 0  # one item alone has nothing to be told from
    fitted = np.sort(order[count:])
    part = [frame[fitted] for frame in frames] if patience else list(frames)  # all of them need no copy
    return fitted, part, [frame[order[:count]] for frame in frames]


def left_out(z: Tensor, basis: Tensor, own: Tensor, m: int) -> Tensor:
    """Predict (b, k) what whitened vectors z (b, d) would regress to had their own items not been fitted.

    `basis` (d, k) is Z'Y for the m fitted items' vectors Z and targets Y of mean 0, `own` (b, k) the rows of Y.
    """
    leverage = (z * z).sum(1, keepdim=True) / (m - 1)  # (b, 1)
    return (z @ basis / (m - 1) - leverage * own) / (1 - leverage).clamp_min(0.05)


def contrast_of(loss: str, gate: Gate | None, scale: LogitScale) -> Callable[[Sequence[Tensor]], Tensor]:
    """Make the mean symmetric contrastive loss over all pairs of encoders' relative vectors (b, k)."""
    _checks.one_of("loss", loss, LOSSES)
    if gate is not None and loss != "weince":
        raise _checks.InvalidInput(f'gate is given but loss is {loss!r}; pass loss="weince" or no gate.')
    module = (
        WEINCELoss(scale, layout="symmetric", gate=gate) if loss == "weince" else SymmetricInfoNCELoss(scale)
    )
    return lambda relative: torch.stack([module(a, b) for a, b in itertools.combinations(relative, 2)]).mean()


def descend(
    groups: list[dict[str, Any]],
    objective: Callable[[Tensor], Tensor],
    n_items: int,
    *,
    steps: int,
    batch: int,
    generator: torch.Generator,
    patience: int,
    check: Callable[[], Tensor],
) -> tuple[FloatArray, FloatArray]:
    """Minimise over random batches of item numbers; with patience, leave the best parameters by `check`.

    Returns
    -------
    losses, checks : arrays
    """
    parameters = [value for group in groups for value in group["params"]]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    losses, checks = [], []
    kept = [value.detach().clone() for value in parameters]
    for step in range(steps):
        value = objective(torch.randperm(n_items, generator=generator)[:batch])
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(float(value.detach()))
        if patience and step % 5 == 4:
            with torch.no_grad():
                checks.append(float(check()))
            if checks[-1] == min(checks):
                kept = [value.detach().clone() for value in parameters]
            elif len(checks) - int(np.argmin(checks)) > patience:
                break
    if checks:
        with torch.no_grad():
            for value, best in zip(parameters, kept, strict=True):
                value.copy_(best)
    return np.asarray(losses), np.asarray(checks)


def _start(
    start: str | FloatArray,
    frames: Sequence[FloatArray],
    directions: FloatArray,
    generator: torch.Generator,
    seed: int,
) -> FloatArray:
    """Write the starting weights as a mix T (k, k) of directions (m, k)."""
    k = directions.shape[1]
    norms = np.linalg.norm(directions, axis=0)  # (k,)
    if not isinstance(start, str):
        return _sized(_deviation(np.asarray(start)) @ (directions / norms**2))
    _checks.one_of("start", start, ["random", "kmeans", "gcca"])
    if start == "gcca":
        return np.eye(k)
    if start == "random":
        return np.asarray(torch.randn((k, k), generator=generator).double() / k**0.5)
    # Written exactly, a cluster is mostly directions without agreement, which are short; so each counts alike.
    return _sized(_deviation(kmeans_anchors(frames, k, seed=seed).toarray()) @ (directions / norms))


def _deviation(weights: FloatArray) -> FloatArray:
    return np.asarray(weights - weights.mean(axis=1, keepdims=True))


def _sized(mix: FloatArray) -> FloatArray:
    """Scale a mix (k, k) to the size of the identity."""
    return np.asarray(mix * np.sqrt(mix.shape[0] / (mix**2).sum()))

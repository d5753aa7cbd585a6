"""A large batch in chunks, with the gradient of one piece: encode twice instead of keeping every activation.

All chunks are encoded without a graph; the loss of the whole batch gives the gradient at each embedding; then
each chunk is encoded again, with its graph, and that gradient is sent through it. Negatives are those of the
whole batch. Layers with batch statistics see chunks; all others make the result equal to one piece.

References: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


def chunked_backward(
    encode: Callable[[Tensor], Tensor],
    views: Sequence[Tensor],
    loss: Callable[..., Tensor],
    *,
    chunk_size: int,
    model: nn.Module,
    backward: Callable[[Tensor], Any] = Tensor.backward,
    unsynced: Callable[[], Any] = nullcontext,
) -> tuple[Tensor, list[Tensor]]:
    """Compute a loss over whole batches and its gradient in the model's weights, in chunks.

    Parameters
    ----------
    encode : callable
        Maps a chunk of a view to embeddings (c, d).
    views : sequence of tensor (n, …)
        The whole batch of each view.
    loss : callable
        Maps the embeddings of all views, each (n, d), to a scalar.
    chunk_size : int
    model : module
        Whose running batch statistics must count each chunk once.
    backward : callable
        Sends a scalar back; a trainer's own, where there is one.
    unsynced : callable
        Makes a context in which processes do not exchange gradients; used for all chunks but the last.

    Returns
    -------
    value, embeddings : scalar tensor, list of tensor (n, d)
        Both detached.

    Notes
    -----
    Random numbers (dropout) are the same in both passes. Memory: one chunk's activations.
    """
    chunks = [(i, chunk) for i, view in enumerate(views) for chunk in torch.split(view, chunk_size)]
    states, parts = [], []
    with torch.no_grad(), _statistics_still(model):
        for _, chunk in chunks:
            states.append(_random_state(chunk.device))
            parts.append(encode(chunk).detach())
    after = _random_state(views[0].device)
    embeddings = [
        torch.cat([part for (j, _), part in zip(chunks, parts, strict=True) if j == i])
        for i in range(len(views))
    ]
    for z in embeddings:
        z.requires_grad_(True)
    value = loss(*embeddings)
    gradients = torch.autograd.grad(value, embeddings)
    pieces = [piece for gradient in gradients for piece in torch.split(gradient, chunk_size)]
    for place, ((_, chunk), piece, state) in enumerate(zip(chunks, pieces, states, strict=True)):
        last = place == len(chunks) - 1
        _set_random_state(state, chunk.device)
        with nullcontext() if last else unsynced():
            backward((encode(chunk) * piece).sum())
    _set_random_state(after, views[0].device)
    return value.detach(), [z.detach() for z in embeddings]


@contextmanager
def _statistics_still(model: nn.Module) -> Iterator[None]:
    """Keep running batch statistics as they are, while batches are still normalised by their own."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._NormBase)]
    tracked = [layer.track_running_stats for layer in norms]
    kept = [(layer.running_mean, layer.running_var, layer.num_batches_tracked) for layer in norms]
    for layer, tracking in zip(norms, tracked, strict=True):
        if tracking and layer.training:
            layer.running_mean, layer.running_var, layer.num_batches_tracked = (
                None if part is None else part.clone()
                for part in (layer.running_mean, layer.running_var, layer.num_batches_tracked)
            )
    try:
        yield
    finally:
        for layer, (mean, variance, count) in zip(norms, kept, strict=True):
            layer.running_mean, layer.running_var, layer.num_batches_tracked = mean, variance, count


def _random_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)

"""A memory of past negatives that knows whose they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latentlink import _checks
from latentlink.losses._choices import as_labels


class Queue(nn.Module):
    """Keep the latest rows and their labels, oldest dropped first.

    Pass its contents as negatives, with labels on both sides: a query's own copy, or another of its label, is
    then no negative. Over several processes append what `latentlink.losses.gather.gather_rows` gives, which is
    in one order everywhere.

    Parameters
    ----------
    size : int
        Rows kept at most.
    columns : int
        Width of a row.

    Examples
    --------
    >>> queue = Queue(size=3, columns=2)
    >>> queue.append(torch.ones(2, 2), torch.tensor([5, 6]))
    >>> queue.append(torch.ones(2, 2), torch.tensor([7, 8]))
    >>> queue.labels  # in no particular order
    tensor([8, 6, 7])
    """

    stored: Tensor
    stored_labels: Tensor
    count: Tensor

    def __init__(self, size: int, columns: int) -> None:
        super().__init__()
        self.size = _checks.integer("size", size, low=1)
        self.register_buffer("stored", torch.zeros(size, _checks.integer("columns", columns, low=1)))
        self.register_buffer("stored_labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))  # rows ever appended

    @property
    def rows(self) -> Tensor:
        """The kept rows, (m, columns), m at most `size`; without a graph."""
        return self.stored[: min(int(self.count), self.size)]

    @property
    def labels(self) -> Tensor:
        """Their labels, (m,)."""
        return self.stored_labels[: min(int(self.count), self.size)]

    @torch.no_grad()
    def append(self, rows: Tensor, labels: Tensor) -> None:
        """Store rows (n, columns) and integer labels (n,) in place of the oldest; of more than `size`, the last."""
        _checks.matrix("rows", rows, min_rows=0, columns=self.stored.shape[1], finite=False)
        labels = as_labels("labels", labels, rows.shape[0])
        n = rows.shape[0]
        places = (torch.arange(n, device=self.stored.device) + self.count) % self.size
        last = slice(max(0, n - self.size), n)
        self.stored[places[last]] = rows[last].to(self.stored)
        self.stored_labels[places[last]] = labels[last].to(self.stored_labels)
        self.count += n

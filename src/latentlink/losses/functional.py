"""The losses as pure functions that return one value a query.

These are the reference: plain torch, one similarity matrix, gradients by autograd, at home under
`torch.compile(fullgraph=True)` and `gradcheck`. The modules reach the same values through
`latentlink.losses.blockwise`, which never stores the matrix.

A query chooses among candidates. Its loss is the negative log-probability of its positive,

    loss = softplus(log Σ_negatives e^logit − logit of the positive),

a form that stays right when the loss is 1e-15, where logsumexp minus the positive returns rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latentlink import _checks
from latentlink.losses import _inputs
from latentlink.losses._choices import Choice, choices_of, one_way_choice, tower_choices, two_view_choice
from latentlink.tails.online import Gate, QueryStatistics

DENOMINATORS = ("own", "all", "none")


def info_nce(
    queries: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float | Tensor = 0.1,
    labels: Tensor | None = None,
    negative_labels: Tensor | None = None,
    same: Tensor | None = None,
    weights: Tensor | None = None,
    denominator: str = "own",
    in_batch: bool | None = None,
    normalize: bool = True,
) -> Tensor:
    """Compute each query's InfoNCE loss, one way.

    Parameters
    ----------
    queries : tensor (n, d)
    positives : tensor (n, d) or (n, p, d)
        The positive of each query, or its p positives; then the loss is the mean over them.
    negatives : tensor (m, d) or (n, m, d), optional
        Shared by all queries, or each query's own.
    temperature : float or tensor of one value
        Divides the similarities; a tensor gets its gradient.
    labels : tensor (n,), optional
        Identity of each pair. Another pair of the same label is neither positive nor negative.
    negative_labels : tensor (m,), optional
        Labels of shared negatives, needed for `labels` to reach them.
    same : bool tensor (n, c), optional
        Candidates that are not negatives of a query, for any reason; c counts the in-batch positives, when they
        are candidates, and then the negatives.
    weights : tensor (n,), optional
        Multiplies each query's loss.
    denominator : {"own", "all", "none"}
        Which positives stand in the denominator beside the negatives: the one whose probability it is, all
        of the query's, or none ("decoupled"; the loss can then be below 0).
    in_batch : bool, optional
        Whether the other queries' positives are negatives. By default they are unless `negatives` are given.
    normalize : bool
        Compare by cosine; otherwise by the inner product of the rows as they are.

    Returns
    -------
    tensor (n,)
        In nats; float32, or float64 for float64 input. A query without negatives has loss 0.

    Raises
    ------
    InvalidInput, InvalidType
        Shapes that do not fit, rows that are not finite, a temperature that is not above 0.

    Notes
    -----
    Cost: n c d multiply-adds and a few (n, c) matrices. Half types are computed in float32.

    References: van den Oord et al. 2018; Chuang et al. 2020 and Yeh et al. 2022 for the denominators.

    Examples
    --------
    >>> x = torch.eye(3)
    >>> info_nce(x, x, temperature=1.0).mul(1e4).round().div(1e4)
    tensor([0.5514, 0.5514, 0.5514])
    """
    tau = _inputs.temperature(temperature)
    _checks.one_of("denominator", denominator, DENOMINATORS)
    choice = one_way_choice(queries, positives, negatives, labels, negative_labels, same, in_batch, normalize)
    return weighted(choice_losses(choice.similarities / tau, choice, denominator), weights)


def nt_xent(
    z0: Tensor,
    z1: Tensor,
    *,
    temperature: float | Tensor = 0.5,
    labels: Tensor | None = None,
    same: Tensor | None = None,
    weights: Tensor | None = None,
    denominator: str = "own",
    normalize: bool = True,
) -> Tensor:
    """Compute each view's NT-Xent loss: every other row of both views is a candidate.

    Parameters
    ----------
    z0, z1 : tensor (n, d)
        Two views of n items; row i of one is the positive of row i of the other.
    temperature : float or tensor of one value
    labels : tensor (n,), optional
        Identity of each item. Another item of the same label is not a negative.
    same : bool tensor (n, n) or (2n, 2n), optional
        Pairs that are not negatives, of items or of views.
    weights : tensor (2n,), optional
        Multiplies each view's loss.
    denominator : {"own", "all", "none"}
        See `info_nce`.
    normalize : bool
        Compare by cosine; otherwise by the inner product.

    Returns
    -------
    tensor (2n,)
        In nats: the n views of `z0`, then those of `z1`.

    Raises
    ------
    InvalidInput, InvalidType
        See `info_nce`.

    Notes
    -----
    Cost: 4 n² d multiply-adds and a few (2n, 2n) matrices.

    References: Chen et al. 2020.

    Examples
    --------
    >>> collapsed = torch.ones(4, 2)
    >>> float(nt_xent(collapsed, collapsed).mean().exp())  # 2n − 1 candidates, none better than another
    7.0000...
    """
    tau = _inputs.temperature(temperature)
    _checks.one_of("denominator", denominator, DENOMINATORS)
    choice = two_view_choice(z0, z1, labels, same, normalize)
    return weighted(choice_losses(choice.similarities / tau, choice, denominator), weights)


def symmetric_info_nce(
    a: Tensor,
    b: Tensor,
    *,
    temperature: float | Tensor = 0.07,
    labels: Tensor | None = None,
    same: Tensor | None = None,
    weights: Tensor | None = None,
    denominator: str = "own",
    normalize: bool = True,
) -> Tensor:
    """Compute the InfoNCE losses of paired towers, in both directions.

    Parameters
    ----------
    a, b : tensor (n, d)
        Row i of `a` belongs to row i of `b`; other rows of the other tower are negatives.
    temperature : float or tensor of one value
    labels : tensor (n,), optional
        Identity of each pair. Another pair of the same label is not a negative.
    same : bool tensor (n, n), optional
        Pairs (i of `a`, j of `b`) that are not negatives.
    weights : tensor (2n,), optional
        Multiplies each query's loss.
    denominator : {"own", "all", "none"}
        See `info_nce`.
    normalize : bool
        Compare by cosine; otherwise by the inner product.

    Returns
    -------
    tensor (2n,)
        In nats: n queries of `a` among `b`, then n of `b` among `a`. Its mean is CLIP's loss.

    Raises
    ------
    InvalidInput, InvalidType
        See `info_nce`.

    Notes
    -----
    Cost: n² d multiply-adds and a few (n, n) matrices.

    References: Radford et al. 2021.

    Examples
    --------
    >>> x = torch.eye(2)
    >>> symmetric_info_nce(x, x, temperature=1.0).shape
    torch.Size([4])
    """
    tau = _inputs.temperature(temperature)
    _checks.one_of("denominator", denominator, DENOMINATORS)
    there, back = tower_choices(a, b, labels, same, normalize)
    halves = [choice_losses(choice.similarities / tau, choice, denominator) for choice in (there, back)]
    return weighted(torch.cat(halves), weights)


def weince(
    z0: Tensor,
    z1: Tensor,
    negatives: Tensor | None = None,
    *,
    layout: str = "nt_xent",
    temperature: float | Tensor = 0.5,
    gate: Gate | None = None,
    statistics: QueryStatistics | None = None,
    endpoint: float = 1.0,
    labels: Tensor | None = None,
    negative_labels: Tensor | None = None,
    same: Tensor | None = None,
    weights: Tensor | None = None,
    denominator: str = "own",
    in_batch: bool | None = None,
    normalize: bool = True,
) -> Tensor:
    """Compute each query's WEINCE loss: InfoNCE whose logit bends towards a shortfall law near the endpoint.

    The logit is (1 − blend) s / temperature − blend · beta · log(max(endpoint − s, floor) + softening), with a
    beta and a blend of each query's own, computed from its negatives' tail and held constant in the gradient.

    Parameters
    ----------
    z0, z1 : tensor (n, d)
        Two views, or queries and positives, or two towers, by `layout`.
    negatives : tensor (m, d) or (n, m, d), optional
        For ``layout="one_way"`` only.
    layout : {"nt_xent", "one_way", "symmetric"}
        The candidates and the order of the result are those of `nt_xent`, `info_nce`, `symmetric_info_nce`.
    temperature : float or tensor of one value
    gate : Gate, optional
        Rule for beta and blend; by default likelihood evidence and an absolute pivot.
    statistics : QueryStatistics, optional
        Use these instead of computing them, for instance those of an earlier step.
    endpoint : float
        Largest possible similarity.
    labels, negative_labels, same, weights, denominator, in_batch, normalize
        See `info_nce`.

    Returns
    -------
    tensor (n,) or (2n,)
        In nats. Where blend is 0 it is InfoNCE to the last bit.

    Raises
    ------
    InvalidInput, InvalidType
        See `info_nce`; also similarities above the endpoint beyond rounding.

    Notes
    -----
    Cost: that of the plain loss, one top-k of each query, and a logarithm of each similarity.

    References: "When Softmax Fails at the Top", arXiv 2606.00262.

    Examples
    --------
    >>> x = torch.eye(3)
    >>> bool((weince(x, x) == nt_xent(x, x)).all())  # too few negatives to say anything
    True
    """
    tau = _inputs.temperature(temperature)
    rule = Gate() if gate is None else gate
    known_rule(rule, statistics)
    limit = _checks.number("endpoint", endpoint)
    _checks.one_of("denominator", denominator, DENOMINATORS)
    choices = choices_of(z0, z1, negatives, layout, labels, negative_labels, same, in_batch, normalize)
    return weighted(bent_losses(choices, tau, limit, rule, denominator, statistics), weights)


def known_rule(gate: Gate, statistics: QueryStatistics | None) -> None:
    """Raise when the rule, or the statistics that replace it, are of another kind."""
    _checks.instance("gate", gate, Gate, "a latentlink.tails.online.Gate")
    if statistics is not None:
        needs = "QueryStatistics, as WEINCELoss.statistics gives them"
        _checks.instance("statistics", statistics, QueryStatistics, needs)


def choice_losses(logits: Tensor, choice: Choice, denominator: str) -> Tensor:
    """Score each query's positives: logits (r, c) to losses (r,); 0 where there is nothing to choose.

    Masked entries are filled after the division by the temperature, so that no infinity meets a gradient.
    """
    if logits.shape[1] == 0:
        return logits.sum(dim=1)
    low = torch.finfo(logits.dtype).min / 8
    negative = torch.logsumexp(logits.masked_fill(~choice.negative, low), dim=1)  # (r,)
    count = choice.positive.sum(dim=1)  # (r,)
    rest = negative
    if denominator == "all":
        every = torch.logsumexp(logits.masked_fill(~(choice.positive | choice.negative), low), dim=1)
        terms = every[:, None] - logits
    elif denominator == "none":
        terms = rest[:, None] - logits
    else:
        terms = torch.logaddexp(torch.zeros_like(logits), rest[:, None] - logits)
    terms = terms.masked_fill(~choice.positive, 0.0).sum(dim=1) / count.clamp(min=1)
    chosen = choice.negative.any(dim=1) if denominator != "all" else count > 0
    return torch.where(chosen & (count > 0), terms, torch.zeros_like(terms))


def bent_losses(
    choices: list[Choice],
    tau: float | Tensor,
    endpoint: float,
    gate: Gate,
    denominator: str,
    statistics: QueryStatistics | None = None,
) -> Tensor:
    """Score the positives of all choices, one after the other, with the WEINCE logit: (q,)."""
    shortfalls = [exact_shortfalls(choice, endpoint, gate) for choice in choices]
    if statistics is None:
        statistics = tail_statistics(choices, shortfalls, gate)
    sizes = [choice.similarities.shape[0] for choice in choices]
    blends, betas = statistics.blend.split(sizes), statistics.beta.split(sizes)
    parts = [
        choice_losses(_blended(choice, shortfall, tau, blend, beta, gate), choice, denominator)
        for choice, shortfall, blend, beta in zip(choices, shortfalls, blends, betas, strict=True)
    ]
    return torch.cat(parts)


def exact_shortfalls(choice: Choice, endpoint: float, gate: Gate) -> Tensor:
    """Compute endpoint − similarity (r, c), without cancellation where rows are nearest.

    For unit rows and endpoint 1 the largest similarities of each query are computed again as half a squared
    distance: 1 − s of float32 has an error of 1e-7, all of it when s is within 1e-6 of 1.
    """
    s = choice.similarities
    if not torch.compiler.is_compiling() and s.device.type == "cpu" and s.numel():
        taking_part = s.detach().masked_fill(~(choice.positive | choice.negative), -torch.inf)
        _inputs.below_endpoint(taking_part.amax(), endpoint)
    shortfall = endpoint - s
    if choice.unit and endpoint == 1.0 and s.numel():
        nearest = min(s.shape[1], max(64, gate.columns(choice.n_negatives)) + 1)
        part = choice.positive | choice.negative
        columns = s.detach().masked_fill(~part, -torch.inf).topk(nearest, dim=1).indices  # (r, k)
        if choice.candidates.ndim == 2:
            near = choice.candidates[columns]  # (r, k, d)
        else:
            near = torch.take_along_dim(choice.candidates, columns[..., None], dim=1)
        exact = 0.5 * (choice.queries[:, None, :] - near).square().sum(dim=2)
        shortfall = shortfall.scatter(1, columns, exact)
    return shortfall.clamp(min=0.0)


def tail_statistics(choices: list[Choice], shortfalls: list[Tensor], gate: Gate) -> QueryStatistics:
    """Read each query's tail: shortfalls of all choices, one after the other, to one set of statistics."""
    columns = gate.columns(min(choice.n_negatives for choice in choices))
    tails = []
    for choice, shortfall in zip(choices, shortfalls, strict=True):
        negatives = shortfall.detach().masked_fill(~choice.negative, torch.inf)
        tails.append(negatives.topk(columns, dim=1, largest=False).values)  # ascending (r, columns)
    return gate.statistics(torch.cat(tails))


def _blended(
    choice: Choice, shortfall: Tensor, tau: float | Tensor, blend: Tensor, beta: Tensor, gate: Gate
) -> Tensor:
    """Blend both logits: (r, c). Where blend is 0 the softmax logit comes out unchanged, bit for bit."""
    soft = choice.similarities / tau
    bent = -beta[:, None] * torch.log(shortfall.clamp(min=gate.floor) + gate.softening)
    share = blend[:, None].to(soft.dtype)
    return (1 - share) * soft + share * bent


def weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Multiply losses by weights of the same shape."""
    if weights is None:
        return losses
    _inputs.tensor("weights", weights)
    if weights.shape != losses.shape:
        raise _checks.InvalidInput(
            f"weights has shape {tuple(weights.shape)}; needs {tuple(losses.shape)}, one value for each query."
        )
    return losses * weights

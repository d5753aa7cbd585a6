"""Similarity search as a random choice model.

Similarities go through a link into logits; a link, a temperature and a number of negatives make a loss; the
upper tail of the similarities says which link is right; theory says how far a search is from the ideal one; and
spaces expressed by similarities to shared anchors let encoders that never met search one index.

Importing latentlink loads NumPy and nothing heavier: every name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from latentlink._lazy import lazy

if TYPE_CHECKING:
    from latentlink._checks import InvalidInput, InvalidType, MissingExtra
    from latentlink.links import Link
    from latentlink.risk import certify, negatives_needed
    from latentlink.search import Index
    from latentlink.similarity import cosine, dot, normalize, top_k
    from latentlink.spaces import RelativeSpace, compare_maps, load_space
    from latentlink.tails import choose_link, fit_tail, judge, take_tail
    from latentlink.whitening import Whitener

_HOMES = {
    "InvalidInput": "_checks",
    "InvalidType": "_checks",
    "MissingExtra": "_checks",
    "Link": "links",
    "Index": "search",
    "RelativeSpace": "spaces",
    "Whitener": "whitening",
    "certify": "risk",
    "choose_link": "tails",
    "compare_maps": "spaces",
    "cosine": "similarity",
    "dot": "similarity",
    "fit_tail": "tails",
    "judge": "tails",
    "load_space": "spaces",
    "negatives_needed": "risk",
    "normalize": "similarity",
    "take_tail": "tails",
    "top_k": "similarity",
}

__all__ = [
    "Index",
    "InvalidInput",
    "InvalidType",
    "Link",
    "MissingExtra",
    "RelativeSpace",
    "Whitener",
    "certify",
    "choose_link",
    "compare_maps",
    "cosine",
    "dot",
    "fit_tail",
    "judge",
    "load_space",
    "negatives_needed",
    "normalize",
    "take_tail",
    "top_k",
]


_find, _names = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("latentlink")
    return _find(name)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]

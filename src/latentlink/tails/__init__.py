"""Extreme-value statistics of the upper tail of similarities: it tells which link the data ask for."""

from latentlink.tails.choice import LinkChoice, choose_link
from latentlink.tails.pareto import TailFit, TailSummary, fit_tail
from latentlink.tails.sample import Tail, take_tail
from latentlink.tails.verdicts import Verdict, judge

__all__ = [
    "LinkChoice",
    "Tail",
    "TailFit",
    "TailSummary",
    "Verdict",
    "choose_link",
    "fit_tail",
    "judge",
    "take_tail",
]

"""Extreme-value statistics of the upper tail of similarities: it tells which link the data ask for."""

from latentlink.tails.choice import LinkChoice, choose_link
from latentlink.tails.diagnosis import Diagnosis, diagnose
from latentlink.tails.evidence import Evidence, weigh
from latentlink.tails.goodness import Goodness, ThresholdChoice, choose_threshold, forward_stop, goodness
from latentlink.tails.maxima import MaximaFit, fit_maxima, maxima_by_size, xi_from_scipy
from latentlink.tails.pareto import TailFit, TailSummary, fit_tail
from latentlink.tails.sample import Tail, take_tail
from latentlink.tails.verdicts import EndpointTest, Verdict, endpoint_test, judge
from latentlink.tails.winners import ChoiceSets, positive_choices, view_choices

__all__ = [
    "ChoiceSets",
    "Diagnosis",
    "EndpointTest",
    "Evidence",
    "Goodness",
    "LinkChoice",
    "MaximaFit",
    "Tail",
    "TailFit",
    "TailSummary",
    "ThresholdChoice",
    "Verdict",
    "choose_link",
    "choose_threshold",
    "diagnose",
    "endpoint_test",
    "fit_maxima",
    "fit_tail",
    "forward_stop",
    "goodness",
    "judge",
    "maxima_by_size",
    "positive_choices",
    "take_tail",
    "view_choices",
    "weigh",
    "xi_from_scipy",
]

"""Theory of similarity search, as numbers one can act on.

`certify` says how far a trained encoder's search is from ideal, with an interval; `negatives_needed`,
`pairs_needed` and `temperature_needed` read it backwards; the other names are the theory behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentlink._lazy import lazy

if TYPE_CHECKING:
    from latentlink.risk.bounds import ContinuityBound, continuity_bound, loss_range, weight_cap
    from latentlink.risk.certificate import Certificate, certify
    from latentlink.risk.complexity import (
        CombinedBound,
        combined_bound,
        cover_deviation,
        empirical_bernstein,
        pool_mcdiarmid,
        rademacher_linear,
        rademacher_lipschitz,
    )
    from latentlink.risk.curve import RiskCurve, risk_curve
    from latentlink.risk.estimators import RowStatistics, row_statistics, upper_with_virtual
    from latentlink.risk.expansion import predict_bias
    from latentlink.risk.finite_k import (
        bias_sandwich,
        concentration_bias,
        remainder,
        universal_bias,
        universal_constant,
    )
    from latentlink.risk.gates import Gate, judge_rows
    from latentlink.risk.kernels import (
        SearchCost,
        extrapolate_corpus,
        search_cross_entropies,
        search_kernel,
        self_normalised_error,
    )
    from latentlink.risk.lipschitz import ParameterLipschitz, lipschitz_of_model, lipschitz_of_weights
    from latentlink.risk.needed import Needed, negatives_for, negatives_needed, pairs_needed, temperature_needed
    from latentlink.risk.temperature import (
        Shift,
        ShiftBounds,
        calibrate_temperature,
        measure_shift,
        shift_bounds,
    )
    from latentlink.risk.worlds import ExactWorld

_HOMES = {
    "Certificate": "certificate",
    "CombinedBound": "complexity",
    "ContinuityBound": "bounds",
    "ExactWorld": "worlds",
    "Gate": "gates",
    "Needed": "needed",
    "ParameterLipschitz": "lipschitz",
    "RiskCurve": "curve",
    "RowStatistics": "estimators",
    "SearchCost": "kernels",
    "Shift": "temperature",
    "ShiftBounds": "temperature",
    "bias_sandwich": "finite_k",
    "calibrate_temperature": "temperature",
    "certify": "certificate",
    "combined_bound": "complexity",
    "concentration_bias": "finite_k",
    "continuity_bound": "bounds",
    "cover_deviation": "complexity",
    "empirical_bernstein": "complexity",
    "extrapolate_corpus": "kernels",
    "judge_rows": "gates",
    "lipschitz_of_model": "lipschitz",
    "lipschitz_of_weights": "lipschitz",
    "loss_range": "bounds",
    "measure_shift": "temperature",
    "negatives_for": "needed",
    "negatives_needed": "needed",
    "pairs_needed": "needed",
    "pool_mcdiarmid": "complexity",
    "predict_bias": "expansion",
    "rademacher_linear": "complexity",
    "rademacher_lipschitz": "complexity",
    "remainder": "finite_k",
    "risk_curve": "curve",
    "row_statistics": "estimators",
    "search_cross_entropies": "kernels",
    "search_kernel": "kernels",
    "self_normalised_error": "kernels",
    "shift_bounds": "temperature",
    "temperature_needed": "needed",
    "universal_bias": "finite_k",
    "universal_constant": "finite_k",
    "upper_with_virtual": "estimators",
    "weight_cap": "bounds",
}

__all__ = [
    "Certificate",
    "CombinedBound",
    "ContinuityBound",
    "ExactWorld",
    "Gate",
    "Needed",
    "ParameterLipschitz",
    "RiskCurve",
    "RowStatistics",
    "SearchCost",
    "Shift",
    "ShiftBounds",
    "bias_sandwich",
    "calibrate_temperature",
    "certify",
    "combined_bound",
    "concentration_bias",
    "continuity_bound",
    "cover_deviation",
    "empirical_bernstein",
    "extrapolate_corpus",
    "judge_rows",
    "lipschitz_of_model",
    "lipschitz_of_weights",
    "loss_range",
    "measure_shift",
    "negatives_for",
    "negatives_needed",
    "pairs_needed",
    "pool_mcdiarmid",
    "predict_bias",
    "rademacher_linear",
    "rademacher_lipschitz",
    "remainder",
    "risk_curve",
    "row_statistics",
    "search_cross_entropies",
    "search_kernel",
    "self_normalised_error",
    "shift_bounds",
    "temperature_needed",
    "universal_bias",
    "universal_constant",
    "upper_with_virtual",
    "weight_cap",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)

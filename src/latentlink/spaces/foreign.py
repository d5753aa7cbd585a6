"""Is this vector of this space? Energies and contrasts against what was fitted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.spaces.contrast import contrasts, limits
from latentlink.spaces.encoder import LEVELS, Profile
from latentlink.spaces.relative import RelativeSpace

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

_NORM_SLACK = 1.05  # of the fitted 0.1 % and 99.9 % quantiles, which coincide where vectors have length 1


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` thinks of a set of vectors.

    Attributes
    ----------
    verdict : {"same", "scaled", "sign-flipped", "permuted", "rotated", "other"}
    foreign_share : float
        Share of the vectors whose energy passes the 99.9 % quantile of the fitted ones.
    factor : float
        Median norm over the fitted median norm.
    paired : bool
        Whether stored vectors of the same items were at hand. Without them a rotation cannot be told from
        another encoder.
    details : dict
        Without probes, the mean contrasts of the vectors under each story that was tried and what they may be at
        most (see `latentlink.spaces.contrast`); with probes, the relative error of every story.
    blind : tuple of {"negated", "altered"}
        What so many vectors of this encoder cannot show without probes, because its own vectors look the same
        upside down, or with random signs.
    """

    verdict: str
    foreign_share: float
    factor: float
    paired: bool
    details: dict[str, float]
    blind: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self)


def foreign_rows(
    space: RelativeSpace, embeddings: Any, *, source: str, false_alarms: float = 0.001
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell which vectors (n, d) do not look like vectors of `source`.

    Parameters
    ----------
    space : RelativeSpace
    embeddings : array (n, d)
    source : str
    false_alarms : {0.001, 0.01, 0.05}
        Share of the encoder's own vectors that may be called foreign; the threshold is that quantile of the
        whitened energies of the fitted vectors, each taken as if it had not been fitted.

    Returns
    -------
    bool array (n,)
    """
    profile = _profile(space, source)
    x = _rows(embeddings, profile)
    return np.asarray(profile.energy(x) > _threshold(profile, false_alarms))


def doctor(space: RelativeSpace, embeddings: Any, *, source: str, probes: bool = False) -> Diagnosis:
    """Say whether vectors come from the encoder `source`, and if not, what was done to them.

    Parameters
    ----------
    space : RelativeSpace
    embeddings : array (n, d)
        At least 8 vectors of ordinary items; or, with `probes`, those of ``space.probe_ids`` in that order.
    source : str
    probes : bool
        Compare with the stored vectors of the same items, which tells all six cases apart.

    Returns
    -------
    Diagnosis
    """
    profile = _profile(space, source)
    x = _rows(embeddings, profile, least=8)
    factor = float(np.median(np.linalg.norm(x, axis=1))) / fitted_norm(space, source)
    share = float((profile.energy(x) > _threshold(profile, 0.001)).mean())
    if not probes:
        return _unpaired(profile, x, factor, share)
    if x.shape[0] != profile.probes.shape[0]:
        raise _checks.InvalidInput(
            f"embeddings has {x.shape[0]} rows; the space keeps {profile.probes.shape[0]} probes. "
            "Encode the items space.probe_ids in their order."
        )
    kept = np.isfinite(profile.probes).all(axis=1)
    if kept.sum() < 8:
        raise _checks.InvalidInput(
            f"probes is True, but {source!r} had seen only {int(kept.sum())} probe items when it was fitted; "
            "needs 8."
        )
    return _paired(profile.probes[kept].astype(np.float64), x[kept], factor, share)


def fitted_norm(space: RelativeSpace, source: str) -> float:
    """Return the median norm of the vectors of an encoder that were fitted."""
    return float(_profile(space, source).norms[LEVELS.index(0.5)])


def _unpaired(profile: Profile, x: FloatArray, factor: float, share: float) -> Diagnosis:
    """Take the first simple story under which the law explains the vectors better than altered copies of them."""
    least, most = profile.norms[0], profile.norms[-1]
    norm = factor * profile.norms[LEVELS.index(0.5)]
    sized = bool(least / _NORM_SLACK <= norm <= most * _NORM_SLACK)
    at_most, telling = limits(profile.signature, len(x))
    details = {"negated (at most)": float(at_most[0]), "random signs (at most)": float(at_most[1])}

    def at_home(story: str, y: FloatArray) -> bool:
        found = contrasts(y, profile.mean, profile.whitening).mean(axis=0)
        details[f"{story}: negated"], details[f"{story}: random signs"] = map(float, found)
        return bool((found <= at_most).all())

    y = x if sized else x / factor
    if at_home("same" if sized else "scaled", y):
        verdict = "same" if sized else "scaled"
    else:
        verdict = "sign-flipped" if at_home("sign-flipped", -y) else "other"
    blind = tuple(name for name, seen in zip(("negated", "altered"), telling, strict=True) if not seen)
    return Diagnosis(verdict, share, factor, False, details, blind)


def _paired(probes: FloatArray, x: FloatArray, factor: float, share: float) -> Diagnosis:
    """Compare with the stored vectors of the same items; every statistic is a relative error."""

    def error(a: FloatArray, b: FloatArray) -> float:
        return float(np.linalg.norm(a - b) / np.linalg.norm(b))

    size = np.linalg.norm(x) / np.linalg.norm(probes)
    scaled = x / size
    order = _match_columns(scaled, probes)
    signs = np.sign((scaled * probes).sum(axis=0))
    details = {
        "same": error(x, probes),
        "scaled": error(scaled, probes),
        "sign-flipped": error(scaled * np.where(signs == 0, 1.0, signs), probes),
        "permuted": error(scaled[:, order], probes),
        "rotated": error(scaled @ scaled.T, probes @ probes.T),
    }
    # int8 and other runtimes differ by a few per cent; unrelated vectors by over 100.
    verdict = next((name for name, value in details.items() if value < 0.1), "other")
    return Diagnosis(verdict, share, factor, True, details)


def _match_columns(x: FloatArray, probes: FloatArray) -> np.ndarray[Any, Any]:
    from scipy.optimize import linear_sum_assignment

    distance = (probes**2).sum(axis=0)[:, None] - 2 * probes.T @ x + (x**2).sum(axis=0)  # (d, d)
    return np.asarray(linear_sum_assignment(distance)[1])


def _profile(space: RelativeSpace, source: str) -> Profile:
    from latentlink.spaces.relative import known_space

    known_space(space)
    _checks.one_of("source", source, space.names)
    return space.encoders_[source].profile


def _rows(embeddings: Any, profile: Profile, least: int = 1) -> FloatArray:
    x = _checks.numpy_matrix("embeddings", embeddings, columns=profile.mean.size, min_rows=least)
    return x.astype(np.float64, copy=False)


def _threshold(profile: Profile, false_alarms: float) -> float:
    allowed = [round(1 - level, 3) for level in LEVELS if level > 0.9]
    if _checks.number("false_alarms", false_alarms) not in allowed:
        raise _checks.InvalidInput(
            f"false_alarms is {false_alarms}; needs one of {', '.join(map(str, allowed))}."
        )
    return float(profile.energies[LEVELS.index(round(1 - false_alarms, 3))])

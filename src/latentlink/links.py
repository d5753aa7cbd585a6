"""Links: how a similarity becomes the logit of a random choice.

A query picks the candidate of largest random utility. Which law its utilities' maxima follow decides the link
(extreme-value theory has three):

========== ========= ============================ ==============================
link       domain    utility                      logit
========== ========= ============================ ==============================
softmax    Gumbel    s + temperature G            s / temperature
shortfall  Weibull   endpoint − (endpoint − s) W  −beta log(endpoint − s)
power      Fréchet   origin + (s − origin) V      alpha log(s − origin)
========== ========= ============================ ==============================

with G standard Gumbel, W Weibull of exponent beta and V Fréchet of exponent alpha. The blend of the first two,
(1 − blend) s / temperature − blend beta log(endpoint − s), is the WEINCE logit.

References: Yellott 1977 (softmax from Gumbel utilities); Fosgerau and Bierlaire 2009 (multiplicative errors);
"When Softmax Fails at the Top", arXiv 2606.00262 (the blend).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, is_tensor, namespace

# Rounding of a float32 cosine; anything farther beyond the endpoint is a mistake of the caller.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Link:
    """Turn similarities into logits.

    Make one by `softmax`, `shortfall`, `power` or `blended`, which check their arguments.

    Attributes
    ----------
    temperature : float
        Divides the similarity in the softmax part.
    beta : float
        Exponent of the shortfall part, or alpha of the power link.
    blend : float
        Share of the shortfall part, in [0, 1].
    endpoint : float
        Largest possible similarity; 1 for cosine.
    softening : float
        Added to the shortfall, so that the logit is finite at the endpoint: its slope is at most
        blend · beta / softening.
    origin : float or None
        Left end of the power link; None for the others.

    Examples
    --------
    >>> Link.softmax(0.5).logits(np.array([0.0, 1.0]))
    array([0., 2.])
    >>> Link.shortfall(2.0).logits(np.array([0.0, 0.5])).round(4)
    array([-0.    ,  1.3863])
    """

    temperature: float = 1.0
    beta: float = 1.0
    blend: float = 0.0
    endpoint: float = 1.0
    softening: float = 1e-6
    origin: float | None = None

    def __post_init__(self) -> None:
        _checks.number("temperature", self.temperature, low=0, open_low=True)
        _checks.number("beta", self.beta, low=0, open_low=True)
        _checks.number("blend", self.blend, low=0, high=1)
        _checks.number("endpoint", self.endpoint)
        _checks.number("softening", self.softening, low=0)
        if self.origin is not None:
            _checks.number("origin", self.origin)

    @classmethod
    def of(cls, link: Link | None, temperature: float) -> Link:
        """Return `link`, or the softmax link of a temperature where there is none."""
        if link is None:
            return cls.softmax(temperature)
        known_link(link)
        return link

    @classmethod
    def softmax(cls, temperature: float) -> Link:
        """Make the link of InfoNCE: similarity / temperature."""
        return cls(temperature=temperature)

    @classmethod
    def shortfall(cls, beta: float, *, endpoint: float = 1.0, softening: float = 1e-6) -> Link:
        """Make the link of similarities that pile up below an endpoint: −beta log(endpoint − s)."""
        return cls.blended(1.0, temperature=1.0, beta=beta, endpoint=endpoint, softening=softening)

    @classmethod
    def power(cls, alpha: float, *, origin: float = -1.0) -> Link:
        """Make the link of heavy-tailed utilities: alpha log(s − origin)."""
        return cls(
            beta=_checks.number("alpha", alpha, low=0, open_low=True),
            origin=origin,
            softening=0.0,
        )

    @classmethod
    def blended(
        cls,
        blend: float,
        *,
        temperature: float,
        beta: float,
        endpoint: float = 1.0,
        softening: float = 1e-6,
    ) -> Link:
        """Make the WEINCE link: (1 − blend) s / temperature − blend beta log(endpoint − s + softening)."""
        return cls(
            temperature=temperature,
            beta=beta,
            blend=blend,
            endpoint=endpoint,
            softening=softening,
        )

    @property
    def kind(self) -> str:
        """The name of the link: "softmax", "shortfall", "power" or "blend"."""
        if self.origin is not None:
            return "power"
        return {0.0: "softmax", 1.0: "shortfall"}.get(self.blend, "blend")

    @property
    def bounded(self) -> bool:
        """Whether logits of similarities in [−1, 1] are bounded, as the bounds of `risk` need."""
        return self.kind == "softmax"

    def logits(self, similarities: Array) -> Array:
        """Compute the logit of each similarity.

        Parameters
        ----------
        similarities : array or tensor, any shape
            At most `endpoint` (a rounding error of 1e-4 is taken as the endpoint); above `origin`.

        Returns
        -------
        array or tensor of the same shape

        Raises
        ------
        InvalidInput
            A similarity lies beyond the endpoint, or at or below the origin.
        """
        s = _real(similarities)
        xp = namespace(s)
        if self.origin is not None:
            lowest = float(xp.min(s)) if _size(s) else np.inf
            if lowest <= self.origin:
                raise _checks.InvalidInput(
                    f"similarity {lowest:g} is not above the origin {self.origin:g}; "
                    "the power link is undefined there. Lower the origin."
                )
            return self.beta * xp.log(s - self.origin)
        if self.blend == 0:
            return s / self.temperature
        shortfall_logit = -self.beta * xp.log(self._shortfalls(s) + self.softening)
        if self.blend == 1:
            return shortfall_logit
        return (1 - self.blend) * s / self.temperature + self.blend * shortfall_logit

    def slope(self, similarities: Array) -> Array:
        """Compute the derivative of the logit with respect to the similarity, in the same shape."""
        s = _real(similarities)
        if self.origin is not None:
            return self.beta / (s - self.origin)
        flat = namespace(s).ones_like(s) * ((1 - self.blend) / self.temperature)
        if self.blend == 0:
            return flat
        return flat + self.blend * self.beta / (self._shortfalls(s) + self.softening)

    def _shortfalls(self, s: Array) -> Array:
        xp = namespace(s)
        highest = float(xp.max(s)) if _size(s) else -np.inf
        if highest > self.endpoint + _TOLERANCE:
            raise _checks.InvalidInput(
                f"similarity {highest:g} exceeds the endpoint {self.endpoint:g} beyond rounding "
                f"(tolerance {_TOLERANCE:g}); are the rows normalised?"
            )
        return xp.clip(self.endpoint - s, 0.0, None)


def known_link(link: object) -> None:
    """Raise when `link` is no Link."""
    _checks.instance("link", link, Link, "a Link, such as Link.softmax(0.1)")


def _real(similarities: Array) -> Array:
    return similarities if is_tensor(similarities) else _checks.real("similarities", similarities)


def _size(s: Array) -> int:
    return int(np.prod(s.shape))

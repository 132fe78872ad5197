"""Norm balls: what they share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from .._protocols import Array, Constraint, Iterate, Shape


def check_radius(constraint: Any) -> None:
    """Raise a ValueError if a set's radius is not a positive, finite number."""
    radius = constraint.radius
    if isinstance(radius, bool) or not (isinstance(radius, Real) and 0.0 < float(radius) < np.inf):
        raise ValueError(
            f"radius must be a positive, finite number; "
            f"got radius={radius!r} for {type(constraint).__name__}."
        )


@dataclass(eq=False)  # or subclasses that leave comparison out would be compared by their radius alone
class NormBall(Constraint):
    """All models with a norm of at most `radius`.

    Parameters
    ----------
    radius : float
        Positive.
    """

    radius: float
    contains_zero = True

    @abstractmethod
    def norm(self, x: Iterate) -> float:
        """Return the norm of `x`."""

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius is not a positive, finite number."""
        check_radius(self)

    def diameter(self, shape: Shape) -> float:
        """Return twice the radius: the largest Euclidean norm in the set is the radius."""
        return 2.0 * self.radius

    def multiplier(self, slope: float) -> float:
        """Return how fast the optimum falls as the radius grows: never less than nothing."""
        return max(-slope / self.radius, 0.0)

    def scale_into(self, x: Iterate) -> Iterate:
        """Shrink `x` into the ball if it is outside."""
        norm = self.norm(x)
        return x if norm <= self.radius else (self.radius / norm) * x


class EntrywiseNormBall(NormBall):
    """A ball whose norm depends on the absolute values of the entries alone, and grows with each of them."""

    def error_effect(self, error: Array, zero: Array) -> float:
        """Return the largest inner product of the errors with a point of the ball."""
        return -self.lmo(error).value

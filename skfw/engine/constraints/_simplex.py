"""The simplex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from .._atoms import SparseVector
from .._protocols import Array, Constraint, Hint, LinearMinimum, Shape
from ._norm_ball import check_radius


@final
@dataclass
class Simplex(Constraint):
    """Non-negative models with sum exactly `radius`.

    Parameters
    ----------
    radius : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import Simplex
    >>> Simplex(1.0).lmo(np.array([1.0, -3.0])).atom
    SparseVector(indices=array([1]), values=array([1.]))
    """

    radius: float
    geometry: ClassVar[str] = "simplex"

    def check(self, shape: Shape) -> None:
        """Raise a ValueError if the radius is not a positive, finite number."""
        check_radius(self)

    def lmo(self, direction: Array, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the simplex."""
        index = int(direction.argmin())
        atom = SparseVector(np.array([index]), np.array([float(self.radius)]))
        return LinearMinimum(atom, self.radius * float(direction.flat[index]))

    def diameter(self, shape: Shape) -> float:
        """Return the distance of two vertices."""
        return float(np.sqrt(2.0)) * self.radius

    def scale_into(self, x: Array) -> Array | None:
        """Scale a non-negative `x` to the right sum."""
        total = float(x.sum())
        return self.radius / total * x if x.min() >= 0.0 and total > 0.0 else None

    def multiplier(self, slope: float) -> float:
        """Return how fast the optimum falls as the radius grows; it may rise."""
        return -slope / self.radius

    def error_effect(self, error: Array, zero: Array) -> float:
        """Return the largest inner product of the errors with a point of the simplex."""
        return self.radius * float(error.max())

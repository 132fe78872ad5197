"""Linear constraints on coefficients, in units in which solvers can work with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from ._protocols import Array

# Relative to the sum of the sizes of what a row adds up. A point is restored in so many rounds at most: each
# leaves the rounding of the one before, and rows that only it has come to miss.
_ROUNDING, _RESTORATIONS = 1e-12, 4


@final
@dataclass(frozen=True)
class LinearSystem:
    """The constraints ``A_ub v <= b_ub``, ``A_eq v = b_eq`` and ``lower <= v <= upper``."""

    A_ub: Array
    b_ub: Array
    A_eq: Array
    b_eq: Array
    lower: Array
    upper: Array

    @cached_property
    def sizes(self) -> Array:
        """The largest absolute values that the bounds allow."""
        return np.maximum(-self.lower, self.upper)

    def restrict(self, features: npt.NDArray[np.intp]) -> LinearSystem:
        """Return the constraints on some of the coefficients, where the others are zero."""
        A_ub, A_eq = self.A_ub[:, features], self.A_eq[:, features]
        return LinearSystem(A_ub, self.b_ub, A_eq, self.b_eq, self.lower[features], self.upper[features])

    def scaled(self, units: Array) -> LinearSystem:
        """Return the constraints on ``v / units``, with rows whose largest entry is about one.

        Rows are divided by powers of two: if units are such too, nothing is rounded.
        """
        inequalities = _rows_of_size_one(self.A_ub * units, self.b_ub)
        equations = _rows_of_size_one(self.A_eq * units, self.b_eq)
        return LinearSystem(*inequalities, *equations, self.lower / units, self.upper / units)

    def moved(self, origin: Array) -> LinearSystem:
        """Return the constraints on ``v - origin``."""
        return LinearSystem(
            self.A_ub,
            self.b_ub - self.A_ub @ origin,
            self.A_eq,
            self.b_eq - self.A_eq @ origin,
            self.lower - origin,
            self.upper - origin,
        )

    def worst_miss(self, x: Array) -> float:
        """Return by how much `x` misses a constraint at most; zero if it misses none."""
        misses = *self._row_misses(x), self.lower - x, x - self.upper
        return float(np.concatenate(misses).max(initial=0.0))

    def nearly_meets(self, x: Array, tolerance: float = _ROUNDING) -> bool:
        """Whether `x` is within its bounds, and misses rows by that share of what they add up at most."""
        sizes = (np.abs(rows) @ np.abs(x) + np.abs(limits) for rows, limits in self._rows)
        close = all(
            bool(np.all(miss <= tolerance * size))
            for miss, size in zip(self._row_misses(x), sizes, strict=True)
        )
        return close and bool(np.all((self.lower <= x) & (x <= self.upper)))

    def restored(self, x: Array) -> Array:
        """Return a point next to one that misses constraints a little, and misses them by rounding only.

        What rows are missed by is taken from the coefficients that are not at their bounds.
        """
        x = np.clip(x, self.lower, self.upper)
        room = self.upper - self.lower
        for _ in range(_RESTORATIONS):
            missed, balance = self._row_misses(x)[0], self.A_eq @ x - self.b_eq
            rows = np.vstack([self.A_ub[missed > 0.0], self.A_eq])
            excess = np.append(missed[missed > 0.0], balance)
            free = (self.lower < x) & (x < self.upper)
            if not excess.any() or not free.any():
                break
            x[free] -= room[free] * np.linalg.lstsq(rows[:, free] * room[free], excess, rcond=None)[0]
            x = np.clip(x, self.lower, self.upper)
        return x

    @property
    def _rows(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        return (self.A_ub, self.b_ub), (self.A_eq, self.b_eq)

    def _row_misses(self, x: Array) -> tuple[Array, Array]:
        return self.A_ub @ x - self.b_ub, np.abs(self.A_eq @ x - self.b_eq)


def power_of_two(sizes: Array) -> Array:
    """Return the powers of two next to positive numbers; one where a number is zero."""
    return np.where(sizes > 0.0, np.exp2(np.clip(np.frexp(sizes)[1], -1000, 1000)), 1.0)


def _rows_of_size_one(matrix: Array, limits: Array) -> tuple[Array, Array]:
    sizes = power_of_two(np.abs(matrix).max(axis=1, initial=0.0))
    return matrix / sizes[:, np.newaxis], limits / sizes

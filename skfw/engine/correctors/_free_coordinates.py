"""Newton steps over the coordinates that are free to move, for a box."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from .._certificate import Cut
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Point
from ._box_quadratics import descend_over_box, solve_over_box
from ._columns import GatheredColumns
from ._newton_step import GRAM_PRODUCTS, SHARE, precision, towards

_MAX_PRODUCTS = 100


@final
class FreeCoordinates(Corrector):
    """Re-optimises the coordinates that are between their bounds, or that the slope leads away from them.

    Where the Hessian of these is cheap it is formed, and the model is minimised exactly; else by conjugate
    gradients, with products only.

    Parameters
    ----------
    problem : Problem of a Design
    lower, upper : ndarray
        The bounds of each coefficient, in the shape of the model.
    """

    def __init__(self, problem: Problem[Design], lower: Array, upper: Array) -> None:
        self.problem, self.lower, self.upper = problem, lower, upper
        self._first_value = 0.0
        self._n_products = 0
        self._columns = GatheredColumns(problem.data, problem.loss.is_quadratic)

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step over the free coordinates."""
        x, slopes = point.x.ravel(), newest.direction.ravel()
        room_below, room_above = x - self.lower.ravel(), self.upper.ravel() - x
        free = np.flatnonzero(np.where(slopes > 0.0, room_below, room_above) > 0.0)
        if not len(free):
            return point
        low, high, slope = -room_below[free], room_above[free], slopes[free]
        columns = self._columns.restrict(free)
        self._first_value = self._first_value or point.value
        hessian = self.problem.loss.hessian(point.evaluation)
        matrix = None
        if columns.matrix_cost <= max(GRAM_PRODUCTS, self._n_products) * columns.design.product_cost:
            matrix = columns.second_derivative(hessian)
        if matrix is not None:
            change = solve_over_box(matrix, slope, low, high)
            if change is None:
                return point
        else:
            change, self._n_products = descend_over_box(
                lambda values: columns.adjoint(hessian.apply(columns.apply(values))),
                slope,
                low,
                high,
                columns.diagonal(hessian),
                target=SHARE * gap,
                precision=precision(gap / self._first_value),
                max_products=_MAX_PRODUCTS,
            )
        target = x.copy()
        target[free] += change
        moved = towards(self.problem, point, target.reshape(point.x.shape), columns.apply(change))
        # Sums are rounded: a coordinate at its bound is to be there exactly.
        return point if moved is point else replace(moved, x=np.clip(moved.x, self.lower, self.upper))

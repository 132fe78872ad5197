"""Newton steps over the coordinates that are free to move, for a box."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np
import numpy.typing as npt

from .._certificate import Cut
from .._costs import cholesky
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Point
from ._box_quadratics import descend_over_box, solve_over_box
from ._columns import GatheredColumns
from ._newton_step import GRAM_PRODUCTS, SHARE, precision, towards

_MAX_PRODUCTS = 500
# A descent reduces the error at least by this factor.
_LOOSE = 0.1
# Coordinates that could win no more than this fraction of the gap together are left out.
_NEGLIGIBLE = 0.1
# A Hessian is factored about as often until it is known which coordinates end at their bounds.
_PIVOTS = 10.0


@final
class FreeCoordinates(Corrector):
    """Re-optimises the coordinates that are between their bounds, or that the slope leads away from them.

    Where the Hessian of these is cheap it is formed, and the model is minimised exactly; else by conjugate
    gradients, with products only, over those that matter.

    Parameters
    ----------
    problem : Problem of a Design
    lower, upper : ndarray
        The bounds of each coefficient, in the shape of the model.
    """

    def __init__(self, problem: Problem[Design], lower: Array, upper: Array) -> None:
        self.problem, self.lower, self.upper = problem, lower, upper
        self._first_value = 0.0
        # Products of the last descent, and of all descents since a model was minimised exactly.
        self._n_products = self._spent = 0
        self._columns = GatheredColumns(problem.data, problem.loss.is_quadratic)

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step over the free coordinates."""
        x, slopes = point.x.ravel(), newest.direction.ravel()
        room_below, room_above = x - self.lower.ravel(), self.upper.ravel() - x
        # What each coordinate could win if its slope stayed as it is. Together it is the gap of the plane.
        worth = np.abs(slopes) * np.where(slopes > 0.0, room_below, room_above)
        free = np.flatnonzero(worth)
        design = self.problem.data
        share = len(free) / len(x)
        if not self._pays(share * share * design.gram_cost, len(free), design):
            free = np.flatnonzero(self._relevant(worth, gap))
        if not len(free):
            return point
        low, high, slope = -room_below[free], room_above[free], slopes[free]
        columns = self._columns.restrict(free)
        self._first_value = self._first_value or point.value
        hessian = self.problem.loss.hessian(point.evaluation)
        matrix = None
        if self._pays(columns.matrix_cost, len(free), columns.design):
            matrix = columns.second_derivative(hessian)
        if matrix is not None:
            solution = solve_over_box(matrix, slope, low, high)
            if solution is None:
                return point
            change, image = solution, columns.apply(solution)
            self._spent = 0
        else:
            change, image, n_products = descend_over_box(
                columns.apply,
                lambda image: self.problem.data.inner(image, hessian.apply(image)),
                lambda image: columns.adjoint(hessian.apply(image)),
                slope,
                low,
                high,
                columns.diagonal(hessian),
                target=SHARE * gap,
                precision=min(_LOOSE, precision(gap / self._first_value)),
                max_products=_MAX_PRODUCTS,
            )
            self._n_products, self._spent = n_products, self._spent + n_products
            if image is None:
                return point
        target = x.copy()
        target[free] += change
        moved = towards(self.problem, point, target.reshape(point.x.shape), image)
        # Sums are rounded: a coordinate at its bound is to be there exactly.
        return point if moved is point else replace(moved, x=np.clip(moved.x, self.lower, self.upper))

    def _pays(self, matrix_cost: float, size: int, design: Design) -> bool:
        """Whether a Hessian, and to minimise with it, costs no more than products have since the last one."""
        allowed = max(GRAM_PRODUCTS, self._n_products, self._spent) * design.product_cost
        return matrix_cost + _PIVOTS * cholesky(size) <= allowed

    def _relevant(self, worth: Array, gap: float) -> npt.NDArray[np.bool_]:
        """Tell coordinates from those that could win no more than a small fraction of the gap together.

        On data that is nearly separable few samples matter at last, and few of the features: at a gap of 1e-4
        on Farm Ads one in ten, and one in thirty at 1e-6.
        """
        order = np.argsort(worth)
        left_out = int(np.searchsorted(np.cumsum(worth[order]), _NEGLIGIBLE * gap, side="right"))
        relevant = np.ones(len(worth), dtype=bool)
        relevant[order[:left_out]] = False
        return relevant

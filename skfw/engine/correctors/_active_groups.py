"""Newton steps over the nonzero groups, for n-support balls and balls of groups."""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from .._certificate import Cut
from .._costs import cholesky
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Point
from .._sums import TINY
from ._columns import Coordinates, GatheredColumns
from ._group_quadratics import GroupNorm, QuadraticModel, minimise_over_ball
from ._newton_step import GRAM_PRODUCTS, SHARE, accuracy, precision, towards

# New groups at once: this many, or this share of those already there if that is more.
_BATCH, _BATCH_SHARE = 50, 0.5
# Where no matrix is worth it, a model is left after this many products, minimised or not. A quarter of them
# took two to three times as long on Farm Ads with groups and a multiplier of 3e-4.
_MAX_PRODUCTS = 400
# With a matrix, after this many, which are about fifteen factorisations. Without a limit, fits to 40 samples
# of 600 features in balls that do not bind took five to eight times as long; none of w7a took less time.
_MAX_FACTORED_PRODUCTS = 50
# About how often a matrix is factored until the model is minimised.
_FACTORISATIONS = 10


@final
class ActiveGroups(Corrector):
    """Re-optimises the nonzero groups and a batch of new ones, for n-support balls and balls of groups.

    The second-order model is minimised over the ball. Where the Hessian of the active coordinates is cheap it
    is formed, and factored together with the second derivative of the norm; else it is done by conjugate
    gradients, with products only.

    Parameters
    ----------
    problem : Problem of a Design
    radius : float
    groups : ndarray of ints
        The group of each coefficient of the flattened model, numbered from zero.
    support_size : int
        How many groups an atom has.
    """

    def __init__(
        self, problem: Problem[Design], radius: float, groups: npt.NDArray[np.intp], support_size: int
    ) -> None:
        self.problem, self.radius = problem, radius
        self._norm = GroupNorm(groups, int(groups.max()) + 1, support_size)
        self._columns = GatheredColumns(problem.data, problem.loss.is_quadratic)
        self._first_value = 0.0
        self._multiplier: float | None = None
        # Products so far, where there was no matrix.
        self._n_products = 0

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step over the active groups; none where squares of the radius are no numbers."""
        if not TINY < self.radius * self.radius < np.inf:
            return point
        x, slopes = point.x.ravel(), newest.direction.ravel()
        self._first_value = self._first_value or point.value
        if self._multiplier is None:
            self._multiplier = -newest.minimum.value / self.radius**2
        start = x if x.any() else self._down_to_the_atom(point, newest)
        active, norm = self._active(start, slopes)
        if not len(active):
            return point

        columns = self._columns.restrict(active)
        hessian = self.problem.loss.hessian(point.evaluation)
        worth = self._matrix_products(columns)
        matrix, limit = None, min(_MAX_PRODUCTS, max(GRAM_PRODUCTS, worth))
        if worth <= max(GRAM_PRODUCTS, self._n_products):
            matrix, limit = columns.second_derivative(hessian), _MAX_FACTORED_PRODUCTS

        def product(values: Array) -> Array:
            if matrix is not None:
                return np.asarray(matrix @ values)
            return columns.adjoint(hessian.apply(columns.apply(values)))

        image = product(x[active])
        model = QuadraticModel(product, matrix, columns.diagonal(hessian), slopes[active] - image)
        best, self._multiplier = minimise_over_ball(
            model,
            norm,
            self.radius,
            start[active],
            x[active],
            multiplier=self._multiplier,
            target=accuracy(SHARE, self.problem.data) * gap,
            precision=accuracy(precision(gap / self._first_value), self.problem.data),
            max_products=limit,
        )
        if matrix is None:
            self._n_products += model.n_products
        if best is None:
            return point
        target = np.zeros(x.size)
        target[active] = best
        return towards(self.problem, point, target.reshape(point.x.shape), columns.apply(best - x[active]))

    def _down_to_the_atom(self, point: Point, newest: Cut) -> Array:
        """Return the lowest point of the model between zero, which is on no smooth piece, and the atom."""
        atom = (point.x + newest.minimum.atom).ravel()
        image = newest.minimum.atom.image(self.problem.data)
        curvature = self.problem.data.inner(image, self.problem.loss.hessian(point.evaluation).apply(image))
        step = min(1.0, -newest.minimum.value / curvature) if curvature > 0.0 else 1.0
        return np.asarray(step * atom)

    def _matrix_products(self, columns: Coordinates) -> float:
        """Return how many products take as long as a matrix; of several outputs there is none."""
        if self.problem.data.n_outputs is not None:
            return np.inf
        factorisations = _FACTORISATIONS * cholesky(len(columns.places))
        return (columns.matrix_cost + factorisations) / columns.design.product_cost

    def _active(self, x: Array, slopes: Array) -> tuple[npt.NDArray[np.intp], GroupNorm]:
        """Return the coordinates of the support and of the steepest other groups, and the norm of these."""
        sizes, steepness = self._norm.sizes(x), self._norm.sizes(slopes)
        chosen = sizes > 0.0
        # At an optimum the slopes of the whole groups are their sizes times the multiplier.
        multiplier = max(-float(slopes @ x), 0.0) / self.radius**2
        steep = np.flatnonzero(~chosen & (steepness > multiplier * self._norm.level(sizes)[0]))
        batch = max(_BATCH, int(_BATCH_SHARE * np.count_nonzero(chosen)))
        if len(steep) > batch:
            steep = steep[np.argpartition(-steepness[steep], batch)[:batch]]
        chosen[steep] = True
        active = np.flatnonzero(chosen[self._norm.groups])
        numbers = np.cumsum(chosen) - 1
        groups = numbers[self._norm.groups[active]]
        return active, GroupNorm(groups, int(np.count_nonzero(chosen)), self._norm.support_size)

"""Newton steps over the nonzero coordinates, for the l1 ball and the simplex."""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from .._certificate import Cut
from .._costs import cholesky
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Point, SampleVector
from ._newton_step import GRAM_PRODUCTS, SHARE, precision, towards
from ._quadratics import descend_over_simplex, solve_over_simplex

# New coordinates at once: this many, or this share of those already there if that is more.
_BATCH, _BATCH_SHARE = 50, 0.5
# Columns are not gathered anew where at least this fraction of those at hand is needed.
_REUSE = 0.7
# Products in a Newton step: many coordinates still come and go, so more accuracy is not worth it.
_MAX_PRODUCTS = 40
# Divided by a diagonal of this, nothing overflows.
_SMALLEST = float(np.finfo(np.float64).tiny) / (4.0 * float(np.finfo(np.float64).eps))


@final
class ActiveCoordinates(Corrector):
    """Re-optimises the nonzero coordinates and a batch of new ones, for the l1 ball and the simplex.

    In terms of the signed coordinates the set is a simplex. Where the Hessian of the active coordinates is
    cheap it is formed, and the model is minimised exactly; else by conjugate gradients, with products only.

    Parameters
    ----------
    problem : Problem of a Design
    radius : float
        The sum of the absolute values is at most this, or the sum is exactly this.
    signed : bool
        Whether coordinates of both signs are atoms, and zero is in the set.
    """

    def __init__(self, problem: Problem[Design], radius: float, signed: bool) -> None:
        self.problem, self.radius, self.signed = problem, radius, signed
        self._first_value = 0.0
        self._n_products = 0
        self._features: npt.NDArray[np.intp] = np.arange(problem.data.shape[1])
        self._columns: Design = problem.data

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step over the active coordinates."""
        x, slopes = point.x.ravel(), newest.direction.ravel()
        active = self._active(x, slopes)
        if not len(active):
            return point
        signs = np.where(x[active] != 0.0, np.sign(x[active]), -np.sign(slopes[active]))
        signs = signs if self.signed else np.ones(len(active))
        weights, slope = signs * x[active], signs * slopes[active]
        columns, places = self._restrict(active)
        shape = columns.zeros().shape

        def apply(values: Array) -> SampleVector:
            model = np.zeros(shape)
            model.reshape(-1)[places] = signs * values
            return columns.apply(model)

        def adjoint(residual: SampleVector) -> Array:
            result: Array = signs * columns.adjoint(residual).reshape(-1)[places]
            return result

        self._first_value = self._first_value or point.value
        hessian = self.problem.loss.hessian(point.evaluation)
        matrix = None
        cost = columns.gram_cost + cholesky(len(active))
        if cost <= max(GRAM_PRODUCTS, self._n_products) * columns.product_cost:
            matrix = hessian.gram(columns)
        if matrix is not None:
            matrix = signs[:, np.newaxis] * matrix[np.ix_(places, places)] * signs
            free = (weights > 0.0) | (slope < float(slope @ weights) / self.radius)
            best = solve_over_simplex(
                matrix, slope - matrix @ weights, free, self.radius, exactly=not self.signed
            )
            if best is None:
                return point
        else:
            diagonal = columns.squares(hessian.diagonal).reshape(-1)[places]
            best, self._n_products = descend_over_simplex(
                lambda values: adjoint(hessian.apply(apply(values))),
                slope,
                weights,
                np.maximum(diagonal, _SMALLEST),
                self.radius,
                exactly=not self.signed,
                target=SHARE * gap / self.radius,
                precision=precision(gap / self._first_value),
                max_products=self._enough_products(cost / columns.product_cost),
            )
        target = np.zeros(x.size)
        target[active] = signs * best
        return towards(self.problem, point, target.reshape(point.x.shape), apply(best - weights))

    def _enough_products(self, gram_products: float) -> int:
        """Return how many products are worth it: no more than the matrix costs, where there is one."""
        if self.problem.data.n_outputs is not None:
            return _MAX_PRODUCTS
        return int(min(_MAX_PRODUCTS, max(GRAM_PRODUCTS, gram_products + 1.0)))

    def _active(self, x: Array, slopes: Array) -> npt.NDArray[np.intp]:
        """Return the support, and the zero coordinates with the steepest slopes down."""
        support = np.flatnonzero(x)
        level = float(slopes @ x) / self.radius
        down = -np.abs(slopes) if self.signed else slopes
        level = min(level, 0.0) if self.signed else level
        steep = np.flatnonzero((down < level) & (x == 0.0))
        batch = max(_BATCH, int(_BATCH_SHARE * len(support)))
        if len(steep) > batch:
            steep = steep[np.argpartition(down[steep], batch)[:batch]]
        return np.sort(np.concatenate([support, steep]))

    def _restrict(self, active: npt.NDArray[np.intp]) -> tuple[Design, npt.NDArray[np.intp]]:
        """Return a design with the active features, and the places of the active coordinates in its model."""
        design = self.problem.data
        outputs = design.n_outputs or 1
        needed = np.unique(active // outputs) if outputs > 1 else active
        known = len(needed) > _REUSE * len(self._features) and np.isin(needed, self._features).all()
        if not known and len(needed) > _REUSE * design.shape[1]:
            self._features, self._columns = np.arange(design.shape[1]), design
        elif not known:
            self._features, self._columns = needed, design.restrict(needed)
        places = np.searchsorted(self._features, active // outputs) * outputs + active % outputs
        return self._columns, places

"""Newton steps over the nonzero coordinates, for the l1 ball and the simplex."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import numpy.typing as npt

from .._certificate import Cut
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Hessian, Point
from ._columns import Coordinates, FactoredHessian, GatheredColumns
from ._newton_step import GRAM_PRODUCTS, SHARE, precision, towards
from ._quadratics import descend_over_simplex, solve_over_simplex

# New coordinates at once: this many, or this multiple of those that stayed of the last ones if that is more.
# On text, where nearly all stay, a fit takes 0.8 of the time with it that it takes with half as many as there
# are already; where half of them leave, batches stay small. But no more at once than there are samples: the
# model has a minimum with no more nonzeros, and one with more says nothing of which will stay.
_BATCH, _GROWTH = 50, 2.0
# Products in a Newton step: many coordinates still come and go, so more accuracy is not worth it.
_MAX_PRODUCTS = 40
# A Hessian is factored, for a preconditioner, once products have taken this many times as long: not all of
# them are saved, and solves take time too. From 3 to 5 are 0.6 to 0.7 of the time of 1 on Farm Ads at a
# thousandth of the largest penalty, 0.8 to 0.9 at a hundredth and on w7a.
_PATIENCE = 4.0
# A solve with its factor may cost as much as this many products. With 1,700 active coordinates of a matrix
# of 3,000 x 5,000 with 100 nonzeros in a row it cost 12, and a fit took 5 times as long.
_SOLVE_PRODUCTS = 2.0


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
        # The coordinates that were new last time.
        self._entered = np.zeros(0, dtype=np.intp)
        # Seconds that products took since there is a preconditioner.
        self._spent = 0.0
        self._factored: FactoredHessian | None = None
        self._columns = GatheredColumns(problem.data, problem.loss.is_quadratic)

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step over the active coordinates."""
        x, slopes = point.x.ravel(), newest.direction.ravel()
        active = self._active(x, slopes)
        if not len(active):
            return point
        signs = np.where(x[active] != 0.0, np.sign(x[active]), -np.sign(slopes[active]))
        signs = signs if self.signed else np.ones(len(active))
        weights, slope = signs * x[active], signs * slopes[active]
        columns = self._columns.restrict(active)
        self._first_value = self._first_value or point.value
        hessian = self.problem.loss.hessian(point.evaluation)
        product_cost = columns.design.product_cost
        matrix = None
        if columns.matrix_cost <= max(GRAM_PRODUCTS, self._n_products) * product_cost:
            matrix = columns.second_derivative(hessian)
        if matrix is not None:
            matrix = signs[:, np.newaxis] * matrix * signs
            free = (weights > 0.0) | (slope < float(slope @ weights) / self.radius)
            best = solve_over_simplex(
                matrix, slope - matrix @ weights, free, self.radius, exactly=not self.signed
            )
            if best is None:
                return point
        else:
            diagonal = columns.diagonal(hessian)
            best, self._n_products = descend_over_simplex(
                lambda values: signs * columns.adjoint(hessian.apply(columns.apply(signs * values))),
                slope,
                weights,
                diagonal,
                self.radius,
                exactly=not self.signed,
                target=SHARE * gap / self.radius,
                precision=precision(gap / self._first_value),
                max_products=self._enough_products(columns.matrix_cost / product_cost),
                precondition=self._preconditioner(columns, hessian, diagonal, active, signs),
            )
            self._spent += self._n_products * product_cost
        target = np.zeros(x.size)
        target[active] = signs * best
        change = columns.apply(signs * (best - weights))
        return towards(self.problem, point, target.reshape(point.x.shape), change)

    def _preconditioner(
        self,
        columns: Coordinates,
        hessian: Hessian,
        diagonal: Array,
        active: npt.NDArray[np.intp],
        signs: Array,
    ) -> Callable[[Array], Array] | None:
        """Return a map that is about the inverse of the Hessian of the signed coordinates; None at first.

        It is that of an earlier Hessian, with the diagonal of this one where there was none. A new one is
        made once the products since the last one have taken several times as long, unless its solves would
        take longer than products.
        """
        single = self.problem.data.n_outputs is None
        helps = single and columns.solve_cost <= _SOLVE_PRODUCTS * columns.design.product_cost
        if helps and self._spent >= _PATIENCE * columns.rough_matrix_cost:
            matrix = columns.rough_derivative(hessian)
            if matrix is not None:
                self._factored, self._spent = FactoredHessian.of(active, matrix), 0.0
        if self._factored is None:
            return None
        solve = self._factored.inverse(active, diagonal)
        return lambda residual: signs * solve(signs * residual)

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
        growth = int(_GROWTH * np.count_nonzero(x[self._entered]))
        batch = max(_BATCH, min(growth, self.problem.data.shape[0]))
        if len(steep) > batch:
            steep = steep[np.argpartition(down[steep], batch)[:batch]]
        self._entered = steep
        return np.sort(np.concatenate([support, steep]))

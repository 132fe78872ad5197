"""Newton's method on a Euclidean ball."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._certificate import Cut
from .._costs import cholesky
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Hessian, Point, Rows
from .._sums import TINY, inner
from ._newton_step import GRAM_PRODUCTS, Sphere, is_small, precision, towards

_MAX_PRODUCTS = 100
# Where products are many, conjugate gradients reduce the residual by this factor, and the gap falls with its
# square. On Farm Ads a tenth takes 1.3 to 1.6 times the products.
_ENOUGH = 0.3
# Where there are more features than samples the loss is straight in most directions, and a diagonal of its
# curvatures would be wrong in these. This part of it (Hsia, Chiang and Lin, "Preconditioned conjugate
# gradient methods in truncated Newton frameworks", 2018) takes half the products on Farm Ads, and few more
# where units of features differ by a factor of 10,000; none of it took 6 times as many there.
_PART = 0.01
# A preconditioner is made anew when a Newton step took more products than this, or came to none.
_STALE = 5
# Correlations of a sample are shrunk by this factor; so the matrix they give is positive definite.
_SHRINKAGE = 0.99
# Those of all rows, in single precision, by this one.
_ROUNDING = 1.0 - 1e-6
_RIDGE = 1e-12
_ON_SPHERE = 1e-9


@final
class EuclideanBall(Corrector):
    """Newton's method on a Euclidean ball: on its sphere, or in its interior.

    On the sphere the step is tangential, with the curvature of the loss plus that of the sphere, which is the
    multiplier of the constraint. From its end it is back to the sphere in the direction in which the norm
    falls at the least rise of the model: the minimum goes that way as the multiplier grows. Scaling back
    would lose most of what the step wins where the multiplier is small and the curvature along the iterate
    is not.

    The equations are solved by conjugate gradients. They are preconditioned by the Hessian of a sample of the
    rows, with its diagonal put right, or that of all rows once products have cost as much, where a
    factorisation of that is cheap, and else by the diagonal.

    Parameters
    ----------
    problem : Problem of a Design
    radius : float
    """

    def __init__(self, problem: Problem[Design], radius: float) -> None:
        self.problem, self.radius = problem, radius
        self._precondition: Callable[[Array], Array] | None = None
        self._shift = 0.0
        self._first_value = 0.0
        self._n_products = 0
        # Products since the Hessian of all rows was factored.
        self._spent = 0

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a Newton step; none where squares of the radius are no numbers."""
        if not TINY < self.radius * self.radius < np.inf:
            return point
        self._first_value = self._first_value or point.value
        x, gradient, design = point.x, newest.direction, self.problem.data
        radial = inner(gradient, x) / self.radius
        on_sphere = inner(x, x) >= (1.0 - _ON_SPHERE) * self.radius * self.radius
        if on_sphere and radial > 0.0:  # the loss falls inwards; but along the sphere first if steeper there
            on_sphere = radial * radial < 0.5 * inner(gradient, gradient)
        multiplier = max(0.0, -radial / self.radius) if on_sphere else 0.0
        hessian = self.problem.loss.hessian(point.evaluation)
        # Inside, the multiplier that the sphere would have keeps steps from going far in flat directions.
        shift = multiplier or float(np.sqrt(inner(gradient, gradient))) / self.radius
        stale = not 0 < self._n_products <= _STALE or not self._shift / 2.0 <= shift <= 2.0 * self._shift
        if self._precondition is None or stale:
            self._precondition = None  # before there is a second matrix in memory
            self._precondition, self._shift = self._preconditioner(hessian, shift), shift
        sphere = Sphere(x / self.radius, self._precondition) if on_sphere else None

        # Conjugate gradients, from the iterate.
        solve = sphere.tangential if sphere else self._precondition
        residual = -gradient if sphere is None else sphere.project(-gradient)
        first = inner(residual, residual)
        # As long as products are few they are cheaper than the next Newton step.
        enough = precision(gap / self._first_value)
        target, change = x.copy(), 0.0 * point.predictions
        step = direction = solve(residual)
        error = inner(residual, step)
        self._n_products = 0
        while self._n_products < _MAX_PRODUCTS and error > 0.0:
            image = design.apply(direction)
            curved = design.adjoint(hessian.apply(image))
            curved += multiplier * direction
            self._n_products += 1
            curvature = inner(direction, curved)
            length = error / curvature if curvature > 0.0 else np.inf
            if sphere is None:
                length = min(length, (border := _distance_to_sphere(target, direction, self.radius)))
            if not length < np.inf:
                break
            target += length * direction
            change += length * image
            if sphere is None and length == border:
                break
            curved *= length
            residual -= curved
            if sphere:
                residual = sphere.project(residual)
            if self._n_products > _STALE and not is_small(design):
                enough = max(enough, _ENOUGH)
            if inner(residual, residual) <= enough * enough * first:
                break
            step = solve(residual)
            error, previous = inner(residual, step), error
            direction *= error / previous
            direction += step

        self._spent += self._n_products
        size = float(np.sqrt(inner(target, target)))
        if sphere and not is_small(design):  # the direction depends on the preconditioner
            shrink = self._precondition(target)
            if (back := _distance_back(target, shrink, self.radius)) > 0.0:
                target, change = target - back * shrink, change - back * design.apply(shrink)
                size = float(np.sqrt(inner(target, target)))
        if sphere or size > self.radius:
            scale = self.radius / size
            target, change = scale * target, scale * change + (scale - 1.0) * point.predictions
        return towards(self.problem, point, target, change)

    def _preconditioner(self, hessian: Hessian, shift: float) -> Callable[[Array], Array]:
        """Return a map that is about the inverse of the Hessian plus `shift` times the identity."""
        design = self.problem.data
        diagonal = design.squares(hessian.diagonal) + shift
        diagonal += _RIDGE * diagonal.max() + TINY
        wide = design.shape[1] > design.shape[0]
        inverse = 1.0 / (_PART * diagonal + (1.0 - _PART) * shift if wide else diagonal)

        def by_diagonal(residual: Array) -> Array:
            result: Array = inverse * residual
            return result

        factor_cost = cholesky(design.shape[1])
        allowed = max(GRAM_PRODUCTS, self._spent) * design.product_cost / (design.n_outputs or 1)
        sampled: tuple[Rows | None, Design] | None = (None, design)
        patient = self._n_products <= _STALE  # products with a cheap preconditioner have not been many so far
        if patient or design.rough_gram_cost + factor_cost > allowed:
            sampled = design.sample
        if sampled is None or sampled[1].rough_gram_cost + factor_cost > allowed:
            return by_diagonal
        rows, sample = sampled
        grams = hessian.output_grams(sample, rows)
        if grams is None:
            return by_diagonal
        diagonals = np.atleast_2d(diagonal.T)
        shrinkage = _SHRINKAGE
        if rows is None:
            shrinkage, self._spent = _ROUNDING, 0
        factors = [
            _factor(gram, column, shift, shrinkage) for gram, column in zip(grams, diagonals, strict=True)
        ]

        def solve(residual: Array) -> Array:
            columns = np.atleast_2d(residual.T)
            parts = [dpotrs(factor, column)[0] for factor, column in zip(factors, columns, strict=True)]
            return np.stack(parts, axis=-1).reshape(residual.shape)

        return solve


def _factor(matrix: Array, diagonal: Array, shift: float, shrinkage: float) -> Array:
    """Factor the Hessian of a sample of rows, scaled to the diagonal of all rows."""
    found = np.diag(matrix).copy()
    scale = np.sqrt(np.divide(diagonal - shift, found, out=np.zeros_like(found), where=found > 0.0))
    matrix *= shrinkage * scale
    matrix *= scale[:, np.newaxis]
    matrix[np.diag_indices(len(matrix))] = diagonal
    factor, failed = dpotrf(matrix.T, overwrite_a=1)  # in the order of LAPACK, which would copy it else
    return np.diag(np.sqrt(diagonal)) if failed else factor


def _distance_back(x: Array, normal: Array, radius: float) -> float:
    """Return how far it is from outside of the ball back to the sphere, against `normal`; 0 if it misses."""
    beyond = inner(x, x) - radius * radius
    slope, square = np.float64(inner(x, normal)), np.float64(inner(normal, normal))
    root = np.sqrt(max(slope * slope - square * beyond, 0.0))
    missed = not (beyond > 0.0 and slope > 0.0 and root > 0.0)
    return 0.0 if missed else float(beyond / (root + slope))


def _distance_to_sphere(x: Array, direction: Array, radius: float) -> float:
    """Return how far one can go from `x` along `direction` inside the ball."""
    room = max(radius * radius - inner(x, x), 0.0)
    slope, square = np.float64(inner(x, direction)), np.float64(inner(direction, direction))
    root = np.sqrt(slope * slope + square * room)
    return float(room / (root + slope) if slope > 0.0 else (root - slope) / square)

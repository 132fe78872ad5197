"""Quadratic models, minimised over a simplex: what a Newton step of a corrector comes down to.

The variables are weights of atoms. They are not negative, and their sum is at most, or exactly, a total.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from .._protocols import Array
from .._sums import TINY

_ROUNDING = 1e-12
# Relative to the diagonal: keeps the equations solvable where atoms depend on each other. What it changes is
# put right again, but for combinations of atoms that predict nothing: those stay small.
RIDGE, _REFINEMENTS = 1e-7, 2
_MAX_PIVOTS = 30
# How often the number of wrong signs may fail to fall before the pivots are made one by one.
_PATIENCE = 3
# Passes over the free weights, and products in a pass that has left the set: many weights will change sides
# then, and more accuracy is wasted.
_MAX_PASSES, _PASS_PRODUCTS = 10, 10
_MAX_BACKTRACKS, _BACKTRACK = 4, 0.25


def solve_over_simplex(
    hessian: Array, linear: Array, free: npt.NDArray[np.bool_], total: float, exactly: bool
) -> Array | None:
    """Minimise ``<linear, u> + <u, H u>/2`` over ``u >= 0`` with sum at most (or exactly) `total`.

    Principal pivoting: solve for the free weights as if there were no signs, then free or fix all those whose
    sign, or multiplier, is wrong (Portugal, Judice and Vicente, 1994). `free` is a guess of what is positive.
    Returns None if the equations could not be solved.
    """
    size = len(linear)
    weights = np.zeros(size)
    ridge = RIDGE * np.diag(hessian)
    right_sides = np.column_stack([-linear, np.ones(size)])
    zero = _ROUNDING * float(np.abs(linear).max())
    fewest, patience = size + 1, _PATIENCE
    for _ in range(_MAX_PIVOTS):
        indices = np.flatnonzero(free)
        if not len(indices):
            break
        solution = solve_refined(hessian[np.ix_(indices, indices)], right_sides[indices], ridge[indices])
        if solution is None:
            return None
        multiplier = float((solution[:, 0].sum() - total) / solution[:, 1].sum())
        if not exactly:
            multiplier = max(multiplier, 0.0)
        weights[:] = 0.0
        weights[indices] = solution[:, 0] - multiplier * solution[:, 1]
        wrong = np.where(free, weights < 0.0, linear + hessian @ weights + multiplier < -zero)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            break
        patience = _PATIENCE if count < fewest else patience - 1
        fewest = min(fewest, count)
        if patience < 0:  # one at a time this cannot cycle
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free = free ^ wrong
    return into_simplex(weights, total, exactly)


def solve_refined(matrix: Array, right_sides: Array, ridge: Array) -> Array | None:
    """Solve equations with a ridge on the diagonal, and take its effect out again; None if that fails.

    The matrix is overwritten.
    """
    matrix[np.diag_indices(len(matrix))] += ridge
    factor, failed = dpotrf(matrix, overwrite_a=1)
    if failed:
        return None
    solution = dpotrs(factor, right_sides)[0]
    for _ in range(_REFINEMENTS):
        solution = dpotrs(factor, right_sides + (ridge * solution.T).T)[0]
    return np.asarray(solution)


def descend_over_simplex(
    product: Callable[[Array], Array],
    gradient: Array,
    start: Array,
    diagonal: Array,
    total: float,
    exactly: bool,
    target: float,
    precision: float,
    max_products: int,
    precondition: Callable[[Array], Array] | None = None,
) -> tuple[Array, int]:
    """Go towards the minimum of a model with this `gradient` at `start` and Hessian products `product`.

    Conjugate gradients on the free weights; then those that went negative are fixed at zero, those whose
    slope is steeper than the others' are freed, and again. They are preconditioned by the diagonal of the
    Hessian, or by about the inverse of the Hessian of all as long as its steps can be cut off at zero. Where
    free weights depend on each other those steps are long, and cut off they go uphill; with the diagonal,
    steep directions come first. A pass ends when the slopes agree up to `target`, or the error has fallen by
    the factor `precision`. No pass increases the model. Returns the weights and the number of products, which
    may exceed the limit by those of one pass's backtracking.
    """

    def by_diagonal(residual: Array) -> Array:
        result: Array = residual / diagonal
        return result

    weights, slope, products = start, gradient, 0
    precondition = precondition or by_diagonal
    tight = exactly or float(start.sum()) >= (1.0 - _ROUNDING) * total
    free = (weights > 0.0) | (slope < -_multiplier(slope, weights, total, tight))
    for _ in range(_MAX_PASSES):
        limit = products + _PASS_PRODUCTS
        face = _Face(precondition, free, tight)
        change, bend = np.zeros_like(weights), np.zeros_like(weights)  # bend = H change
        residual, step = face.project(-slope)
        direction, error = step, float(residual @ step)
        first = error
        while products < max_products and error > 0.0 and float(np.abs(residual).max()) > target:
            image = product(direction)
            products += 1
            curvature = float(direction @ image)
            # No two points of the simplex are further apart; rounding would be all that is left of the image.
            longest = total / float(np.abs(direction).max())
            length = min(error / curvature, longest) if curvature > 0.0 else longest
            change, bend = change + length * direction, bend + length * image
            residual, step = face.project(-slope - bend)
            error, previous = float(residual @ step), error
            enough = length == longest or error <= precision**2 * first
            if enough or (products >= limit and _leaves(weights + change, total)):
                break
            direction = step + (error / previous) * direction

        if again := _leaves(weights + change, total):
            change, bend, tight, tried = _shorten(weights, slope, change, bend, product, total, tight)
            products += tried
            if tried > _MAX_BACKTRACKS:
                precondition = by_diagonal
        weights, slope = np.maximum(weights + change, 0.0), slope + bend
        free &= weights > 0.0
        if tight and not exactly and float(slope @ weights) > 0.0:
            again, tight = True, False
        steep = ~free & (slope < -_multiplier(slope, weights, total, tight) - target)
        free |= steep
        if not (again or steep.any()) or products >= max_products:
            break
    return into_simplex(weights, total, exactly), products


def _leaves(weights: Array, total: float) -> bool:
    return float(weights.min()) < 0.0 or float(weights.sum()) > (1.0 + _ROUNDING) * total


def _shorten(
    weights: Array,
    slope: Array,
    change: Array,
    bend: Array,
    product: Callable[[Array], Array],
    total: float,
    tight: bool,
) -> tuple[Array, Array, bool, int]:
    """Bring a step that leaves the simplex back into it, and shorten it until the model falls.

    Returns the step, its image, whether the sum is at its total, and the number of products.
    """
    fraction = 1.0
    for tried in range(1, _MAX_BACKTRACKS + 1):
        aim = weights + fraction * change
        inside = into_simplex(aim, total, tight)
        image = fraction * bend + product(inside - aim)
        if float((2.0 * slope + image) @ (inside - weights)) < 0.0:
            full = tight or float(np.maximum(aim, 0.0).sum()) > total
            return inside - weights, image, full, tried
        fraction *= _BACKTRACK
    # As far as all stay positive and no longer than to the minimum. Those that are zero already stay it, or
    # there would be no step at all.
    change = np.where((weights == 0.0) & (change < 0.0), 0.0, change)
    if tight:
        change -= (float(change.sum()) / total) * weights
    bend = product(change)
    fall, curvature, rise = -float(slope @ change), float(change @ bend), float(change.sum())
    room = max(total - float(weights.sum()), 0.0)
    down = change < 0.0
    fraction = float((-weights[down] / change[down]).min(initial=1.0))
    fraction = min(fraction, room / rise if rise > room else 1.0, max(fall, 0.0) / max(curvature, fall, TINY))
    step = fraction * change
    step = np.where(weights + step < _ROUNDING * weights, -weights, step)
    return step, fraction * bend, tight, _MAX_BACKTRACKS + 1


class _Face:
    """The free weights, with their sum fixed if it is tight, in the metric of a preconditioner."""

    def __init__(
        self, precondition: Callable[[Array], Array], free: npt.NDArray[np.bool_], tight: bool
    ) -> None:
        self.precondition, self.free = precondition, free
        self.normal = np.zeros(len(free))
        if tight and free.any():
            solved = np.where(free, precondition(free.astype(np.float64)), 0.0)
            self.normal = solved / solved.sum()

    def project(self, residual: Array) -> tuple[Array, Array]:
        """Return the residual of the free weights less the Lagrange multiplier, and it preconditioned."""
        residual = np.where(self.free, residual - float(self.normal @ residual), 0.0)
        return residual, np.where(self.free, self.precondition(residual), 0.0)


def _multiplier(slope: Array, weights: Array, total: float, tight: bool) -> float:
    """Return the Lagrange multiplier of the constraint on the sum: the mean slope down the weights."""
    return -float(slope @ weights) / total if tight else 0.0


def into_simplex(weights: Array, total: float, exactly: bool) -> Array:
    """Cut off negative weights and scale the others to the right sum."""
    weights = np.maximum(weights, 0.0)
    size = float(weights.sum())
    if exactly and size == 0.0:
        return np.full(len(weights), total / len(weights))
    return weights * (total / size) if exactly or size > total else weights

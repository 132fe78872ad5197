"""Quadratic models, minimised over a box: what a Newton step of a corrector comes down to.

The variables are changes of coordinates, each between a lowest one, which is not positive, and a highest one,
which is not negative.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._protocols import Array
from ._quadratics import RIDGE, solve_refined

_ROUNDING = 1e-12
# How often the number of wrong coordinates may fail to fall before the pivots are made one by one.
_MAX_PIVOTS, _PATIENCE = 50, 3
# Products in a pass that has left the box: many coordinates will be fixed then, and more accuracy is wasted.
_PASS_PRODUCTS = 10
_MAX_BACKTRACKS, _BACKTRACK = 4, 0.25
# Where pivoting has not come to an end: products with a matrix are cheap.
_PRECISE, _MAX_PRODUCTS = 1e-4, 500


def solve_over_box(hessian: Array, slope: Array, low: Array, high: Array) -> Array | None:
    """Minimise ``<slope, u> + <u, H u>/2`` over ``low <= u <= high``.

    Principal pivoting: solve for the free changes as if there were no bounds, fix those that are outside at
    their bound, and free those whose slope leads inside (Judice and Pires, 1994). Where that does not come to
    an end, as with coordinates that depend on each other, it is a descent. Returns None if the equations
    could not be solved.
    """
    diagonal = np.diag(hessian)
    ridge = RIDGE * np.maximum(diagonal, RIDGE * diagonal.max())
    zero = _ROUNDING * float(np.abs(slope).max())
    at_low, at_high = np.zeros((2, len(slope)), dtype=bool)
    fewest, patience = len(slope) + 1, _PATIENCE
    for _ in range(_MAX_PIVOTS):
        change = np.where(at_low, low, np.where(at_high, high, 0.0))
        free = np.flatnonzero(~(at_low | at_high))
        if len(free):
            right_side = -(slope + hessian @ change)[free]
            solution = solve_refined(hessian[np.ix_(free, free)], right_side, ridge[free])
            if solution is None:
                return None
            change[free] = solution
        gradient = slope + hessian @ change
        inwards = at_low & (gradient < -zero) | at_high & (gradient > zero)
        wrong = inwards | (change < low) | (change > high)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return np.asarray(np.clip(change, low, high))
        patience = _PATIENCE if count < fewest else patience - 1
        fewest = min(fewest, count)
        if patience < 0:  # one at a time this cannot cycle
            wrong[: np.flatnonzero(wrong)[-1]] = False
        at_low, at_high = (
            np.where(wrong, change < low, at_low),
            np.where(wrong, change > high, at_high),
        )
    scale = np.maximum(diagonal, ridge)
    return descend_over_box(lambda u: hessian @ u, slope, low, high, scale, zero, _PRECISE, _MAX_PRODUCTS)[0]


def descend_over_box(
    product: Callable[[Array], Array],
    slope: Array,
    low: Array,
    high: Array,
    diagonal: Array,
    target: float,
    precision: float,
    max_products: int,
) -> tuple[Array, int]:
    """Go towards the minimum of a model with this `slope` at zero and Hessian products `product`.

    Conjugate gradients on the free coordinates, preconditioned by the diagonal; then those that went outside
    are put back to their bounds, those whose slope leads inside are freed, and again (More and Toraldo,
    1991). It ends when all slopes together could win no more than `target`. No pass increases the model.
    Returns the changes and the number of products, which may exceed the limit by those of one pass's
    backtracking.
    """
    change, products = np.zeros(len(slope)), 0
    while products < max_products:
        free = np.where(slope > 0.0, change > low, change < high)
        best = np.where(free, np.where(slope > 0.0, change - low, change - high), 0.0)
        if float(slope @ best) <= target:
            break
        scale = np.where(free, 1.0 / diagonal, 0.0)
        steps: list[tuple[Array, Array]] = []  # the first of conjugate gradients and the last, with images
        step, bend = np.zeros((2, len(slope)))
        direction = -scale * slope
        error = first = -float(slope @ direction)
        limit = products + _PASS_PRODUCTS
        while products < max_products:
            image = product(direction)
            products += 1
            curvature = float(direction @ image)
            if curvature <= 0.0:
                break
            length = error / curvature
            step, bend = step + length * direction, bend + length * image
            steps = [*steps[:1], (step, bend)]
            residual = -slope - bend
            error, previous = float(residual @ (scale * residual)), error
            leaves = bool(np.any((change + step < low) | (change + step > high)))
            if error <= precision**2 * first or (products >= limit and leaves):
                break
            direction = scale * residual + (error / previous) * direction
        # The first one, put back to the bounds, goes down if it is short enough. Others need not.
        for step, bend in reversed(steps):
            moved, tried = _shorten(change, slope, step, bend, product, low, high)
            products += tried
            if moved is not None:
                break
        else:
            break
        change, slope = np.clip(change + moved[0], low, high), slope + moved[1]
    return change, products


def _shorten(
    change: Array,
    slope: Array,
    step: Array,
    bend: Array,
    product: Callable[[Array], Array],
    low: Array,
    high: Array,
) -> tuple[tuple[Array, Array] | None, int]:
    """Bring a step that leaves the box back into it, and shorten it until the model falls.

    Returns the step and its image, if there is one, and the number of products.
    """
    fraction = 1.0
    for tried in range(1, _MAX_BACKTRACKS + 1):
        aim = fraction * step
        inside = np.clip(change + aim, low, high) - change
        image = fraction * bend + product(inside - aim)
        if float((2.0 * slope + image) @ inside) < 0.0:
            return (inside, image), tried
        fraction *= _BACKTRACK
    return None, _MAX_BACKTRACKS

"""Quadratic models, minimised over a box: what a Newton step of a corrector comes down to.

The variables are changes of coordinates, each between a lowest one, which is not positive, and a highest one,
which is not negative.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._protocols import Array, SampleVector
from ._quadratics import RIDGE, solve_refined

_ROUNDING = 1e-12
# How often the number of wrong coordinates may fail to fall before the pivots are made one by one.
_MAX_PIVOTS, _PATIENCE = 50, 3
# A descent ends where this many products have won less than this fraction of what all of them have. With 10
# or a tenth, a certified 1e-6 on Farm Ads takes from the same time to twice as long.
_WINDOW, _PROGRESS = 15, 0.2
# No step is longer: its coordinates are finite.
_LARGEST = float(np.finfo(np.float64).max) / 4.0
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
    for left in range(_MAX_PIVOTS, 0, -1):
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
            if count > left:
                break
            wrong[: np.flatnonzero(wrong)[-1]] = False
        at_low, at_high = (
            np.where(wrong, change < low, at_low),
            np.where(wrong, change > high, at_high),
        )
    scale = np.maximum(diagonal, ridge)
    return descend_over_box(
        lambda u: u,
        lambda u: float(u @ hessian @ u),
        lambda u: hessian @ u,
        slope,
        low,
        high,
        scale,
        zero,
        _PRECISE,
        _MAX_PRODUCTS,
    )[0]


def descend_over_box(
    apply: Callable[[Array], SampleVector],
    curvature: Callable[[SampleVector], float],
    adjoint: Callable[[SampleVector], Array],
    slope: Array,
    low: Array,
    high: Array,
    diagonal: Array,
    target: float,
    precision: float,
    max_products: int,
) -> tuple[Array, SampleVector | None, int]:
    """Go towards the minimum of the model with this `slope` at zero.

    Conjugate gradients on the free coordinates, preconditioned by the diagonal. Each step is cut off at the
    bounds, and the next direction is made conjugate to what is left of it (Polak and Ribiere, 1969). Many
    coordinates reach their bounds on the way: to begin anew each time would be little more than steepest
    descent. It ends when all slopes together could win no more than `target`, when the error has fallen by
    the factor `precision`, or when the model hardly falls any more. No step increases the model.

    `apply` gives the image of changes, `curvature` the second derivative along an image, and `adjoint` the
    change of the slopes. Returns the changes, their image, which is None if nothing has changed, and the
    number of products, each of an image and its slopes.
    """
    change, image = np.zeros(len(slope)), None
    direction, before = np.zeros(len(slope)), None
    halves, won = 0, 0.0  # images and slopes are half a product each
    first = most = 0.0
    next_check, won_before = _WINDOW, 0.0
    while halves < 2 * max_products:
        room = change - np.where(slope > 0.0, low, high)
        residual = np.where(room != 0.0, slope, 0.0)
        left = float(residual @ room)
        if left <= target:
            break
        if halves >= 2 * next_check:
            if won - won_before <= _PROGRESS * won:
                break
            next_check, won_before = next_check + _WINDOW, won
        steepest = residual / diagonal
        error = float(residual @ steepest)
        first, most = first or error, most or left
        if not error > 0.0 or (error <= precision**2 * first and left <= most and image is not None):
            break
        conjugate = 0.0
        if before is not None:
            conjugate = max(0.0, (error - float(before[0] @ steepest)) / before[1])
        direction = np.where(residual != 0.0, conjugate * direction, 0.0) - steepest
        fall = -float(residual @ direction)
        if not fall > 0.0:
            direction, fall = -steepest, error
        before = residual, error

        step_image = apply(direction)
        bend = curvature(step_image)
        length = _LARGEST / max(1.0, float(np.abs(direction).max()))
        if bend > 0.0:
            length = min(length, fall / bend)
        aim = change + length * direction
        inside = np.clip(aim, low, high)
        step = inside - change
        halves += 2
        if np.array_equal(inside, aim):
            step_image = length * step_image
        else:
            step_image, halves = apply(step), halves + 1
        step_slope = adjoint(step_image)
        fall, bend = -float(slope @ step), float(step @ step_slope)
        if not fall > 0.0:  # what was cut off made it a descent
            direction, before = np.zeros(len(slope)), None
            continue
        direction = step / length
        if bend >= 2.0 * fall:
            shorter = fall / bend
            step, step_image, step_slope = shorter * step, shorter * step_image, shorter * step_slope
            inside, fall, bend = change + step, shorter * fall, shorter**2 * bend
        won += fall - bend / 2.0
        change, slope = inside, slope + step_slope
        image = step_image if image is None else image + step_image
    return change, image, halves // 2

"""What correctors share: the minimum of a model of the loss, how far to go towards it, and along a sphere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._lines import search
from .._problem import Problem
from .._protocols import Array, Data, Design, Iterate, Point, SampleVector
from .._sums import inner

# A step is good enough when the slope at its end is this fraction of the slope at its start.
FLAT = 0.3
# Slopes are brought to agree within this fraction of the gap.
SHARE = 0.1
# Conjugate gradients reduce the error at least by the first factor, at most by the second.
_LOOSE, _TIGHT = 0.3, 0.01
# Where a product takes no more seconds than this, precision costs next to nothing, and steps are to depend on
# what is minimised alone, not on how. A sample with a weight of two then leads to the same model as two
# samples, although its products are cheaper.
_CHEAP = 1e-4
# A matrix may cost as much as this many products with the data.
GRAM_PRODUCTS = 12.0


def precision(relative_gap: float) -> float:
    """Return by how much conjugate gradients are to reduce the error."""
    return min(_LOOSE, max(_TIGHT, relative_gap))


def is_small(design: Design) -> bool:
    """Whether products take so little time that steps are to be precise."""
    return design.product_cost <= _CHEAP


def accuracy(enough: float, design: Design) -> float:
    """Return an accuracy that is enough, or a smaller one where products take no time."""
    return min(enough, _TIGHT) if is_small(design) else enough


def towards(problem: Problem[Data], point: Point, target: Iterate, change: SampleVector) -> Point:
    """Go towards `target`, where the predictions have changed by `change`, as far as the loss falls.

    The whole step is tried first, and mostly is the one: it comes from Newton's method.
    """
    found = search(problem.line(point.predictions, point.evaluation, change), FLAT, first_step=1.0)
    if found is None:
        return point
    x = target if found.step == 1.0 else (1.0 - found.step) * point.x + found.step * target
    return Point(x, found.predictions, found.evaluation)


def conjugate_gradients(
    product: Callable[[Array], Array],
    solve: Callable[[Array], Array],
    residual: Array,
    precision: float,
    max_products: int,
) -> tuple[Array, int]:
    """Solve equations up to a fraction of the residual; `solve` is the preconditioner.

    Returns the solution and the number of products.
    """
    enough = precision**2 * inner(residual, residual)
    solution, n_products = np.zeros_like(residual), 0
    step = direction = solve(residual)
    error = inner(residual, step)
    while n_products < max_products and error > 0.0:
        image = product(direction)
        n_products += 1
        curvature = inner(direction, image)
        if not curvature > 0.0:
            break
        length = error / curvature
        solution, residual = solution + length * direction, residual - length * image
        if inner(residual, residual) <= enough:
            break
        step = solve(residual)
        error, previous = inner(residual, step), error
        direction = step + (error / previous) * direction
    return solution, n_products


class Sphere:
    """Tangents of the sphere at a point whose `normal` has norm one, in the metric of a preconditioner."""

    def __init__(self, normal: Array, precondition: Callable[[Array], Array]) -> None:
        self.normal, self.precondition = normal, precondition
        solved = precondition(normal)
        self.shift = solved / inner(normal, solved)

    def project(self, residual: Array) -> Array:
        """Take out the normal part of a residual: the Lagrange multiplier balances it."""
        result: Array = residual - inner(self.normal, residual) * self.normal
        return result

    def tangential(self, residual: Array) -> Array:
        """Return the preconditioned residual, made tangential."""
        step = self.precondition(residual)
        result: Array = step - inner(self.normal, step) * self.shift
        return result

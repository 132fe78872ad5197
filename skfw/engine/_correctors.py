"""Correctors: Newton steps over what Frank-Wolfe has discovered, one for each geometry.

All of them minimise the second-order model of the loss at the iterate, over the coordinates, the atoms or the
ball, and go from the iterate towards that minimum as far as the loss falls. Both ends of that line are in the
set, so all of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs

from ._linear_maps import DesignMatrix
from ._losses import DiagonalHessian
from ._protocols import (
    Array,
    Atom,
    Corrector,
    Direction,
    Evaluation,
    Hessian,
    Iterate,
    LinearMap,
    Loss,
    Point,
)
from ._quadratics import descend_over_simplex, solve_over_simplex
from ._sums import inner

# A step is good enough when the slope at its end is this fraction of the slope at its start.
_FLAT = 0.3
_MAX_EVALUATIONS = 20
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
# So many coordinates may enter at once, and half as many as there are already.
_BATCH, _BATCH_SHARE = 50, 0.5
# Columns are not gathered anew where at least this fraction of those at hand is needed.
_REUSE = 0.7
# Slopes are brought to agree within this fraction of the gap.
_SHARE = 0.1
_MAX_NEWTON_STEPS = 10
# An atom with a smaller share of the weight is dropped.
_NEGLIGIBLE = 1e-14
# Conjugate gradients reduce the error at least by the first factor, at most by the second.
_LOOSE, _TIGHT = 0.3, 0.01
# Products in a Newton step: many coordinates still come and go, so there less accuracy is worth it.
_COORDINATE_PRODUCTS, _BALL_PRODUCTS = 40, 100
# A preconditioner is made anew when a Newton step took more products than this.
_STALE = 5
# A matrix may cost as much as so many products with the data.
_GRAM_PRODUCTS = 12.0
# Seconds for a term of a Cholesky factorisation.
_CHOLESKY_TERM = 6e-11
# Correlations of a sample are shrunk by this factor; so the matrix they give is positive definite.
_SHRINKAGE = 0.99
_RIDGE = 1e-12
_ON_SPHERE = 1e-9


@final
class ActiveCoordinates(Corrector):
    """Re-optimises the nonzero coordinates and a batch of new ones, for the l1 ball and the simplex.

    In terms of the signed coordinates the set is a simplex. Where the Hessian of the active coordinates is
    cheap it is formed, and the model is minimised exactly; else by conjugate gradients, with products only.

    Parameters
    ----------
    loss : Loss
    design : DesignMatrix
    radius : float
    signed : bool
        Whether coordinates of both signs are atoms, and zero is in the set.
    """

    def __init__(self, loss: Loss, design: DesignMatrix, radius: float, signed: bool) -> None:
        self.loss, self.design, self.radius, self.signed = loss, design, radius, signed
        self._first_value = 0.0
        self._n_products = 0
        self._features: npt.NDArray[np.intp] = np.arange(design.shape[1])
        self._columns = design

    def improve(self, point: Point, gradient: Direction, atom: Atom, gap: float) -> Point:
        """Take a Newton step over the active coordinates."""
        x, slopes = point.x.ravel(), gradient.ravel()
        active = self._active(x, slopes)
        if not len(active):
            return point
        signs = np.where(x[active] != 0.0, np.sign(x[active]), -np.sign(slopes[active]))
        signs = signs if self.signed else np.ones(len(active))
        weights, slope = signs * x[active], signs * slopes[active]
        columns, places = self._restrict(active)
        shape = columns.zeros().shape

        def apply(values: Array) -> Array:
            model = np.zeros(shape)
            model.reshape(-1)[places] = signs * values
            return columns.apply(model)

        def adjoint(residual: Array) -> Array:
            return signs * columns.adjoint(residual).reshape(-1)[places]

        self._first_value = self._first_value or point.value
        hessian = self.loss.hessian(point.evaluation)
        matrix = None
        cost = columns.gram_cost + _CHOLESKY_TERM * len(active) ** 3
        if cost <= max(_GRAM_PRODUCTS, self._n_products) * columns.product_cost:
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
                np.maximum(diagonal, np.finfo(np.float64).tiny / _ROUNDING),
                self.radius,
                exactly=not self.signed,
                target=_SHARE * gap / self.radius,
                precision=min(_LOOSE, max(_TIGHT, gap / self._first_value)),
                max_products=self._enough_products(cost / columns.product_cost),
            )
        target = np.zeros(x.size)
        target[active] = signs * best
        return _towards(self.loss, point, target.reshape(point.x.shape), apply(best - weights))

    def _enough_products(self, gram_products: float) -> int:
        """Return how many products are worth it: no more than the matrix costs, where there is one."""
        if self.design.n_outputs is not None:
            return _COORDINATE_PRODUCTS
        return int(min(_COORDINATE_PRODUCTS, max(_GRAM_PRODUCTS, gram_products + 1.0)))

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

    def _restrict(self, active: npt.NDArray[np.intp]) -> tuple[DesignMatrix, npt.NDArray[np.intp]]:
        """Return a design with the active features, and the places of the active coordinates in its model."""
        outputs = self.design.n_outputs or 1
        needed = np.unique(active // outputs) if outputs > 1 else active
        known = len(needed) > _REUSE * len(self._features) and np.isin(needed, self._features).all()
        if not known and len(needed) > _REUSE * self.design.shape[1]:
            self._features, self._columns = np.arange(self.design.shape[1]), self.design
        elif not known:
            self._features, self._columns = needed, self.design.restrict(needed)
        places = np.searchsorted(self._features, active // outputs) * outputs + active % outputs
        return self._columns, places


@final
class ActiveAtoms(Corrector):
    """Re-optimises the weights of the atoms found so far, for any set.

    The iterate is kept as an average of atoms; those that lose their weight are dropped. Where there are more
    of them than the model has dimensions, they are not needed: the iterate takes their place.

    Parameters
    ----------
    loss : Loss
    linear_map : LinearMap
    """

    def __init__(self, loss: Loss, linear_map: LinearMap) -> None:
        self.loss, self.linear_map = loss, linear_map
        self._iterate: Iterate = None
        self._atoms: list[Atom | Iterate] = []
        self._images: list[Array] = []
        self._weights = np.zeros(0)
        self._dimensions = int(np.prod(linear_map.zeros().shape))

    def improve(self, point: Point, gradient: Direction, atom: Atom, gap: float) -> Point:
        """Take Newton steps in the weights, until the atoms leave little of the gap."""
        # The iterate is no longer their average if a step was taken without this corrector.
        if point.x is not self._iterate or len(self._atoms) > self._dimensions:
            self._atoms, self._images = [point.x], [point.predictions.ravel()]
            self._weights = np.ones(1)
        self._atoms.append(atom)
        self._images.append(atom.image(self.linear_map).ravel())
        weights, images = np.append(self._weights, 0.0), np.stack(self._images)
        shape = point.predictions.shape
        predictions, evaluation = point.predictions, point.evaluation
        for _ in range(_MAX_NEWTON_STEPS):
            slope = images @ evaluation.residual.ravel()
            if float(slope @ weights) - float(slope.min()) <= _SHARE * gap:
                break
            hessian = self.loss.hessian(evaluation)
            curved = np.stack([hessian.apply(image.reshape(shape)).ravel() for image in images])
            matrix = images @ curved.T
            free = (weights > 0.0) | (slope < float(slope @ weights))
            best = solve_over_simplex(matrix, slope - matrix @ weights, free, 1.0, exactly=True)
            if best is None:
                break
            change = ((best - weights) @ images).reshape(shape)
            step, predictions, evaluation = _search(self.loss, predictions, evaluation, change)
            if step == 0.0:
                break
            weights = (1.0 - step) * weights + step * best
        kept = np.flatnonzero(weights > _NEGLIGIBLE)
        self._atoms, self._images = [self._atoms[k] for k in kept], [self._images[k] for k in kept]
        self._weights = weights[kept] / weights[kept].sum()
        if evaluation is point.evaluation:
            self._iterate = point.x
            return point
        x = self.linear_map.zeros()
        for weight, piece in zip(self._weights, self._atoms, strict=True):
            x = x + weight * piece
        # Images of atoms may be so large that their average is mostly rounding.
        predictions = self.linear_map.apply(x)
        evaluation = self.loss.evaluate(predictions, evaluation.intercept)
        if evaluation.value > point.value:
            self._iterate = None  # the weights are no longer those of the point
            return point
        self._iterate = x
        return Point(x, predictions, evaluation)


@final
class EuclideanBall(Corrector):
    """Newton's method on a Euclidean ball: over its sphere, or inside while the sphere is not reached.

    On the sphere the step is tangential, with the curvature of the loss plus that of the sphere, which is the
    multiplier of the constraint; the end point is scaled back onto the sphere. The equations are solved by
    conjugate gradients. They are preconditioned by the Hessian of a sample of the rows, with its diagonal put
    right, where a factorisation of that is cheap, and else by the diagonal.

    Parameters
    ----------
    loss : Loss
    design : DesignMatrix
    radius : float
    """

    def __init__(self, loss: Loss, design: DesignMatrix, radius: float) -> None:
        self.loss, self.design, self.radius = loss, design, radius
        self.centred = bool(getattr(loss, "fit_intercept", False))
        self._precondition: Callable[[Array], Array] | None = None
        self._shift = 0.0
        self._first_value = 0.0
        self._n_products = 0

    def improve(self, point: Point, gradient: Direction, atom: Atom, gap: float) -> Point:
        """Take a Newton step."""
        self._first_value = self._first_value or point.value
        x = point.x
        radial = inner(gradient, x) / self.radius
        on_sphere = inner(x, x) >= (1.0 - _ON_SPHERE) * self.radius * self.radius
        if on_sphere and radial > 0.0:  # the loss falls inwards; but along the sphere first if steeper there
            on_sphere = radial * radial < 0.5 * inner(gradient, gradient)
        multiplier = max(0.0, -radial / self.radius) if on_sphere else 0.0
        hessian = self.loss.hessian(point.evaluation)
        # Inside, the multiplier that the sphere would have keeps steps from going far in flat directions.
        shift = multiplier or float(np.sqrt(inner(gradient, gradient))) / self.radius
        stale = self._n_products > _STALE or not self._shift / 2.0 <= shift <= 2.0 * self._shift
        if self._precondition is None or stale:
            self._precondition, self._shift = self._preconditioner(hessian, shift), shift
        sphere = _Sphere(x / self.radius, self._precondition) if on_sphere else None

        # Conjugate gradients, from the iterate.
        solve = sphere.tangential if sphere else self._precondition
        residual = -gradient if sphere is None else sphere.project(-gradient)
        precision = min(_LOOSE, max(_TIGHT, gap / self._first_value))
        enough = precision**2 * inner(residual, residual)
        target, change = x, np.zeros_like(point.predictions)
        step = direction = solve(residual)
        error = inner(residual, step)
        self._n_products = 0
        while self._n_products < _BALL_PRODUCTS and error > 0.0:
            image = self.design.apply(direction)
            curved = self.design.adjoint(hessian.apply(image)) + multiplier * direction
            self._n_products += 1
            curvature = inner(direction, curved)
            length = error / curvature if curvature > 0.0 else np.inf
            if sphere is None:
                length = min(length, (border := _distance_to_sphere(target, direction, self.radius)))
            if not length < np.inf:
                break
            target, change = target + length * direction, change + length * image
            if sphere is None and length == border:
                break
            residual = residual - length * curved
            if sphere:
                residual = sphere.project(residual)
            if inner(residual, residual) <= enough:
                break
            step = solve(residual)
            error, previous = inner(residual, step), error
            direction = step + (error / previous) * direction

        size = float(np.sqrt(inner(target, target)))
        if sphere or size > self.radius:
            scale = self.radius / size
            target, change = scale * target, scale * change + (scale - 1.0) * point.predictions
        return _towards(self.loss, point, target, change)

    def _preconditioner(self, hessian: Hessian, shift: float) -> Callable[[Array], Array]:
        """Return a map that is about the inverse of the Hessian plus `shift` times the identity."""
        diagonal = self.design.squares(hessian.diagonal) + shift
        diagonal += _RIDGE * diagonal.max() + np.finfo(np.float64).tiny
        outputs = self.design.n_outputs or 1
        factor_cost = _CHOLESKY_TERM * self.design.shape[1] ** 3
        allowed = max(_GRAM_PRODUCTS, self._n_products) * self.design.product_cost / outputs
        rows, sample = np.arange(self.design.shape[0]), self.design
        patient = self._n_products <= _STALE  # products with a cheap preconditioner have not been many so far
        if patient or sample.gram_cost + factor_cost > allowed:
            rows, sample = self.design.sample
        if (patient and sample is self.design) or sample.gram_cost + factor_cost > allowed:
            return lambda residual: residual / diagonal
        curvatures, diagonals = np.atleast_2d(hessian.diagonal[rows].T), np.atleast_2d(diagonal.T)
        factors = [
            _sampled_factor(sample, curvature, diagonal_column, shift, self.centred)
            for curvature, diagonal_column in zip(curvatures, diagonals, strict=True)
        ]

        def solve(residual: Array) -> Array:
            columns = np.atleast_2d(residual.T)
            parts = [dpotrs(factor, column)[0] for factor, column in zip(factors, columns, strict=True)]
            return np.stack(parts, axis=-1).reshape(residual.shape)

        return solve


class _Sphere:
    """Tangents of the sphere at a point with this unit `normal`, in the metric of a preconditioner."""

    def __init__(self, normal: Array, precondition: Callable[[Array], Array]) -> None:
        self.normal, self.precondition = normal, precondition
        solved = precondition(normal)
        self.shift = solved / inner(normal, solved)

    def project(self, residual: Array) -> Array:
        """Take out the normal part of a residual, which the constraint holds up."""
        result: Array = residual - inner(self.normal, residual) * self.normal
        return result

    def tangential(self, residual: Array) -> Array:
        """Return the preconditioned residual, made tangential."""
        step = self.precondition(residual)
        result: Array = step - inner(self.normal, step) * self.shift
        return result


def _sampled_factor(
    sample: DesignMatrix, curvature: Array, diagonal: Array, shift: float, centred: bool
) -> Array:
    """Factor the Hessian of a sample of rows, scaled to the diagonal of all rows."""
    matrix = DiagonalHessian(curvature, centred).gram(sample)
    found = np.diag(matrix).copy()
    scale = np.sqrt(np.divide(diagonal - shift, found, out=np.zeros_like(found), where=found > 0.0))
    matrix *= (_SHRINKAGE * scale)[:, np.newaxis] * scale
    matrix[np.diag_indices(len(matrix))] = diagonal
    factor, failed = dpotrf(matrix, overwrite_a=1)
    return np.diag(np.sqrt(diagonal)) if failed else factor


def _distance_to_sphere(x: Array, direction: Array, radius: float) -> float:
    """Return how far one can go from `x` along `direction` inside the ball."""
    room = max(radius * radius - inner(x, x), 0.0)
    slope, square = np.float64(inner(x, direction)), np.float64(inner(direction, direction))
    root = np.sqrt(slope * slope + square * room)
    return float(room / (root + slope) if slope > 0.0 else (root - slope) / square)


def _towards(loss: Loss, point: Point, target: Array, change: Array) -> Point:
    """Go towards `target`, where the predictions have changed by `change`, as far as the loss falls."""
    step, predictions, evaluation = _search(loss, point.predictions, point.evaluation, change)
    if step == 0.0:
        return point
    x = target if step == 1.0 else (1.0 - step) * point.x + step * target
    return Point(x, predictions, evaluation)


def _search(
    loss: Loss, predictions: Array, evaluation: Evaluation, change: Array
) -> tuple[float, Array, Evaluation]:
    """Search a step in [0, 1] along `change` where the loss is about flat; zero if there is nothing to win.

    The whole step is tried first, and mostly is the one: it comes from Newton's method.
    """
    first = inner(evaluation.residual, change)
    if not first < 0.0:
        return 0.0, predictions, evaluation
    low, high, step = 0.0, 1.0, 1.0
    for _ in range(_MAX_EVALUATIONS):
        trial = predictions + step * change
        found = loss.evaluate(trial, evaluation.intercept)
        slope = inner(found.residual, change)
        falls = found.value <= (1.0 + _ROUNDING) * evaluation.value
        if falls and (abs(slope) <= _FLAT * -first or (slope < 0.0 and step == 1.0)):
            return step, trial, found
        low, high = (step, high) if slope < 0.0 else (low, step)
        curvature = loss.curvature_along(found, change)
        newton = step - slope / curvature if curvature > 0.0 else low
        step = newton if low < newton < high else (low + high) / 2.0
    return 0.0, predictions, evaluation

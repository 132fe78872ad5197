"""A corrector for matrices of coefficients: Newton's method on their factors inside a nuclear-norm ball.

A matrix is in the ball of radius one if and only if it is ``U V^T`` with ``|U|^2 + |V|^2 <= 2``: a Euclidean
ball of factors, on whose sphere a Newton step knows how the norm of the matrix curves. Factors of too low a
rank would keep it; so a projected gradient step comes first, which brings in all singular vectors of the
gradient that are worth it, and drops those of the matrix that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from .._certificate import Cut
from .._costs import cholesky
from .._problem import Problem
from .._protocols import Array, Corrector, Design, Hessian, Hint, Point, Rows
from .._sums import TINY, euclidean_norm, inner
from ._newton_step import GRAM_PRODUCTS, SHARE, Sphere, accuracy, conjugate_gradients, towards

_MAX_PRODUCTS = 100
# Conjugate gradients reduce the residual by this factor. A hundredth, where the gap is small, took 1.3 to 2.5
# times as long on text of twenty classes and in reduced-rank regressions, and as long on images of digits.
_ENOUGH = 0.2
_ON_SPHERE = 1e-9
# The eigenvectors of a matrix take about as long as this many Cholesky factorisations of it.
_EIGENVECTORS = 10.0


@dataclass(frozen=True)
class _Model:
    """What a Newton step is made from.

    Attributes
    ----------
    gradient : ndarray
    hessian : Hessian
        In the predictions.
    steepest : float
        The largest singular value of the gradient.
    """

    gradient: Array
    hessian: Hessian
    steepest: float


@dataclass(frozen=True)
class _Spectrum:
    """A positive semidefinite matrix of eigenvalues and eigenvectors; a diagonal one without these."""

    values: Array
    vectors: Array | None

    def gram(self, factors: Array) -> Array:
        """Return the inner products of factors in this matrix."""
        turned = factors if self.vectors is None else self.vectors.T @ factors
        result: Array = turned.T @ (np.maximum(self.values, 0.0)[:, np.newaxis] * turned)
        return result

    def inverse(self, gram: Array, shift: float) -> Callable[[Array], Array]:
        """Return the inverse of ``factors -> matrix factors gram + shift factors``."""
        vectors = self.vectors
        shares, rotation = np.linalg.eigh(gram)
        products = np.maximum(self.values, 0.0)[:, np.newaxis] * np.maximum(shares, 0.0)
        divisors = products + max(shift, TINY)

        def solve(slope: Array) -> Array:
            turned = slope @ rotation if vectors is None else vectors.T @ (slope @ rotation)
            turned = turned / divisors
            result: Array = (turned if vectors is None else vectors @ turned) @ rotation.T
            return result

        return solve


def _shrunk(values: Array) -> Array:
    """Return the nearest non-negative numbers with a sum of at most one; `values` descend."""
    if values[0] <= 1.0 and values.sum() <= 1.0:
        return values
    # Less the largest: so that the sum is not lost in numbers far beyond it. What is one below ends at zero.
    values = np.maximum(values - values[0], -1.0)
    excess = (np.cumsum(values) - 1.0) / np.arange(1, len(values) + 1)
    result: Array = np.maximum(values - excess[np.flatnonzero(values > excess)[-1]], 0.0)
    return result


@final
class FactorNewton(Corrector):
    """Newton's method in a nuclear-norm ball: on the factors at its boundary, on the matrix in its interior.

    Matrices are counted in units in which the ball has radius one, and losses in those of the first one.

    Parameters
    ----------
    problem : Problem of a Design
    radius : float
    row_weights, column_weights : ndarray
        The norm is that of the matrix with rows and columns multiplied by these.
    """

    def __init__(
        self, problem: Problem[Design], radius: float, row_weights: Array, column_weights: Array
    ) -> None:
        self.problem = problem
        self._row_units, self._column_units = radius / row_weights, 1.0 / column_weights
        self._units: Array = self._row_units[:, np.newaxis] * self._column_units
        self._loss_unit = 0.0
        self._spectrum: _Spectrum | None = None
        self._n_products = 0

    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a projected gradient step and a Newton step."""
        self._loss_unit = self._loss_unit or abs(point.value)
        if self._loss_unit == 0.0:
            return point
        try:
            return self._newton_step(self._project(point, newest), newest, gap)
        except np.linalg.LinAlgError:  # of numbers that are not finite
            return point

    def _newton_step(self, point: Point, newest: Cut, gap: float) -> Point:
        """Take a step along the sphere of the factors or, where the constraint is not active, inside it."""
        left, values, right = np.linalg.svd(point.x / self._units, full_matrices=False)
        size = float(values.sum())
        if size == 0.0:
            return point
        slope = self.problem.data.inner(point.evaluation.residual, point.predictions)
        if size < 1.0 - _ON_SPHERE and slope < 0.0:
            # As far out as the loss falls: to the sphere, if the constraint is active.
            inside, factor = point, 1.0 / size
            point = towards(self.problem, inside, factor * inside.x, (factor - 1.0) * inside.predictions)
            values *= euclidean_norm(point.x) / euclidean_norm(inside.x)
            size = float(values.sum())

        direction = self.problem.data.adjoint(point.evaluation.residual)
        hint = Hint(memory=newest.minimum.memory, accuracy=SHARE * gap)
        steepest = -self.problem.constraint.lmo(direction, hint).value / self._loss_unit
        gradient = self._units * direction / self._loss_unit
        multiplier = max(0.0, -inner(gradient, point.x / self._units) / size)
        hessian = self.problem.loss.hessian(point.evaluation)
        # New eigenvectors cost about as much as the products that they are to save.
        stale = self._n_products > GRAM_PRODUCTS and not self.problem.loss.is_quadratic
        if self._spectrum is None or stale:
            self._spectrum = self._mean_spectrum(hessian)
        model = _Model(gradient, hessian, steepest)
        self._n_products = 0
        target = None
        if size < 1.0 - _ON_SPHERE or multiplier == 0.0:
            target = self._inside(model, self._spectrum, point.x / self._units, size)
        if target is None:
            kept = values > max(self._units.shape) * np.finfo(np.float64).eps * values[0]
            roots = np.sqrt(values[kept])
            factors = np.vstack([left[:, kept] * roots, right[kept].T * roots])
            target = self._along_sphere(model, self._spectrum, factors, multiplier)
        return self._towards(point, target)

    def _project(self, point: Point, newest: Cut) -> Point:
        """Take a gradient step as long as if there were no ball, and back into it: of low rank."""
        gradient = self._units * newest.direction / self._loss_unit
        image = self.problem.data.apply(self._units * gradient)
        hessian = self.problem.loss.hessian(point.evaluation)
        curvature = self.problem.data.inner(image, hessian.apply(image)) / self._loss_unit
        step = inner(gradient, gradient) / curvature if curvature > 0.0 else np.inf
        aim = point.x / self._units - step * gradient
        left, values, right = np.linalg.svd(aim, full_matrices=False)
        if not np.isfinite(values).all():
            return point
        return self._towards(point, (left * _shrunk(values)) @ right)

    def _inside(self, model: _Model, spectrum: _Spectrum, matrix: Array, size: float) -> Array | None:
        """Return the end of a Newton step in the interior; None if it leads out of the ball at once."""

        def product(change: Array) -> Array:
            result: Array = self._units * self._curved(model.hessian, self._units * change) / self._loss_unit
            return result

        solve = spectrum.inverse(np.diag(self._column_units**2), model.steepest)
        change = self._conjugate_gradients(product, solve, -model.gradient)
        target = matrix + change
        beyond = float(np.linalg.svd(target, compute_uv=False).sum())
        if beyond <= 1.0:
            return target
        # The norm is convex: it is at most one as far as its chord is.
        fraction = (1.0 - size) / (beyond - size)
        return matrix + fraction * change if fraction > _ON_SPHERE else None

    def _along_sphere(self, model: _Model, spectrum: _Spectrum, factors: Array, multiplier: float) -> Array:
        """Return the matrix of a Newton step of the factors along their sphere."""
        gradient, n_rows = model.gradient, len(model.gradient)
        left, right = factors[:n_rows], factors[n_rows:]
        # In the second derivative the multiplier of the sphere would do, at the optimum. There it is the
        # largest singular value of the gradient. Elsewhere that is larger, and with it the matrix is positive
        # semidefinite. As much again: new factors at most double then, and do not shoot beyond the model.
        shift = model.steepest + max(model.steepest - multiplier, 0.0)
        row_units, column_units = self._row_units[:, np.newaxis], self._column_units[:, np.newaxis]
        plain_left, plain_right = row_units * left, column_units * right

        def product(change: Array) -> Array:
            left_change, right_change = change[:n_rows], change[n_rows:]
            # Units are those of the factors, and the sum is one product: matrices as large as the model that
            # are not made were half of the time.
            lefts = np.hstack([row_units * left_change, plain_left])
            rights = np.hstack([plain_right, column_units * right_change])
            image = self._curved(model.hessian, lefts @ rights.T)
            rows = row_units * (image @ plain_right) / self._loss_unit + gradient @ right_change
            columns = column_units * (plain_left.T @ image).T / self._loss_unit + (left_change.T @ gradient).T
            return sphere.project(np.vstack([rows, columns]) + shift * change)

        solve_rows = spectrum.inverse(plain_right.T @ plain_right, shift)
        solve_columns = _Spectrum(self._column_units**2, None).inverse(spectrum.gram(left), shift)

        def solve(slope: Array) -> Array:
            return np.vstack([solve_rows(slope[:n_rows]), solve_columns(slope[n_rows:])])

        size = float(np.linalg.norm(factors))
        sphere = Sphere(factors / size, solve)
        slope = sphere.project(np.vstack([gradient @ right, gradient.T @ left]))
        change = self._conjugate_gradients(product, sphere.tangential, -slope)
        target = factors + change
        target *= size / np.linalg.norm(target)
        result: Array = target[:n_rows] @ target[n_rows:].T
        return result

    def _conjugate_gradients(
        self,
        product: Callable[[Array], Array],
        solve: Callable[[Array], Array],
        residual: Array,
    ) -> Array:
        """Solve equations, and count the products of a step."""
        limit, enough = _MAX_PRODUCTS - self._n_products, accuracy(_ENOUGH, self.problem.data)
        solution, n_products = conjugate_gradients(product, solve, residual, enough, limit)
        self._n_products += n_products
        return solution

    def _curved(self, hessian: Hessian, change: Array) -> Array:
        """Return the second derivative of the loss in the coefficients, times a change of them."""
        return np.asarray(self.problem.data.adjoint(hessian.apply(self.problem.data.apply(change))))

    def _towards(self, point: Point, target: Array) -> Point:
        x = self._units * target
        return towards(self.problem, point, x, self.problem.data.apply(x) - point.predictions)

    def _mean_spectrum(self, hessian: Hessian) -> _Spectrum:
        """Return the second derivative in a column of the matrix, as if it were the same for all of them."""
        design = self.problem.data
        units = self._row_units / self._loss_unit**0.5
        allowed = GRAM_PRODUCTS * design.product_cost
        eigenvectors = _EIGENVECTORS * cholesky(design.shape[1]) / self._units.shape[1]
        choices: list[tuple[Rows | None, Design] | None] = [(None, design), design.sample]
        for rows, part in filter(None, choices):
            if part.gram_cost + eigenvectors > allowed:
                continue
            grams = hessian.output_grams(part, rows)
            if grams is not None:
                share = part.shape[0] / design.shape[0]
                matrix = units[:, np.newaxis] * sum(grams) * units / (share * len(grams))
                return _Spectrum(*np.linalg.eigh(matrix))
        return _Spectrum(design.squares(hessian.diagonal).mean(axis=1) * units**2, None)

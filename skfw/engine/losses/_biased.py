"""The squared error of a matrix model with a bias for each row and column, which the loss fits itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import ClassVar, final

import numpy as np

from .._protocols import Array, Direction, Evaluation, Hessian, Loss, PlainEntries
from .._sums import SUM_ROUNDING, UNIT_ROUNDOFF, euclidean_norm, inner
from .._threads import map_blocks, row_blocks

# Biases are good enough when better ones could lower the loss by no more than this fraction of the targets';
# in rough evaluations, in single precision, by about this one.
_PRECISION, _ROUGH_PRECISION = 1e-10, 1e-5
_MAX_STEPS = 100
# The least penalty, relative to the weight of what it belongs to: it changes the loss by rounding only.
_LEAST_PENALTY = float(np.finfo(np.float64).eps)
# Entries in a block of what is computed for each of them: it stays in the cache.
_BLOCK = 1 << 17


@final
@dataclass(frozen=True)
class BiasedSquaredLoss(Loss):
    r"""Half the weighted mean squared error of predictions plus biases, with a ridge penalty on the biases.

    .. math:: f(z) = \min_{a, b} \tfrac12 \sum_i w_i (z_i + a_{r_i} + b_{c_i} - y_i)^2
              + \tfrac{\alpha}{2} \|a\|^2 + \tfrac{\beta}{2} \|b\|^2

    A penalty is at least 2^-52 times the weight of the entries of its row or column: less would make no
    difference to the loss, but the biases could not be found. The biases minimise the loss together with the
    model, not before it. They are found by conjugate gradients, and need not be exact: the value belongs to
    the biases found, and the plane of an evaluation lies below the loss for any residual ``r``, because its
    offset is minus the conjugate there. Written with the biases found, that is the value less ``<r, z>`` and
    less the squares of the derivatives in the biases, divided by twice the penalties. At the best biases they
    vanish.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,)
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    entries : PlainEntries
        To which row and column a sample belongs.
    row_penalty, column_penalty : float
        Positive. An infinite one leaves the biases out.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import BiasedSquaredLoss, ObservedEntries
    >>> entries = ObservedEntries(np.array([0, 0, 1]), np.array([0, 1, 1]), (2, 2))
    >>> targets, weights = np.array([3.0, 1.0, 0.0]), np.full(3, 1 / 3)
    >>> loss = BiasedSquaredLoss(targets, weights, entries, 1e-9, 1e-9)
    >>> bool(loss.evaluate(np.zeros(3)).value < 1e-7)
    True
    """

    targets: Array
    weights: Array
    entries: PlainEntries
    row_penalty: float
    column_penalty: float
    curvature: ClassVar[float] = 1.0
    is_quadratic: ClassVar[bool] = True
    infimum: ClassVar[float] = 0.0
    largest_prediction: ClassVar[float] = 1e153

    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`. The intercept is the biases of the rows, then of the columns."""
        residual, biases, half_square = self._fit_biases(self.targets, predictions, self.weights, intercept)
        penalties = self._penalties
        # An infinite penalty times no bias is nothing.
        shrinkage = np.where(biases == 0.0, 0.0, penalties) * biases
        value = half_square + 0.5 * inner(shrinkage, biases)
        slopes = self.entries.marginals(residual) + shrinkage
        # Not the squares divided by the penalties: they may be too small for floats.
        unbalanced = 0.5 * inner(slopes, slopes / penalties)
        unbalanced = float(np.sqrt(unbalanced) + np.sqrt(self._marginals_error * half_square)) ** 2
        offset = value - inner(residual, predictions) - unbalanced
        # The mean size is at most the root mean square. Predictions are errors, targets and biases.
        size = (1.0 + SUM_ROUNDING) * float(np.sqrt(2.0 * half_square))
        bias_size = 1.5 * euclidean_norm(np.sqrt(self._marginals) * biases)
        parts = value + size * (size + 2.0 * self._target_size + bias_size) + unbalanced
        return Evaluation(value, residual, offset, size, parts, biases)

    def evaluate_roughly(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss in single precision, with biases that are found in fewer steps, and no plane."""
        targets, weights = self._single_precision
        predictions = predictions.astype(np.float32, copy=False)
        residual, biases, half_square = self._fit_biases(targets, predictions, weights, intercept)
        penalised = np.where(biases == 0.0, 0.0, self._penalties) * biases
        value = half_square + 0.5 * inner(penalised, biases)
        return Evaluation(value, residual, -np.inf, np.inf, np.inf, biases)

    def _fit_biases(
        self, targets: Array, predictions: Array, weights: Array, guess: float | Array
    ) -> tuple[Array, Array, float]:
        """Return the residual at the best biases, these, and half the weighted sum of squared errors."""

        def values(part: slice) -> Array:
            return np.asarray(targets[part] - predictions[part])

        biases = self._best_biases(*_weighted(values, weights), guess)

        def errors(part: slice) -> Array:
            result = self.entries.spread(biases, part)
            result -= values(part)
            return np.asarray(result)

        residual, square = _weighted(errors, weights)
        return residual, biases, 0.5 * square

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative, which is the same everywhere."""
        return inner(change, self.hessian(evaluation).apply(change))

    def curvature_bound(self, change: Array) -> float:
        """Return the weighted mean square of `change`, as if the biases stayed where they are."""
        return inner(self.weights, change * change)

    def hessian(self, evaluation: Evaluation) -> BiasedHessian:
        """Return the curvature, the same everywhere."""
        return BiasedHessian(self)

    def _best_biases(self, weighted: Array, square: float, guess: float | Array) -> Array:
        """Return the biases that fit values best: others could lower the loss by a small fraction at most.

        Given are the values times their weights, and the weighted sum of their squares. For given row biases
        those of the columns are known, which leaves equations for the rows alone. Where their residual is g,
        others could lower the loss by half of g^2 over the penalties at most. For rough ones it is enough
        that they would if the rows had nothing to do with each other.
        """
        n_rows, kind = self.entries.shape[0], weighted.dtype
        is_rough = kind == np.float32
        across, along = self._single_weight_matrices if is_rough else self._weight_matrices
        right_side = self.entries.marginals(weighted)
        row_totals, column_totals = np.split(self._totals.astype(kind), [n_rows])

        def columns_for(row_biases: Array) -> Array:
            result: Array = (right_side[n_rows:] - along @ row_biases) / column_totals
            return result

        biases = np.zeros(n_rows, dtype=kind)
        if np.isinf(self.row_penalty):
            return np.concatenate([biases, columns_for(biases)])
        biases += guess[:n_rows] if isinstance(guess, np.ndarray) else guess
        sizes = row_totals if is_rough else self._penalties[:n_rows]
        enough = (_ROUGH_PRECISION if is_rough else _PRECISION) * square
        residual = right_side[:n_rows] - row_totals * biases - across @ columns_for(biases)
        direction = residual / row_totals
        error = inner(residual, direction)
        for _ in range(_MAX_STEPS):
            if inner(residual, residual / sizes) <= enough:
                break
            image = row_totals * direction - across @ ((along @ direction) / column_totals)
            curvature = inner(direction, image)
            if not (curvature > 0.0 and error > 0.0):  # only rounding errors remain
                break
            length = error / curvature
            biases, residual = biases + length * direction, residual - length * image
            step = residual / row_totals
            error, previous = inner(residual, step), error
            direction = step + (error / previous) * direction
        return np.concatenate([biases, columns_for(biases)])

    @cached_property
    def _weight_matrices(self) -> tuple[Direction, Direction]:
        """The weights as a matrix, and its transpose."""
        return self.entries.adjoint(self.weights), self.entries.transposed_adjoint(self.weights)

    @cached_property
    def _single_precision(self) -> tuple[Array, Array]:
        """The targets and the weights."""
        return self.targets.astype(np.float32), self.weights.astype(np.float32)

    @cached_property
    def _single_weight_matrices(self) -> tuple[Direction, Direction]:
        weights = self._single_precision[1]
        return self.entries.adjoint(weights), self._weight_matrices[1].astype(np.float32)

    @cached_property
    def _marginals(self) -> Array:
        """The weight of each row and of each column."""
        return self.entries.marginals(self.weights)

    @cached_property
    def _marginals_error(self) -> float:
        """What rounding in the marginals of residuals adds to `unbalanced`, relative to half their squares.

        A sum of n residuals is off by at most n half units in the last place of the sum of their sizes, and
        that is at most the root of the weight of the row, or column, times their squares over the weights.
        """
        roundings = UNIT_ROUNDOFF * (self.entries.marginals(np.ones(len(self.weights))) + 4.0)
        errors = roundings * roundings * (self._marginals / self._penalties)
        rows, columns = np.split(errors, self.entries.shape[:1])
        return float(rows.max() + columns.max())

    @cached_property
    def _penalties(self) -> Array:
        given = np.repeat([self.row_penalty, self.column_penalty], self.entries.shape)
        return np.asarray(np.maximum(given, _LEAST_PENALTY * self._marginals))

    @cached_property
    def _totals(self) -> Array:
        """The weight of each row and of each column, and its penalty: the equations' diagonal."""
        return self._marginals + self._penalties

    @cached_property
    def _target_size(self) -> float:
        return float(np.sqrt(inner(self.weights, self.targets * self.targets)))


@final
@dataclass(frozen=True)
class BiasedHessian(Hessian):
    """Curvature of the squared error, with the best biases following the predictions."""

    loss: BiasedSquaredLoss

    @property
    def diagonal(self) -> Array:
        """The weights."""
        return self.loss.weights

    def apply(self, change: Array) -> Array:
        """Return how the residual changes."""
        loss = self.loss
        biases = -loss._best_biases(*_weighted(lambda part: change[part], loss.weights), 0.0)

        def moved(part: slice) -> Array:
            result = loss.entries.spread(biases, part)
            result += change[part]
            return np.asarray(result)

        return _weighted(moved, loss.weights)[0]


def _weighted(values: Callable[[slice], Array], weights: Array) -> tuple[Array, float]:
    """Return values times their weights, and the weighted sum of their squares.

    A block of values is computed where it is needed: with millions of entries, new memory takes longer than
    the arithmetic.
    """

    def block(part: slice) -> tuple[Array, float]:
        found = values(part)
        product = weights[part] * found
        return product, inner(product, found)

    products, squares = zip(*map_blocks(block, row_blocks(len(weights), _BLOCK)), strict=True)
    return np.concatenate(products), fsum(squares)

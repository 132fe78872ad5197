"""The squared error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from .._protocols import Array, Evaluation
from .._sums import SUM_ROUNDING, inner
from ._separable import SeparableLoss


@final
@dataclass(frozen=True)
class SquaredLoss(SeparableLoss):
    """Half the weighted mean squared error.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,)
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    fit_intercept : bool

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import SquaredLoss
    >>> loss = SquaredLoss(np.array([1.0, 3.0]), np.array([0.5, 0.5]), fit_intercept=True)
    >>> point = loss.evaluate(np.zeros(2))
    >>> point.value, point.intercept
    (0.5, 2.0)
    """

    curvature: ClassVar[float] = 1.0
    is_quadratic: ClassVar[bool] = True
    infimum: ClassVar[float] = 0.0
    largest_prediction: ClassVar[float] = 1e153

    @cached_property
    def intercept_origin(self) -> float:
        """The mean target: conjugates of the targets themselves would lose digits where it is large."""
        return inner(self.weights, self.targets) if self.fit_intercept else 0.0

    @cached_property
    def null_intercept(self) -> float:
        """The mean of the centred targets, which is rounding."""
        return inner(self.weights, self._centred_targets)

    @cached_property
    def _centred_targets(self) -> Array:
        return self.targets - self.intercept_origin

    @cached_property
    def _target_size(self) -> float:
        return float(np.sqrt(inner(self.weights, self._centred_targets**2)))

    def sample_value(self, predictions: Array) -> Array:
        """Return half the squared error."""
        result: Array = 0.5 * self.sample_slope(predictions) ** 2
        return result

    def sample_slope(self, predictions: Array) -> Array:
        """Return the error."""
        return predictions - self._centred_targets

    def sample_curvature(self, slope: Array) -> Array:
        """Return one."""
        return np.ones_like(slope)

    def sample_conjugate(self, slope: Array) -> Array:
        """Return half the squared slope, plus slope times target."""
        result: Array = slope * (0.5 * slope + self._centred_targets)
        return result

    def _evaluate_at(self, predictions: Array) -> Evaluation:
        """Evaluate the loss with one error for each sample."""
        error = self.sample_slope(predictions)
        residual = self.weights * error
        value = 0.5 * inner(residual, error)
        offset = -value - inner(residual, self._centred_targets)
        # The weights sum to one, so the mean size of the errors is at most their root mean square.
        size = (1.0 + SUM_ROUNDING) * float(np.sqrt(2.0 * value))
        return Evaluation(value, residual, offset, size, value + size * self._target_size)

    def _best_intercept(self, predictions: Array, guess: float) -> float:
        """Return minus the mean error."""
        return -inner(self.weights, self.sample_slope(predictions))

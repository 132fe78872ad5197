"""The Huber loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from .._protocols import Array
from ._separable import SeparableLoss

# A slope this close to the largest one, relative to it, is the largest one, rounded.
_ROUNDING = 1e-12


@final
@dataclass(frozen=True)
class HuberLoss(SeparableLoss):
    """Half the squared error up to an error of `epsilon`, and linear beyond: outliers pull no harder.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,)
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    fit_intercept : bool
    epsilon : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import HuberLoss
    >>> loss = HuberLoss(np.array([0.0, 0.0, 100.0]), np.full(3, 1 / 3), fit_intercept=True, epsilon=1.0)
    >>> round(loss.evaluate(np.zeros(3)).intercept, 6)
    0.5
    """

    epsilon: float = 1.35
    curvature: ClassVar[float] = 1.0
    infimum: ClassVar[float] = 0.0
    largest_prediction: ClassVar[float] = 1e153

    @cached_property
    def intercept_origin(self) -> float:
        """The median target: outliers may have a mean that is far from all others."""
        return float(np.median(self.targets)) if self.fit_intercept else 0.0

    @cached_property
    def _centred_targets(self) -> Array:
        return self.targets - self.intercept_origin

    def sample_value(self, predictions: Array) -> Array:
        """Return the integral of the clipped error."""
        size = np.abs(predictions - self._centred_targets)
        inner_size = np.minimum(size, self.epsilon)
        result: Array = inner_size * (size - 0.5 * inner_size)
        return result

    def sample_slope(self, predictions: Array) -> Array:
        """Return the error, clipped."""
        return np.clip(predictions - self._centred_targets, -self.epsilon, self.epsilon)

    def sample_curvature(self, slope: Array) -> Array:
        """Return one where the error is not clipped."""
        return (np.abs(slope) < (1.0 - _ROUNDING) * self.epsilon).astype(np.float64)

    def sample_conjugate(self, slope: Array) -> Array:
        """Return half the squared slope, plus slope times target."""
        result: Array = slope * (0.5 * slope + self._centred_targets)
        return result

"""The logistic loss of two classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

from .._protocols import Array, Evaluation
from .._sums import inner
from ._separable import SeparableLoss


@final
@dataclass(frozen=True)
class LogisticLoss(SeparableLoss):
    """Weighted mean of ``log(1 + exp(-s_i z_i))``.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,)
        The labels, -1.0 or 1.0. With an intercept both must occur.
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    fit_intercept : bool

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import LogisticLoss
    >>> point = LogisticLoss(np.array([1.0, -1.0]), np.array([0.5, 0.5])).evaluate(np.zeros(2))
    >>> round(point.value, 6), point.residual
    (0.693147, array([-0.25,  0.25]))
    """

    curvature: ClassVar[float] = 0.25
    infimum: ClassVar[float] = 0.0

    @cached_property
    def null_intercept(self) -> float:
        """The logarithm of the odds."""
        positive = float(self.weights[self.targets > 0].sum())
        negative = float(self.weights[self.targets < 0].sum())
        return float(np.log(positive) - np.log(negative))

    def sample_value(self, predictions: Array) -> Array:
        """Return the logarithm of the label's inverse probability."""
        return np.logaddexp(0.0, -self.targets * predictions)

    def sample_slope(self, predictions: Array) -> Array:
        """Return minus the other label's probability, times the label."""
        margins = self.targets * predictions
        decay = np.exp(-np.abs(margins))
        return self._slope(margins, decay / (1.0 + decay))

    def sample_curvature(self, slope: Array) -> Array:
        """Return the product of both labels' probabilities."""
        size = np.abs(slope)
        return size * (1.0 - size)

    def sample_conjugate(self, slope: Array) -> Array:
        """Return minus the entropy of the labels' probabilities."""
        size = np.abs(slope)
        return np.asarray(xlogy(size, size) + xlog1py(1.0 - size, -size))

    def _evaluate_at(self, predictions: Array) -> Evaluation:
        """Evaluate the loss with one exponential and one logarithm for each sample."""
        margins = self.targets * predictions
        size = np.abs(margins)
        decay = np.negative(size)
        np.exp(decay, out=decay)
        log_term = np.log1p(decay)
        tail = decay / (1.0 + decay)
        value = inner(self.weights, log_term + np.maximum(-margins, 0.0))
        # value - <residual, z> is the weighted mean entropy of the predicted probabilities. Summed in this
        # form all terms are positive, so nothing cancels however large the predictions are.
        size *= tail
        size += log_term
        offset = inner(self.weights, size)
        residual = self._slope(margins, tail)
        residual *= self.weights
        # 1 - exp(-l), which is the size of a sample's residual, is at most its loss l, and at most one.
        return Evaluation(value, residual, offset, min(value, 1.0), offset)

    def _slope(self, margins: Array, tail: Array) -> Array:
        error = (margins < 0.0) - tail
        np.abs(error, out=error)  # 1 - tail where the margin is negative, else tail
        error *= self.targets
        return np.negative(error, out=error)

    def subset(self, rows: npt.NDArray[np.intp]) -> LogisticLoss | None:
        """Return the loss of some of the samples, if both labels are among them."""
        targets = self.targets[rows]
        return super().subset(rows) if -targets.min() == targets.max() == 1.0 else None

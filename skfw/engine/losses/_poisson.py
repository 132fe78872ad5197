"""The Poisson loss with a logarithmic link."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, xlogy

from .._protocols import Array
from .._sums import inner
from ._separable import SeparableLoss

# Exponentials of this, and their sums and products with weights, are finite.
_LARGEST_EXPONENT = 600.0


@final
@dataclass(frozen=True)
class PoissonLoss(SeparableLoss):
    r"""Half the weighted mean deviance of counts whose expectation is the exponential of the prediction.

    .. math:: \sum_i w_i \bigl(e^{z_i} - y_i z_i + y_i \log y_i - y_i\bigr)

    Its gradient has no Lipschitz constant.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,)
        Not negative. With an intercept one must be positive.
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    fit_intercept : bool

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import PoissonLoss
    >>> loss = PoissonLoss(np.array([0.0, 4.0]), np.array([0.5, 0.5]), fit_intercept=True)
    >>> round(float(np.exp(loss.evaluate(np.zeros(2)).intercept)), 6)
    2.0
    """

    curvature: ClassVar[float] = np.inf
    infimum: ClassVar[float] = 0.0

    @property
    def largest_prediction(self) -> float:  # type: ignore[override]
        """With an intercept any: expectations have the mean of the targets then."""
        return 1e300 if self.fit_intercept else _LARGEST_EXPONENT

    @cached_property
    def null_intercept(self) -> float:
        """The logarithm of the mean."""
        mean = inner(self.weights, self.targets)
        if not mean > 0.0:
            raise ValueError("There is no best intercept: all targets are zero.")
        return float(np.log(mean))

    @cached_property
    def _is_positive(self) -> npt.NDArray[np.bool_]:
        return self.targets > 0.0

    @cached_property
    def _log_targets(self) -> Array:
        """Their logarithms; of those that are zero, zero."""
        return np.log(np.where(self._is_positive, self.targets, 1.0))

    # Around a positive target, all is a function of how far the logarithm is off: nothing cancels there.

    def sample_value(self, predictions: Array) -> Array:
        """Return half the deviance."""
        error = predictions - self._log_targets
        deviance = self.targets * (np.expm1(error) - error)
        return np.where(self._is_positive, deviance, np.exp(predictions))

    def sample_slope(self, predictions: Array) -> Array:
        """Return the expectation less the target."""
        excess = self.targets * np.expm1(predictions - self._log_targets)
        return np.where(self._is_positive, excess, np.exp(predictions))

    def sample_curvature(self, slope: Array) -> Array:
        """Return the expectation."""
        return slope + self.targets

    def sample_conjugate(self, slope: Array) -> Array:
        """Return the same of expectations and their logarithms."""
        # Rounding may take a slope below minus the target, where there is no expectation.
        ratio = np.maximum(slope, -self.targets) / np.where(self._is_positive, self.targets, 1.0)
        mean = 1.0 + ratio
        excess = self.targets * (xlogy(mean, mean) - ratio) + slope * self._log_targets
        size = np.maximum(slope, 0.0)
        return np.where(self._is_positive, excess, xlogy(size, size) - size)

    def _best_intercept(self, predictions: Array, guess: float) -> float:
        """Return the logarithm of the mean target over the mean expectation."""
        return self.null_intercept - float(logsumexp(predictions, b=self.weights))

    def subset(self, rows: npt.NDArray[np.intp]) -> PoissonLoss | None:
        """Return the loss of some of the samples, if there is a best intercept for them."""
        return super().subset(rows) if self._is_positive[rows].any() else None

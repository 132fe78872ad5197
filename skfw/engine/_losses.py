"""Losses in prediction space, each a weighted mean with the intercept profiled out.

With an intercept the loss is ``min_b sum_i w_i l_i(z_i + b)``. At the best ``b`` the derivative in ``b``
vanishes, so by the envelope theorem the residual is the plain one, and it sums to zero. That sum is what
the certificate rests on: a plane with any slope in ``b`` bounds nothing, because ``b`` is not constrained.
Newton's method leaves a sum of the order of rounding; the logistic losses remove even that, see `_balance`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from ._linear_maps import DesignMatrix
from ._protocols import Array, Evaluation, Hessian, Loss
from ._sums import inner

_NEWTON_STEPS = 100
# A sum of residuals that is this fraction of the sum of their sizes is rounding.
_ROUNDING = 4.0 * np.finfo(np.float64).eps


@final
@dataclass(frozen=True)
class DiagonalHessian(Hessian):
    """Each prediction curves on its own; with an intercept only its deviation from a weighted mean counts."""

    diagonal: Array
    fit_intercept: bool = False

    def apply(self, change: Array) -> Array:
        """Return ``D change``, with the weighted mean of the change taken out."""
        result = self.diagonal * change
        if self.fit_intercept and (total := float(self.diagonal.sum())) > 0.0:
            result -= (float(result.sum()) / total) * self.diagonal
        return result

    def gram(self, linear_map: DesignMatrix) -> Array:
        """Return the second derivative in the models of a design matrix."""
        result = linear_map.gram(self.diagonal)
        if self.fit_intercept and (total := float(self.diagonal.sum())) > 0.0:
            means = linear_map.adjoint(self.diagonal)
            result -= np.outer(means, means / total)
        return result


@final
@dataclass(frozen=True)
class SquaredLoss(Loss):
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

    targets: Array
    weights: Array
    fit_intercept: bool = False
    curvature: ClassVar[float] = 1.0
    infimum: ClassVar[float] = 0.0

    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`."""
        error = predictions - self.targets
        best = 0.0
        if self.fit_intercept:
            best = -inner(self.weights, error)
            error += best
        residual = self.weights * error
        value = 0.5 * inner(residual, error)
        # The weights sum to one, so the mean size of the errors is at most their root mean square.
        size = float(np.sqrt(2.0 * value))
        return Evaluation(value, residual, -value - inner(residual, self.targets), size, best)

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative, which is the same everywhere."""
        return self.curvature_bound(change)

    def curvature_bound(self, change: Array) -> float:
        """Return the weighted mean square of `change`, around its mean if there is an intercept."""
        if self.fit_intercept:
            change = change - inner(self.weights, change)
        return inner(self.weights, change * change)

    def hessian(self, evaluation: Evaluation) -> DiagonalHessian:
        """Return the weights, which are the curvature everywhere."""
        return DiagonalHessian(self.weights, self.fit_intercept)

    def subset(self, rows: npt.NDArray[np.intp]) -> SquaredLoss:
        """Return the loss of some of the samples."""
        return replace(self, targets=self.targets[rows], weights=_normalised(self.weights[rows]))


@final
@dataclass(frozen=True)
class LogisticLoss(Loss):
    """Weighted mean of ``log(1 + exp(-s_i z_i))``.

    Parameters
    ----------
    signs : ndarray of shape (n_samples,)
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

    signs: Array
    weights: Array
    fit_intercept: bool = False
    curvature: ClassVar[float] = 0.25
    infimum: ClassVar[float] = 0.0

    @cached_property
    def _class_weights(self) -> tuple[float, float]:
        positive = float(self.weights[self.signs > 0].sum())
        negative = float(self.weights[self.signs < 0].sum())
        return negative, positive

    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`."""
        best = self._best_intercept(predictions, float(intercept)) if self.fit_intercept else 0.0
        margins = self.signs * (predictions + best) if best else self.signs * predictions
        size = np.abs(margins)
        decay = np.exp(-size)
        log_term = np.log1p(decay)
        tail = decay / (1.0 + decay)
        value = inner(self.weights, log_term + np.maximum(-margins, 0.0))
        # value - <residual, z> is the weighted mean entropy of the predicted probabilities. Summed in this
        # form all terms are positive, so nothing cancels however large the predictions are.
        offset = inner(self.weights, log_term + size * tail)
        residual = self._residual(margins, tail)
        if self.fit_intercept:
            residual, offset = self._balance(residual, offset)
        # 1 - exp(-l), which is the size of a sample's residual, is at most its loss l, and at most one.
        return Evaluation(value, residual, offset, min(value, 1.0), best)

    def _residual(self, margins: Array, tail: Array) -> Array:
        error = (margins < 0.0) - tail
        np.abs(error, out=error)  # 1 - tail where the margin is negative, else tail
        error *= self.weights
        error *= self.signs
        return np.negative(error, out=error)

    def _hessian(self, residual: Array) -> Array:
        # |r|/w is p or 1-p, whatever the label.
        size = np.abs(residual)
        return size * (1.0 - size / self.weights)

    def _best_intercept(self, predictions: Array, guess: float) -> float:
        """Newton's method on the sum of residuals, which increases with b, inside a bracket."""
        negative, positive = self._class_weights
        log_odds = float(np.log(positive) - np.log(negative))
        low, high = log_odds - float(predictions.max()), log_odds - float(predictions.min())
        intercept = min(max(guess, low), high)
        for _ in range(_NEWTON_STEPS):
            margins = self.signs * (predictions + intercept)
            decay = np.exp(-np.abs(margins))
            residual = self._residual(margins, decay / (1.0 + decay))
            slope = float(residual.sum())
            if abs(slope) <= _ROUNDING * float(np.abs(residual).sum()):
                break
            if slope < 0.0:
                low = intercept
            else:
                high = intercept
            curvature = float(self._hessian(residual).sum())
            newton = intercept - slope / curvature if curvature > 0.0 else low
            intercept, previous = newton if low < newton < high else (low + high) / 2.0, intercept
            if intercept == previous:
                break
        return intercept

    def _balance(self, residual: Array, offset: float) -> tuple[Array, float]:
        """Make the residual sum to zero by moving all probabilities towards one of the labels.

        A plane with residual ``w (p - y)`` and offset ``sum w entropy(p)`` is below the loss for *every*
        p in [0, 1]. Moving p a fraction t towards 0 or 1 keeps at least ``1 - t`` of its entropy, which is
        concave and zero at both ends.
        """
        slope = float(residual.sum())
        side = 1.0 if slope > 0.0 else -1.0
        probability = np.where(self.signs == side, self.weights - np.abs(residual), np.abs(residual))
        total = float(probability.sum())
        fraction = abs(slope) / total if total > 0.0 else 0.0
        return residual - side * fraction * probability, (1.0 - fraction) * offset

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative of the profiled loss along `change`."""
        hessian = self._hessian(evaluation.residual)
        result = inner(hessian, change * change)
        total = float(hessian.sum()) if self.fit_intercept else 0.0
        return result - inner(hessian, change) ** 2 / total if total > 0.0 else result

    def curvature_bound(self, change: Array) -> float:
        """Return a quarter of the weighted mean square, around the mean if there is an intercept."""
        if self.fit_intercept:
            change = change - inner(self.weights, change)
        return self.curvature * inner(self.weights, change * change)

    def hessian(self, evaluation: Evaluation) -> DiagonalHessian:
        """Return the curvature of each sample at the evaluated point."""
        return DiagonalHessian(self._hessian(evaluation.residual), self.fit_intercept)

    def subset(self, rows: npt.NDArray[np.intp]) -> LogisticLoss | None:
        """Return the loss of some of the samples, if both labels are among them."""
        signs = self.signs[rows]
        if not -signs.min() == signs.max() == 1.0:
            return None
        return replace(self, signs=signs, weights=_normalised(self.weights[rows]))


@final
@dataclass(frozen=True)
class MultinomialLoss(Loss):
    """Weighted mean cross-entropy of the softmax of the predictions.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,), integers
        The class of each sample. With an intercept each class must occur.
    n_classes : int
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    fit_intercept : bool

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import MultinomialLoss
    >>> loss = MultinomialLoss(np.array([0, 1, 2]), 3, np.full(3, 1 / 3))
    >>> round(loss.evaluate(np.zeros((3, 3))).value, 6)
    1.098612
    """

    labels: np.ndarray[tuple[int], np.dtype[np.intp]]
    n_classes: int
    weights: Array
    fit_intercept: bool = False
    curvature: ClassVar[float] = 0.5
    infimum: ClassVar[float] = 0.0

    @cached_property
    def _class_weights(self) -> Array:
        return np.bincount(self.labels, self.weights, minlength=self.n_classes).astype(np.float64)

    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`."""
        if not self.fit_intercept:
            return self._evaluate_at(predictions, np.zeros(self.n_classes))
        best: Array = np.broadcast_to(np.asarray(intercept, dtype=np.float64), (self.n_classes,))
        evaluation = self._evaluate_at(predictions, best)
        slope = evaluation.residual.sum(axis=0)
        for _ in range(_NEWTON_STEPS):
            if np.abs(slope).sum() <= _ROUNDING * np.abs(evaluation.residual).sum():
                break
            probability = self._weighted_probability(evaluation.residual)
            trial = self._evaluate_at(predictions, best - self._newton_decrement(probability, slope))
            if trial.value > (1.0 + _ROUNDING) * evaluation.value:
                # Iterative scaling never increases the loss, however far Newton's model is off.
                trial = self._evaluate_at(predictions, best + self._scaling_step(slope))
            trial_slope = trial.residual.sum(axis=0)
            # Near the minimum the value no longer shows progress; the slope does, until it is rounding.
            if trial.value >= evaluation.value and np.abs(trial_slope).sum() >= 0.5 * np.abs(slope).sum():
                break
            evaluation, slope, best = trial, trial_slope, np.asarray(trial.intercept, dtype=np.float64)
        return self._balance(evaluation)

    def _evaluate_at(self, predictions: Array, intercept: Array) -> Evaluation:
        # A well separated sample has a tiny loss and a tiny residual. To keep their digits, the largest
        # exponential, which is one, is added last, and the label's residual is what the others leave.
        rows = np.arange(len(self.labels))
        shifted = predictions + intercept
        largest = shifted.argmax(axis=1)
        shifted -= shifted[rows, largest][:, np.newaxis]
        probability = np.exp(shifted)
        probability[rows, largest] = 0.0
        others = probability.sum(axis=1)
        probability[rows, largest] = 1.0
        probability /= (1.0 + others)[:, np.newaxis]
        log_total = np.log1p(others)
        value = inner(self.weights, log_total - shifted[rows, self.labels])
        # As in the binary case, the offset is the mean entropy, a sum of positive terms.
        offset = inner(self.weights, log_total - (probability * shifted).sum(axis=1))
        residual = probability
        residual[rows, self.labels] = 0.0
        residual[rows, self.labels] = -residual.sum(axis=1)
        residual *= self.weights[:, np.newaxis]
        # The sizes of a sample's residuals sum to twice that of the label; see the binary case.
        return Evaluation(value, residual, offset, 2.0 * min(value, 1.0), intercept)

    def _weighted_probability(self, residual: Array) -> Array:
        probability = residual.copy()
        probability[np.arange(len(self.labels)), self.labels] += self.weights
        return probability

    def _newton_decrement(self, probability: Array, slope: Array) -> Array:
        """Solve with the Hessian in the intercepts, given weighted probabilities."""
        hessian = np.diag(probability.sum(axis=0)) - probability.T @ (
            probability / self.weights[:, np.newaxis]
        )
        # The same number added to all intercepts changes nothing: pin that direction down to stay regular.
        hessian += 1.0 / self.n_classes
        return np.linalg.lstsq(hessian, slope, rcond=None)[0].astype(np.float64)

    def _scaling_step(self, slope: Array) -> Array:
        tiny = np.finfo(np.float64).tiny
        step: Array = np.log(self._class_weights) - np.log(np.maximum(self._class_weights + slope, tiny))
        return step

    def _balance(self, evaluation: Evaluation) -> Evaluation:
        """Make the residual sum to zero in each class; the argument is that of `LogisticLoss._balance`."""
        slope = evaluation.residual.sum(axis=0)
        totals = self._class_weights + slope
        fraction = max(0.0, float(np.max(slope[totals > 0.0] / totals[totals > 0.0])))
        if fraction == 0.0:
            return evaluation
        towards = fraction * totals - slope
        probability = self._weighted_probability(evaluation.residual)
        residual = evaluation.residual - fraction * probability + self.weights[:, np.newaxis] * towards
        return replace(evaluation, residual=residual, offset=(1.0 - fraction) * evaluation.offset)

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative of the profiled loss along `change`."""
        probability = self._weighted_probability(evaluation.residual)
        mean = (probability * change).sum(axis=1) / self.weights
        centred = change - mean[:, np.newaxis]
        product = probability * centred
        result = inner(product, centred)
        if self.fit_intercept:
            slope = product.sum(axis=0)
            result -= float(slope @ self._newton_decrement(probability, slope))
        return result

    def curvature_bound(self, change: Array) -> float:
        """Return half the weighted mean square, around the class means if there is an intercept."""
        if self.fit_intercept:
            change = change - self.weights @ change
        return self.curvature * inner(self.weights, (change * change).sum(axis=1))

    def hessian(self, evaluation: Evaluation) -> SoftmaxHessian:
        """Return the curvature of the profiled loss at the evaluated point."""
        return SoftmaxHessian(self, self._weighted_probability(evaluation.residual))

    def subset(self, rows: npt.NDArray[np.intp]) -> MultinomialLoss | None:
        """Return the loss of some of the samples, if all classes are among them."""
        labels = self.labels[rows]
        if len(np.unique(labels)) < self.n_classes:
            return None
        return replace(self, labels=labels, weights=_normalised(self.weights[rows]))


@final
@dataclass(frozen=True)
class SoftmaxHessian(Hessian):
    """Curvature of the cross-entropy: in each sample, the covariance of its probabilities."""

    loss: MultinomialLoss
    probability: Array  # times the sample's weight

    @cached_property
    def diagonal(self) -> Array:  # type: ignore[override]
        """Variances of the probabilities."""
        return self.probability * (1.0 - self.probability / self.loss.weights[:, np.newaxis])

    def apply(self, change: Array) -> Array:
        """Return the covariance times the change, with the best intercepts following it."""
        result = self._covariance(change)
        if self.loss.fit_intercept:
            following = self.loss._newton_decrement(self.probability, result.sum(axis=0))
            result -= self._covariance(np.broadcast_to(following, change.shape))
        return result

    def _covariance(self, change: Array) -> Array:
        mean = (self.probability * change).sum(axis=1) / self.loss.weights
        result: Array = self.probability * (change - mean[:, np.newaxis])
        return result


def _normalised(weights: Array) -> Array:
    result: Array = weights / weights.sum()
    return result

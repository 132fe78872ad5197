"""The cross-entropy of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from .._protocols import Array, Design, Evaluation, Hessian, Loss
from .._sums import NEGLIGIBLE_SUM, column_sums, inner
from ._hessians import DiagonalHessian
from ._separable import normalised

# Newton's method in the intercepts ends where so many steps neither lowered the loss by this fraction nor
# halved its slope: predictions are far apart then, and the plane is lower than it could be.
_PROGRESS, _PATIENCE = 1e-3, 5
_NEWTON_STEPS, _SEARCH_STEPS, _GROWTH = 30, 8, 16.0
# How different the mean predictions of two classes may be before it is tried to centre them.
_FAR = 10.0
# Of the largest slope: what is added to the Hessian in the intercepts.
_DAMPING = 0.01


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
        evaluation = self._near(predictions, intercept)
        idle = 0
        for _ in range(_NEWTON_STEPS):
            slope = column_sums(evaluation.residual)
            if np.abs(slope).sum() <= NEGLIGIBLE_SUM * np.abs(evaluation.residual).sum():
                break
            probability = self._weighted_probability(evaluation.residual)
            hessian = self._intercept_hessian(probability)
            # Where predictions are far apart the Hessian sees few samples, and the slope keeps steps short.
            hessian[np.diag_indices(self.n_classes)] += _DAMPING * float(np.abs(slope).max())
            direction = -np.linalg.lstsq(hessian, slope, rcond=None)[0].astype(np.float64)
            found = self._search(predictions, evaluation, direction)
            if found is None:
                break
            gain, last = evaluation.value - found.value, evaluation.value
            # Near the minimum the value no longer shows progress; the slope does, until it is rounding.
            halved = 2.0 * np.abs(column_sums(found.residual)).sum() < np.abs(slope).sum()
            idle = 0 if halved or gain > _PROGRESS * last else idle + 1
            evaluation = found
            if idle > _PATIENCE or (idle and gain <= NEGLIGIBLE_SUM * last):
                break
        return self._balance(evaluation)

    def _near(self, predictions: Array, intercept: float | Array) -> Evaluation:
        """Evaluate the loss at the intercepts of a point close by, or at those that centre the predictions.

        Features with a large mean shift the predictions of a class together, and its intercept with them.
        """
        guess = np.broadcast_to(np.asarray(intercept, dtype=np.float64), (self.n_classes,))
        evaluation = self._evaluate_at(predictions, guess)
        means = self.weights @ predictions + guess
        if np.ptp(means) > _FAR:
            centred = self._evaluate_at(predictions, guess - means)
            if centred.value < evaluation.value:
                return centred
        return evaluation

    def _search(self, predictions: Array, start: Evaluation, direction: Array) -> Evaluation | None:
        """Search along a direction of the intercepts, from the whole of it, until the slope has halved."""
        first = float(column_sums(start.residual) @ direction)
        low, high, step = 0.0, np.inf, 1.0
        best = None
        for _ in range(_SEARCH_STEPS):
            trial = self._evaluate_at(predictions, start.intercept + step * direction)
            slope = float(column_sums(trial.residual) @ direction)
            if trial.value <= (1.0 + NEGLIGIBLE_SUM) * start.value:
                if best is None or trial.value <= best.value:
                    best = trial
                if abs(slope) <= 0.5 * abs(first):
                    break
            low, high = (step, high) if slope < 0.0 else (low, step)
            step = _GROWTH * step if high == np.inf else (low + high) / 2.0
        return best

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
        return Evaluation(value, residual, offset, 2.0 * min(value, 1.0), offset, intercept)

    def _weighted_probability(self, residual: Array) -> Array:
        probability = residual.copy()
        probability[np.arange(len(self.labels)), self.labels] += self.weights
        return probability

    def _intercept_hessian(self, probability: Array) -> Array:
        """Return the Hessian in the intercepts, given weighted probabilities."""
        hessian: Array = np.diag(probability.sum(axis=0)) - probability.T @ (
            probability / self.weights[:, np.newaxis]
        )
        # The same number added to all intercepts changes nothing: pin that direction down to stay regular.
        hessian += 1.0 / self.n_classes
        return hessian

    def intercept_step(self, probability: Array, slope: Array) -> Array:
        """Return the Newton step in the intercepts, with a minus sign, given weighted probabilities."""
        return np.linalg.lstsq(self._intercept_hessian(probability), slope, rcond=None)[0].astype(np.float64)

    def _balance(self, evaluation: Evaluation) -> Evaluation:
        """Make the residual sum to zero in each class; moving towards the labels keeps the entropy."""
        slope = column_sums(evaluation.residual)
        totals = self._class_weights + slope
        fraction = max(0.0, float(np.max(slope[totals > 0.0] / totals[totals > 0.0])))
        if fraction == 0.0:
            return evaluation
        towards = fraction * totals - slope
        probability = self._weighted_probability(evaluation.residual)
        residual = evaluation.residual - fraction * probability + self.weights[:, np.newaxis] * towards
        offset = (1.0 - fraction) * evaluation.offset
        size = evaluation.size + 2.0 * fraction
        return replace(evaluation, residual=residual, offset=offset, size=size)

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative of the profiled loss along `change`."""
        return self.hessian(evaluation).along(change)

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
        return replace(self, labels=labels, weights=normalised(self.weights[rows]))

    def some(self, rows: npt.NDArray[np.intp]) -> MultinomialLoss:
        """Return the loss of some of the samples, with the weights that they have."""
        return replace(self, labels=self.labels[rows], weights=self.weights[rows])

    def joined(self, others: Sequence[MultinomialLoss], fit_intercept: bool) -> MultinomialLoss:
        """Return the loss of these and other samples, with the weights that they have."""
        labels = np.concatenate([self.labels, *(each.labels for each in others)])
        weights = np.concatenate([self.weights, *(each.weights for each in others)])
        return replace(self, labels=labels, weights=weights, fit_intercept=fit_intercept)


@final
@dataclass(frozen=True)
class SoftmaxHessian(Hessian):
    """Curvature of the cross-entropy: in each sample, the covariance of its probabilities."""

    loss: MultinomialLoss
    probability: Array  # times the sample's weight

    @cached_property
    def diagonal(self) -> Array:
        """Variances of the probabilities."""
        # A balanced residual may give probabilities below zero, or above one, by rounding.
        return np.maximum(self.probability * (1.0 - self.probability / self.loss.weights[:, np.newaxis]), 0.0)

    def apply(self, change: Array) -> Array:
        """Return the covariance times the change, with the best intercepts following it."""
        result: Array = self.probability * self._centred(change)
        return result

    def along(self, change: Array) -> float:
        """Return the second derivative along a change."""
        centred = self._centred(change)
        return inner(self.probability, centred * centred)

    def output_grams(self, design: Design, rows: npt.NDArray[np.intp] | None = None) -> list[Array]:
        """Return the second derivative of each class alone, over some of the samples, with a few digits."""
        variances = self.diagonal.T if rows is None else self.diagonal[rows].T
        return [
            DiagonalHessian(variance, self.loss.fit_intercept).rough_gram(design) for variance in variances
        ]

    def _centred(self, change: Array) -> Array:
        """Return the change less its mean in each sample, with the best intercepts following it."""
        centred = self._less_mean(change)
        if self.loss.fit_intercept:
            slope = column_sums(self.probability * centred)
            centred = self._less_mean(centred - self.loss.intercept_step(self.probability, slope))
        return centred

    def _less_mean(self, change: Array) -> Array:
        mean = (self.probability * change).sum(axis=1) / self.loss.weights
        result: Array = change - mean[:, np.newaxis]
        return result

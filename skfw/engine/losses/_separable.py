"""Losses that are a weighted mean of functions of one prediction each, with the intercept profiled out.

With an intercept the loss is ``min_b sum_i w_i l_i(z_i + b)``. At the best ``b`` the derivative in ``b``
vanishes, so by the envelope theorem the residual is that of the loss at this intercept, and it sums to zero.
That sum is what the certificate rests on: a plane with any slope in ``b`` bounds nothing, because ``b`` is
not constrained. Newton's method leaves a sum of the order of rounding; `_balanced` removes even that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from .._protocols import Array, Evaluation, Loss
from .._sums import NEGLIGIBLE_SUM, SUM_ROUNDING, inner
from ._hessians import DiagonalHessian

_NEWTON_STEPS = 100


@dataclass(frozen=True)
class SeparableLoss(Loss):
    """A weighted mean of losses of one prediction each: four functions make a loss.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,)
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    fit_intercept : bool
        Whether the loss adds the best intercept to the predictions.
    """

    targets: Array
    weights: Array
    fit_intercept: bool = False

    @abstractmethod
    def sample_value(self, predictions: Array) -> Array:
        """Return each sample's loss."""

    @abstractmethod
    def sample_slope(self, predictions: Array) -> Array:
        """Return the derivative of each sample's loss."""

    @abstractmethod
    def sample_curvature(self, slope: Array) -> Array:
        """Return the second derivative of each sample's loss, where its derivative is `slope`."""

    @abstractmethod
    def sample_conjugate(self, slope: Array) -> Array:
        """Return the largest value of ``slope * z - loss(z)`` over all ``z``, for each sample."""

    @property
    def intercept_origin(self) -> float:
        """What intercepts count from; predictions are given to the four functions with this taken away.

        A loss of the difference of prediction and target counts from the mean target, and loses no digits.
        """
        return 0.0

    @cached_property
    def null_intercept(self) -> float:
        """The best intercept of predictions that are zero, counted from `intercept_origin`."""
        low, high, zeros = -1.0, 1.0, np.zeros(len(self.weights))
        while self._slope_at(zeros + low) > 0.0:
            low *= 2.0
        while self._slope_at(zeros + high) < 0.0:
            high *= 2.0
        return self._root(zeros, 0.0, low, high)

    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`."""
        if not self.fit_intercept:
            return self._evaluate_at(predictions)
        best = self._best_intercept(predictions, float(intercept) - self.intercept_origin)
        evaluation = self._balanced(self._evaluate_at(predictions + best))
        return replace(evaluation, intercept=best + self.intercept_origin)

    def _evaluate_at(self, predictions: Array) -> Evaluation:
        """Evaluate the loss without an intercept; functions that have parts in common can share them here."""
        slope = self.sample_slope(predictions)
        residual, sizes = self.weights * slope, self.weights * np.abs(slope)
        values = self.sample_value(predictions)
        value = inner(self.weights, values)
        offset = -inner(self.weights, self.sample_conjugate(slope))
        # A conjugate is slope times prediction less value: it has no larger parts than these.
        parts = inner(self.weights, np.abs(values)) + inner(sizes, np.abs(predictions))
        return Evaluation(value, residual, offset, (1.0 + SUM_ROUNDING) * float(sizes.sum()), parts)

    def _best_intercept(self, predictions: Array, guess: float) -> float:
        """Return the intercept at which the residual sums to zero, about."""
        # If all predictions were the largest of them, or the smallest, the best intercept would be this.
        low = self.null_intercept - float(predictions.max())
        high = self.null_intercept - float(predictions.min())
        return self._root(predictions, guess, low, high)

    def _root(self, predictions: Array, guess: float, low: float, high: float) -> float:
        """Newton's method on the sum of residuals, which increases with the intercept, inside a bracket."""
        intercept = min(max(guess, low), high)
        for _ in range(_NEWTON_STEPS):
            slopes = self.sample_slope(predictions + intercept)
            residual = self.weights * slopes
            slope = float(residual.sum())
            if abs(slope) <= NEGLIGIBLE_SUM * float(np.abs(residual).sum()):
                break
            if slope < 0.0:
                low = intercept
            else:
                high = intercept
            curvature = inner(self.weights, self.sample_curvature(slopes))
            newton = intercept - slope / curvature if curvature > 0.0 else low
            previous = intercept
            intercept = newton if low < newton < high else self._middle(predictions, low, high)
            if intercept == previous:
                break
        return intercept

    def _middle(self, predictions: Array, low: float, high: float) -> float:
        """Return an intercept inside a bracket: the median of those that take a prediction to zero.

        Where predictions are huge, slopes are steps at these, and halving the bracket would take long.
        """
        steps = -predictions[(-high < predictions) & (predictions < -low)]
        return float(np.median(steps)) if len(steps) else (low + high) / 2.0

    def _slope_at(self, predictions: Array) -> float:
        return float((self.weights * self.sample_slope(predictions)).sum())

    def _balanced(self, evaluation: Evaluation) -> Evaluation:
        """Make the residual sum to zero, by an average with a plane whose residual sums to the other sign.

        An average of planes below the loss is below it, and the weight of the other one is of the order of
        rounding where the intercept is the best one.
        """
        total = float(evaluation.residual.sum())
        if total == 0.0:
            return evaluation
        other, other_total = self._planes_aside[total < 0.0]
        # Neither is one less the other, which would lose digits where it is small.
        weight, own = total / (total - other_total), other_total / (other_total - total)
        return Evaluation(
            evaluation.value,
            own * evaluation.residual + weight * other.residual,
            own * evaluation.offset + weight * other.offset,
            own * evaluation.size + weight * other.size,
            own * evaluation.offset_size + weight * other.offset_size,
            evaluation.intercept,
        )

    @cached_property
    def _planes_aside(self) -> tuple[tuple[Evaluation, float], tuple[Evaluation, float]]:
        """Planes whose residuals have a negative and a positive sum, with these sums.

        They touch the loss of predictions that are all the same, on the two sides of the best intercept.
        """
        best = np.full(len(self.weights), self.null_intercept)
        slopes = self.sample_slope(best)
        curvature = inner(self.weights, self.sample_curvature(slopes))
        distance = 2.0 * inner(self.weights, np.abs(slopes)) / curvature if curvature > 0.0 else 0.0
        distance = distance if 0.0 < distance < np.inf else 1.0
        return self._plane_aside(best, -distance), self._plane_aside(best, distance)

    def _plane_aside(self, best: Array, distance: float) -> tuple[Evaluation, float]:
        """Return a plane this far from the best intercept, or so far that most slopes have one sign."""
        while np.isfinite(distance):
            plane = self._evaluate_at(best + distance)
            total = float(plane.residual.sum())
            if (total > 0.0) == (distance > 0.0) and 2.0 * abs(total) > np.abs(plane.residual).sum():
                return plane, total
            distance *= 2.0
        raise ValueError("There is no best intercept: the loss falls forever in one direction.")

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative of the profiled loss along `change`."""
        return self.hessian(evaluation).along(change)

    def curvature_bound(self, change: Array) -> float:
        """Return the weighted mean square, around the mean if there is an intercept, times `curvature`."""
        if self.fit_intercept:
            change = change - inner(self.weights, change)
        return self.curvature * inner(self.weights, change * change)

    def hessian(self, evaluation: Evaluation) -> DiagonalHessian:
        """Return the curvature of each sample at the evaluated point."""
        return self.hessian_at(evaluation.residual / self.weights)

    def hessian_at(self, slope: Array, share: float = 1.0) -> DiagonalHessian:
        """Return the curvature of each sample where its derivative is `slope`, times a share."""
        # Rounding may take a balanced residual out of the range of slopes; the curvature is negative there.
        curvature = np.maximum(self.sample_curvature(slope), 0.0)
        return DiagonalHessian(share * self.weights * curvature, self.fit_intercept)

    def subset(self, rows: npt.NDArray[np.intp]) -> Self | None:
        """Return the loss of some of the samples."""
        found = self.some(rows)
        return replace(found, weights=normalised(found.weights))

    def some(self, rows: npt.NDArray[np.intp]) -> Self:
        """Return the loss of some of the samples, with the weights that they have."""
        return replace(self, targets=self.targets[rows], weights=self.weights[rows])

    def joined(self, others: Sequence[Self], fit_intercept: bool) -> Self:
        """Return the loss of these and other samples, with the weights that they have."""
        targets = np.concatenate([self.targets, *(each.targets for each in others)])
        weights = np.concatenate([self.weights, *(each.weights for each in others)])
        return replace(self, targets=targets, weights=weights, fit_intercept=fit_intercept)


def normalised(weights: Array) -> Array:
    """Return weights that sum to one."""
    result: Array = weights / weights.sum()
    return result

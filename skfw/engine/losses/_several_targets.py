"""The mean of the losses of several targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from .._protocols import Array, Design, Evaluation, Hessian, Loss
from .._sums import TINY, inner
from ._hessians import DiagonalHessian
from ._separable import SeparableLoss


@final
@dataclass(frozen=True)
class SeveralTargets(Loss):
    """The mean of one loss for each column of the predictions, each with an intercept of its own.

    Parameters
    ----------
    columns : tuple of SeparableLoss
        Of the same kind, with the same weights.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import SeveralTargets, SquaredLoss
    >>> targets, weights = np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([0.5, 0.5])
    >>> loss = SeveralTargets(tuple(SquaredLoss(column, weights, fit_intercept=True) for column in targets.T))
    >>> point = loss.evaluate(np.zeros((2, 2)))
    >>> point.value, point.intercept
    (0.25, array([2., 5.]))
    """

    columns: tuple[SeparableLoss, ...]

    @property
    def weights(self) -> Array:
        """Those of the samples."""
        return self.columns[0].weights

    @property
    def curvature(self) -> float:  # type: ignore[override]
        """That of a column, whose predictions have a share of the mean."""
        return self.columns[0].curvature / len(self.columns)

    @property
    def is_quadratic(self) -> bool:  # type: ignore[override]
        """Whether the columns' losses are."""
        return self.columns[0].is_quadratic

    @property
    def infimum(self) -> float:  # type: ignore[override]
        """That of a column."""
        return self.columns[0].infimum

    @property
    def largest_prediction(self) -> float:  # type: ignore[override]
        """That of a column."""
        return self.columns[0].largest_prediction

    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate the loss; see `Loss`."""
        guesses = np.broadcast_to(np.asarray(intercept, dtype=np.float64), len(self.columns))
        found = [
            loss.evaluate(column, float(guess))
            for loss, column, guess in zip(self.columns, predictions.T, guesses, strict=True)
        ]
        return Evaluation(
            float(np.mean([each.value for each in found])),
            np.stack([each.residual for each in found], axis=1) / len(found),
            float(np.mean([each.offset for each in found])),
            float(np.mean([each.size for each in found])),
            float(np.mean([each.offset_size for each in found])),
            np.array([each.intercept for each in found]),
        )

    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Return the second derivative of the profiled loss along `change`."""
        return self.hessian(evaluation).along(change)

    def curvature_bound(self, change: Array) -> float:
        """Return the mean of the columns' bounds."""
        bounds = [loss.curvature_bound(column) for loss, column in zip(self.columns, change.T, strict=True)]
        return float(np.mean(bounds))

    def hessian(self, evaluation: Evaluation) -> SeveralHessians:
        """Return the curvature of each prediction at the evaluated point."""
        n_columns = len(self.columns)
        slopes = n_columns * evaluation.residual / self.weights[:, np.newaxis]
        found = [
            loss.hessian_at(slope, 1.0 / n_columns)
            for loss, slope in zip(self.columns, slopes.T, strict=True)
        ]
        return SeveralHessians(np.stack([each.diagonal for each in found], axis=1), found[0].fit_intercept)

    def subset(self, rows: npt.NDArray[np.intp]) -> SeveralTargets | None:
        """Return the loss of some of the samples, if they make a problem for each target."""
        found = [loss.subset(rows) for loss in self.columns]
        columns = tuple(loss for loss in found if loss is not None)
        return SeveralTargets(columns) if len(columns) == len(found) else None

    def some(self, rows: npt.NDArray[np.intp]) -> SeveralTargets:
        """Return the loss of some of the samples, with the weights that they have."""
        return SeveralTargets(tuple(loss.some(rows) for loss in self.columns))

    def joined(self, others: Sequence[SeveralTargets], fit_intercept: bool) -> SeveralTargets:
        """Return the loss of these and other samples, with the weights that they have."""
        columns = zip(self.columns, *(each.columns for each in others), strict=True)
        return SeveralTargets(tuple(first.joined(rest, fit_intercept) for first, *rest in columns))


@final
@dataclass(frozen=True)
class SeveralHessians(Hessian):
    """Curvatures of several targets, which do not depend on each other."""

    diagonal: Array
    fit_intercept: bool

    def apply(self, change: Array) -> Array:
        """Return how the residual changes: each target's diagonal, with weighted means taken out."""
        result: Array = self.diagonal * self._centred(change)
        return result

    def along(self, change: Array) -> float:
        """Return the second derivative along a change."""
        centred = self._centred(change)
        return inner(self.diagonal, centred * centred)

    def output_grams(self, design: Design, rows: npt.NDArray[np.intp] | None = None) -> list[Array]:
        """Return the second derivative of each target alone, over some of the samples."""
        columns = self.diagonal.T if rows is None else self.diagonal[rows].T
        return [DiagonalHessian(column, self.fit_intercept).gram(design) for column in columns]

    def _centred(self, change: Array) -> Array:
        if not self.fit_intercept:
            return change
        result: Array = change - (self.diagonal * change).sum(axis=0) / self._totals
        return result

    @cached_property
    def _totals(self) -> Array:
        return np.asarray(np.maximum(self.diagonal.sum(axis=0), TINY))

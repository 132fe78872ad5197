"""The running average of tangent planes and the lower bound it proves.

A tangent plane of a convex function lies below it everywhere, and so does any average of tangent planes.
Its minimum over the set, which the linear minimisation oracle delivers, is therefore a lower bound of the
optimum, whatever the iterates do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from ._protocols import Direction, Evaluation, LinearMinimum, SampleVector
from ._sums import SUM_ROUNDING, TINY, UNIT_ROUNDOFF

# An average of two numbers is rounded four times: one less the weight, two products, and their sum.
_AVERAGE_ROUNDING = 4.0 * UNIT_ROUNDOFF


@final
@dataclass(frozen=True)
class ErrorEffect:
    """What errors in a direction change in its minimum.

    Attributes
    ----------
    product : float
        The effect of the rounding of a product with the data, for residuals whose sizes sum to one.
    underflow : float
        The effect of products with the data that underflow, whatever the residuals.
    residual : float
        The effect of errors in the residuals whose sizes sum to one.
    """

    product: float
    underflow: float
    residual: float


@final
@dataclass(frozen=True)
class AveragePlane:
    """The plane ``offset + <residual, z>`` in prediction space, an average of tangent planes.

    It is :eq:`average` as a function of the predictions; its minimum over the set is the bound :eq:`bound`.

    Attributes
    ----------
    residual : SampleVector
    offset : float
    size : float
        An upper bound of the sum of the residual's absolute values.
    offset_size : float
        The sum of the absolute values of what `offset` is a sum of.
    residual_error, offset_error : float
        Upper bounds of what averaging has changed in them: the sum of the sizes, and the size.
    """

    residual: SampleVector
    offset: float
    size: float
    offset_size: float
    residual_error: float = TINY  # of entries that underflow
    offset_error: float = 0.0

    @classmethod
    def tangent(cls, evaluation: Evaluation) -> AveragePlane:
        """Return the tangent plane at one point: an average of one."""
        return cls(evaluation.residual, evaluation.offset, evaluation.size, evaluation.offset_size)

    def blend(self, newest: AveragePlane, weight: float) -> AveragePlane:
        """Return the average with another plane, which gets this weight."""
        if weight == 1.0:
            return newest
        if not 0.0 <= weight < 1.0:  # which is no average, and may lie above the loss
            raise ValueError(f"A plane's weight in an average must be from 0 to 1; got weight={weight!r}.")
        past = 1.0 - weight
        size = past * self.size + weight * newest.size
        offset_size = past * self.offset_size + weight * newest.offset_size
        residual_error = past * self.residual_error + weight * newest.residual_error
        offset_error = past * self.offset_error + weight * newest.offset_error
        return AveragePlane(
            past * self.residual + weight * newest.residual,
            past * self.offset + weight * newest.offset,
            size,
            offset_size,
            residual_error + _AVERAGE_ROUNDING * size + TINY,
            offset_error + _AVERAGE_ROUNDING * offset_size,
        )

    def lower_bound(self, minimum: LinearMinimum, effect: ErrorEffect) -> float:
        """Return a lower bound of the plane over the set, given its minimum as the oracle found it."""
        slack = minimum.slack + self.offset_error + TINY
        slack += self.size * effect.product + effect.underflow + self.residual_error * effect.residual
        slack += SUM_ROUNDING * (self.offset_size + abs(minimum.value))
        return float(self.offset + minimum.value - slack)


@final
@dataclass(frozen=True)
class Cut:
    """A plane, its direction ``A^T residual`` in the space of the models, and its minimum over the set.

    Attributes
    ----------
    plane : AveragePlane
    direction : array or EntryMatrix
    minimum : LinearMinimum
    bound : float
        What the plane proves: no point of the set has a loss below this.
    """

    plane: AveragePlane
    direction: Direction
    minimum: LinearMinimum
    bound: float

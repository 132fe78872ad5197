"""The running average of tangent planes and the lower bound it proves.

A tangent plane of a convex function lies below it everywhere, and so does any average of tangent planes.
Its minimum over the set, which the linear minimisation oracle delivers, is therefore a lower bound of the
optimum, whatever the iterates do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ._protocols import Direction, Evaluation, LinearMinimum, SampleVector

_EPSILON = float(np.finfo(np.float64).eps)
# Offsets and minima are sums that were rounded; some units in the last place are subtracted from the bound,
# and the smallest normal number.
_ROUNDING, _TINY = 64.0 * _EPSILON, float(np.finfo(np.float64).tiny)
# An average of two numbers is rounded three times, by half a unit in the last place each.
_ROUNDINGS_OF_AN_AVERAGE = 1.5 * _EPSILON


@final
@dataclass(frozen=True)
class ErrorEffect:
    """What rounding in a direction changes in its minimum, for residuals whose sizes sum to one.

    Attributes
    ----------
    product : float
        The effect of the rounding of a product with the data.
    relative : float
        The effect of errors as large as the entries themselves; times a relative error it is that error's.
    """

    product: float
    relative: float


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
    rounding : float
        Relative error of the entries of the residual, or of its direction, from averaging.
    """

    residual: SampleVector
    offset: float
    size: float
    offset_size: float = 0.0
    rounding: float = 0.0

    @classmethod
    def tangent(cls, evaluation: Evaluation) -> AveragePlane:
        """Return the tangent plane at one point: an average of one."""
        offset_size = max(abs(evaluation.offset), evaluation.offset_size)
        return cls(evaluation.residual, evaluation.offset, evaluation.size, offset_size)

    def blend(self, newest: AveragePlane, weight: float) -> AveragePlane:
        """Return the average with another plane, which gets this weight."""
        if weight == 1.0:
            return newest
        past = 1.0 - weight
        return AveragePlane(
            past * self.residual + weight * newest.residual,
            past * self.offset + weight * newest.offset,
            past * self.size + weight * newest.size,
            past * self.offset_size + weight * newest.offset_size,
            past * self.rounding + weight * newest.rounding + _ROUNDINGS_OF_AN_AVERAGE,
        )

    def lower_bound(self, minimum: LinearMinimum, effect: ErrorEffect) -> float:
        """Return a lower bound of the plane over the set, given its minimum as the oracle found it."""
        slack = minimum.slack + self.size * (effect.product + self.rounding * effect.relative)
        slack += _ROUNDING * (self.offset_size + abs(minimum.value)) + _TINY
        return self.offset + minimum.value - slack


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

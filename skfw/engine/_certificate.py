"""The running average of tangent planes and the lower bound it proves.

A tangent plane of a convex function lies below it everywhere, and so does any average of tangent planes.
Its minimum over the set, which the linear minimisation oracle delivers, is therefore a lower bound of the
optimum, whatever the iterates do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ._protocols import Array, Direction, Evaluation, LinearMinimum

# The terms of a bound are sums that were rounded; the bound gives way by some units in the last place.
_ROUNDING = 64.0 * float(np.finfo(np.float64).eps)


@final
@dataclass(frozen=True)
class AveragePlane:
    """The plane ``offset + <residual, z>`` in prediction space, an average of tangent planes.

    It is :eq:`average` as a function of the predictions; its minimum over the set is the bound :eq:`bound`.

    Attributes
    ----------
    residual : ndarray
    offset : float
    size : float
        An upper bound of the sum of the residual's absolute values.
    """

    residual: Array
    offset: float
    size: float

    @classmethod
    def tangent(cls, evaluation: Evaluation) -> AveragePlane:
        """Return the tangent plane at one point: an average of one."""
        return cls(evaluation.residual, evaluation.offset, evaluation.size)

    def blend(self, newest: AveragePlane, weight: float) -> AveragePlane:
        """Return the average with another plane, which gets this weight."""
        if weight == 1.0:
            return newest
        residual = (1.0 - weight) * self.residual
        residual += weight * newest.residual
        return AveragePlane(
            residual,
            (1.0 - weight) * self.offset + weight * newest.offset,
            (1.0 - weight) * self.size + weight * newest.size,
        )

    def lower_bound(self, minimum: LinearMinimum, rounding: float = 0.0) -> float:
        """Return a lower bound of the plane over the set, given its minimum as the oracle found it.

        `rounding` bounds the effect of rounding in the direction, for residuals whose sizes sum to one.
        """
        slack = minimum.slack + rounding * self.size
        slack += _ROUNDING * (abs(self.offset) + abs(minimum.value))
        return self.offset + minimum.value - slack


@final
@dataclass(frozen=True)
class Cut:
    """A plane, its direction ``A^T residual`` in the space of the models, and its minimum over the set.

    Attributes
    ----------
    plane : AveragePlane
    direction : array or sparse matrix
    minimum : LinearMinimum
    bound : float
        What the plane proves: no point of the set has a loss below this.
    depth : int
        How many averages of directions, one of another, led to this one; each was rounded once more.
    """

    plane: AveragePlane
    direction: Direction
    minimum: LinearMinimum
    bound: float
    depth: int = 0

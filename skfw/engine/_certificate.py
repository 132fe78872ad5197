"""The running average of tangent planes and the lower bound it proves.

A tangent plane of a convex function lies below it everywhere, and so does any average of tangent planes.
Its minimum over the set, which the linear minimisation oracle delivers, is therefore a lower bound of the
optimum, whatever the iterates do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ._protocols import Array, Evaluation, LinearMinimum

# The two terms of a bound are sums that were rounded; the bound gives way by a few units in the last place.
_ROUNDING = 64.0 * float(np.finfo(np.float64).eps)


@final
@dataclass(frozen=True)
class AveragePlane:
    """The plane ``offset + <residual, z>`` in prediction space, an average of tangent planes.

    Attributes
    ----------
    residual : ndarray
    offset : float
    """

    residual: Array
    offset: float

    @classmethod
    def tangent(cls, evaluation: Evaluation) -> AveragePlane:
        """Return the tangent plane at one point: an average of one."""
        return cls(evaluation.residual, evaluation.offset)

    def blend(self, evaluation: Evaluation, weight: float) -> AveragePlane:
        """Return the average with the tangent plane at another point, which gets this weight."""
        if weight == 1.0:
            return AveragePlane.tangent(evaluation)
        residual = (1.0 - weight) * self.residual
        residual += weight * evaluation.residual
        return AveragePlane(residual, (1.0 - weight) * self.offset + weight * evaluation.offset)

    def lower_bound(self, minimum: LinearMinimum) -> float:
        """Return a lower bound of the plane over the set, given its minimum as the oracle found it."""
        rounding = _ROUNDING * (abs(self.offset) + abs(minimum.value))
        return self.offset + minimum.value - minimum.slack - rounding

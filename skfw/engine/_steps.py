"""Step rules. All work on a `Segment` in prediction space, so none of them needs a product with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from ._lines import LinePoint, Segment, search
from ._protocols import StepRule

# An exact search ends when the slope is this fraction of the slope at the start.
_PRECISION = 1e-8


@final
@dataclass(frozen=True)
class ParameterFree(StepRule):
    """The step given by the iteration alone; see the momentum in use."""

    def step(self, segment: Segment) -> LinePoint:
        """Take the momentum's own step."""
        return segment.at(segment.parameter_free_step)


@final
@dataclass(frozen=True)
class Smooth(StepRule):
    """Minimise the quadratic upper bound ``f + <grad, v-x> t + L ||v-x||^2 t^2 / 2`` along the segment.

    Parameters
    ----------
    lipschitz : float
        Lipschitz constant L of the gradient in the Euclidean norm.
    """

    lipschitz: float

    def step(self, segment: Segment) -> LinePoint:
        """Go to the minimum of the bound, clipped to [0, 1]."""
        if segment.length == 0.0:
            return segment.at(0.0)
        curvature = self.lipschitz * segment.atom.squared_distance(segment.x)
        return segment.at(_clip(-segment.slope * segment.length, curvature))


@final
@dataclass(frozen=True)
class Directional(StepRule):
    """Like `Smooth`, with the curvature bound of the loss along this very segment in place of L."""

    def step(self, segment: Segment) -> LinePoint:
        """Go to the minimum of the bound, clipped to [0, 1]."""
        if segment.length == 0.0:
            return segment.at(0.0)
        return segment.at(_clip(-segment.slope / segment.length, segment.normalised_curvature_bound))


@final
@dataclass(frozen=True)
class LineSearch(StepRule):
    """The exact minimiser along the segment."""

    def step(self, segment: Segment) -> LinePoint:
        """Go to the minimum of the loss."""
        return search(segment, _PRECISION) or segment.at(0.0)


def _clip(fall: float, curvature: float) -> float:
    """Minimise ``-fall * t + curvature * t^2 / 2`` over [0, 1]."""
    if fall <= 0.0:
        return 0.0
    return 1.0 if fall >= curvature else fall / curvature

"""Step rules. All work on a `Line` in prediction space, so none of them needs a product with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ._protocols import Line, StepRule
from ._sums import inner

# A line search ends when the slope is this fraction of the slope at the start. The loss is then within about
# its square of the minimum along the line.
_PRECISION = 1e-8
_MAX_EVALUATIONS = 60
# A slope of this fraction of what it is a sum of is rounding.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


@final
@dataclass(frozen=True)
class ParameterFree(StepRule):
    """The step given by the iteration alone; see the momentum in use."""

    def step(self, line: Line) -> float:
        """Return the momentum's own step."""
        return line.parameter_free_step


@final
@dataclass(frozen=True)
class Smooth(StepRule):
    """Minimise the quadratic upper bound ``f + <grad, v-x> t + L ||v-x||^2 t^2 / 2`` along the line.

    Parameters
    ----------
    lipschitz : float
        Lipschitz constant L of the gradient in the Euclidean norm.
    """

    lipschitz: float

    def step(self, line: Line) -> float:
        """Return the minimiser of the bound, clipped to [0, 1]."""
        if line.length == 0.0:
            return 0.0
        return _clip(-line.slope * line.length, self.lipschitz * line.atom.squared_distance(line.x))


@final
@dataclass(frozen=True)
class Directional(StepRule):
    """Like `Smooth`, with the curvature bound of the loss along this very line in place of L."""

    def step(self, line: Line) -> float:
        """Return the minimiser of the bound, clipped to [0, 1]."""
        if line.length == 0.0:
            return 0.0
        return _clip(-line.slope / line.length, line.loss.curvature_bound(line.unit))


@final
@dataclass(frozen=True)
class LineSearch(StepRule):
    """The exact minimiser along the line, by Newton's method kept inside a shrinking bracket."""

    def step(self, line: Line) -> float:
        """Return the minimiser of the loss over [0, 1]."""
        if line.length == 0.0 or line.slope >= 0.0:
            return 0.0
        # In units of `line.unit`: the minimiser lies between `low` (slope < 0) and `high` (slope > 0, or the
        # end of the line while that is untried).
        low, high, untried = 0.0, line.length, True
        position, slope, evaluation = 0.0, line.slope, line.evaluation
        rounding = _ROUNDING * float(np.abs(evaluation.residual).sum())
        flat = max(_PRECISION * -line.slope, rounding)
        for _ in range(_MAX_EVALUATIONS):
            curvature = line.loss.curvature_along(evaluation, line.unit)
            newton = position - slope / curvature if curvature > 0.0 else high
            if low < newton < high:
                position = newton
            elif newton >= high and untried:
                position = line.length
            else:
                position = (low + high) / 2.0
            evaluation = line.loss.evaluate(line.predictions + position * line.unit, evaluation.intercept)
            slope = inner(evaluation.residual, line.unit)
            if slope <= 0.0:
                low = position
            else:
                high, untried = position, False
            if abs(slope) <= flat:
                # Where even the first slope was rounding, a slope that is none may lie uphill.
                falls = evaluation.value <= (1.0 + _ROUNDING) * line.evaluation.value
                return (position if falls else low) / line.length
            if not low < (low + high) / 2.0 < high:
                break
        # The loss falls all the way from the iterate to `low`, so this never goes uphill.
        return low / line.length


def _clip(fall: float, curvature: float) -> float:
    """Minimise ``-fall * t + curvature * t^2 / 2`` over [0, 1]."""
    if fall <= 0.0:
        return 0.0
    return 1.0 if fall >= curvature else fall / curvature

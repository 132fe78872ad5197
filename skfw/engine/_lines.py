"""Lines in prediction space, and the search for the minimum along them: no product with the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from ._protocols import Atom, Data, Evaluation, Iterate, Loss, SampleVector

_MAX_EVALUATIONS = 60
# A slope of this fraction of what it is a sum of is rounding.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Line:
    """The predictions ``predictions + step * change``, for steps from zero to one."""

    loss: Loss
    data: Data
    predictions: SampleVector
    evaluation: Evaluation
    change: SampleVector

    @cached_property
    def length(self) -> float:
        """Largest entry of `change`; dividing by it keeps squares within the range of floats."""
        return self.data.largest(self.change)

    @cached_property
    def normalised_change(self) -> SampleVector:
        """`change` with a largest entry of one."""
        return self.change / self.length

    @cached_property
    def slope(self) -> float:
        """Derivative of the loss along `normalised_change`, where the line begins."""
        return self.data.inner(self.evaluation.residual, self.normalised_change)

    @cached_property
    def curvature_bound(self) -> float:
        """Upper bound of the second derivative in the step; at most L D^2."""
        if not self.length:
            return 0.0
        return self.loss.curvature_bound(self.normalised_change) * self.length * self.length

    def at(self, step: float) -> Evaluation:
        """Evaluate the loss after a step."""
        return self.loss.evaluate(self.predictions + step * self.change, self.evaluation.intercept)


@final
@dataclass(frozen=True)
class Segment(Line):
    """The line from the iterate `x` to an atom, ``(1 - step) * x + step * atom``."""

    x: Iterate
    atom: Atom
    parameter_free_step: float


@final
@dataclass(frozen=True)
class Found:
    """Where a search along a line ended."""

    step: float
    predictions: SampleVector
    evaluation: Evaluation


def search(line: Line, precision: float, first_step: float | None = None) -> Found | None:
    """Minimise the loss over the steps in [0, 1], by Newton's method kept inside a shrinking bracket.

    It ends where the slope is the fraction `precision` of the slope at the beginning; the loss is then within
    about its square of the minimum along the line. None if there is nothing to win.

    Parameters
    ----------
    line : Line
    precision : float
    first_step : float, optional
        What to try first; by default a Newton step.
    """
    if line.length == 0.0 or not line.slope < 0.0:
        return None
    # Positions are multiples of `line.normalised_change`. The minimiser lies between `low` (slope < 0) and
    # `high` (slope > 0, or the end of the line while that is untried).
    low, high, untried = 0.0, line.length, True
    position, slope, evaluation = 0.0, line.slope, line.evaluation
    rounding = _ROUNDING * evaluation.size
    flat = max(precision * -slope, rounding)
    lowest: Found | None = None
    for _ in range(_MAX_EVALUATIONS):
        if first_step is not None:
            position, first_step = first_step * line.length, None
        else:
            curvature = line.loss.curvature_along(evaluation, line.normalised_change)
            newton = position - slope / curvature if curvature > 0.0 else high
            if low < newton < high:
                position = newton
            elif newton >= high and untried:
                position = line.length
            else:
                position = (low + high) / 2.0
        predictions = line.predictions + position * line.normalised_change
        evaluation = line.loss.evaluate(predictions, evaluation.intercept)
        slope = line.data.inner(evaluation.residual, line.normalised_change)
        found = Found(position / line.length, predictions, evaluation)
        falls = evaluation.value <= (1.0 + _ROUNDING) * line.evaluation.value
        if slope <= 0.0:
            low, lowest = position, found
        else:
            high, untried = position, False
        if abs(slope) <= flat and falls:
            return found
        # Where even the first slope was rounding, a slope that is none may lie uphill.
        if abs(slope) <= rounding or not low < (low + high) / 2.0 < high:
            break
    # The loss falls all the way from the beginning to `low`, so this never goes uphill.
    return lowest

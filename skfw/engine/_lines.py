"""Lines in prediction space, and the search for the minimum along them: no product with the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

from ._protocols import Atom, Data, Evaluation, Iterate, Loss, SampleVector
from ._sums import NEGLIGIBLE_SUM, TINY

_MAX_EVALUATIONS = 60


@final
@dataclass(frozen=True)
class LinePoint:
    """A point of a line: how far along it, the predictions there, and the loss."""

    step: float
    predictions: SampleVector
    evaluation: Evaluation

    @property
    def value(self) -> float:
        """The loss."""
        return self.evaluation.value


@dataclass(frozen=True)
class Line:
    """The predictions ``predictions + step * change``, for steps from zero to one."""

    loss: Loss
    data: Data
    predictions: SampleVector
    evaluation: Evaluation
    change: SampleVector

    @cached_property
    def _size_and_slope(self) -> tuple[float, float]:
        return self.data.size_and_slope(self.change, self.evaluation.residual)

    @property
    def length(self) -> float:
        """Largest entry of `change`; dividing by it keeps squares within the range of floats."""
        return self._size_and_slope[0]

    @cached_property
    def normalised_change(self) -> SampleVector:
        """`change` with a largest entry of one."""
        return self.change / self.length

    @property
    def slope(self) -> float:
        """Derivative of the loss along `normalised_change`, where the line begins."""
        return self._size_and_slope[1]

    @cached_property
    def normalised_curvature_bound(self) -> float:
        """Upper bound of the second derivative along `normalised_change`, at every point."""
        return self.loss.curvature_bound(self.normalised_change)

    @property
    def curvature_bound(self) -> float:
        """Upper bound of the second derivative in the step; at most L D^2."""
        return self.normalised_curvature_bound * self.length * self.length if self.length else 0.0

    def at(self, step: float, near: Evaluation | None = None) -> LinePoint:
        """Evaluate the loss after a step; `near` is an evaluation closer by than where the line begins."""
        if step == 0.0:
            return LinePoint(0.0, self.predictions, self.evaluation)
        predictions = self.predictions + step * self.change
        intercept = (near or self.evaluation).intercept
        return LinePoint(step, predictions, self.loss.evaluate(predictions, intercept))


@final
@dataclass(frozen=True)
class Segment(Line):
    """The line from the iterate `x` to an atom, ``(1 - step) * x + step * atom``."""

    x: Iterate
    atom: Atom
    parameter_free_step: float


def search(line: Line, precision: float, first_step: float | None = None) -> LinePoint | None:
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
    if line.length < TINY or not line.slope < 0.0:
        return None
    # Positions are multiples of `line.normalised_change`. The minimiser lies between `low` (slope < 0) and
    # `high` (slope > 0, or the end of the line while that is untried).
    low, high, untried = 0.0, line.length, True
    position, slope, evaluation = 0.0, line.slope, line.evaluation
    rounding = NEGLIGIBLE_SUM * evaluation.size
    flat = max(precision * -slope, rounding)
    lowest: LinePoint | None = None
    newton_crawls = False
    for _ in range(_MAX_EVALUATIONS):
        slope_before, by_newton = abs(slope), False
        if first_step is not None:
            position, first_step = first_step * line.length, None
        else:
            curvature = line.loss.curvature_along(evaluation, line.normalised_change)
            newton = position - slope / curvature if curvature > 0.0 else high
            if low < newton < high and not newton_crawls:
                position, by_newton = newton, True
            elif newton >= high and untried:
                position = line.length
            else:
                position = (low + high) / 2.0
        found = line.at(position / line.length, evaluation)
        evaluation = found.evaluation
        slope = line.data.inner(evaluation.residual, line.normalised_change)
        # On one side of a kink Newton's method knows nothing of the other: the bracket is halved in between.
        newton_crawls = by_newton and abs(slope) > slope_before / 2.0
        falls = evaluation.value <= (1.0 + NEGLIGIBLE_SUM) * line.evaluation.value
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

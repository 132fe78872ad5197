"""A problem: a loss of the predictions, the data that gives them, and the set of the models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar, final

import numpy as np

from ._certificate import AveragePlane, Cut, ErrorEffect
from ._lines import Line, Segment
from ._protocols import (
    Array,
    Atom,
    Constraint,
    Data,
    Direction,
    Evaluation,
    Hint,
    Iterate,
    Loss,
    Point,
    SampleVector,
    check_kind,
)

AnyData = TypeVar("AnyData", bound=Data, covariant=True)


@final
class Problem(Generic[AnyData]):
    """Minimise ``loss(A x)`` over the models `x` of a set.

    Parameters
    ----------
    loss : Loss
    data : Data
        The linear map ``A``.
    constraint : Constraint
        The set.

    Examples
    --------
    >>> import numpy as np
    >>> from skfw.engine import L1Ball, Problem, SquaredLoss, design_matrix
    >>> loss = SquaredLoss(np.array([3.0, 1.0, 0.0]), np.full(3, 1 / 3))
    >>> problem = Problem(loss, design_matrix(np.eye(3)), L1Ball(2.0))
    >>> round(problem.null.value, 6), round(problem.at(np.array([2.0, 0.0, 0.0])).value, 6)
    (1.666667, 0.333333)
    """

    def __init__(self, loss: Loss, data: AnyData, constraint: Constraint) -> None:
        check_kind("loss", loss, Loss, "SquaredLoss(targets, weights)")
        check_kind("data", data, Data, "design_matrix(X)")
        check_kind("constraint", constraint, Constraint, "L1Ball(radius)")
        if data.low_rank and not constraint.low_rank:
            raise ValueError(
                f"constraint must be a set of matrices with rank-one atoms, such as NuclearBall; "
                f"got constraint={constraint!r}."
            )
        self.loss, self.data, self.constraint = loss, data, constraint
        self._free = _FreeProblem(loss, data)
        constraint.check(self._free.zero.shape)

    def within(self, constraint: Constraint) -> Problem[AnyData]:
        """Return the same problem in another set; what is known of loss and data is kept."""
        problem = Problem(self.loss, self.data, constraint)
        problem._free = self._free
        return problem

    def at(self, x: Iterate, intercept: float | Array = 0.0) -> Point:
        """Return a model with its predictions and its loss; `intercept` is a guess of the best one."""
        predictions = self.data.apply(x)
        return Point(x, predictions, self.loss.evaluate(predictions, intercept))

    def point(self, x: Iterate, predictions: SampleVector, near: Evaluation | None = None) -> Point:
        """Return a model whose predictions are known, with its loss; `near` is one of a model close by."""
        guess = 0.0 if near is None else near.intercept
        return Point(x, predictions, self.loss.evaluate(predictions, guess))

    @property
    def null(self) -> Point:
        """The model that is zero, whether it is in the set or not."""
        return self._free.null

    @property
    def start(self) -> Point:
        """Where a run starts by default: zero if it is in the set, else the atom its gradient points to."""
        if self.constraint.contains_zero:
            return self.null
        gradient = self.data.adjoint(self.null.evaluation.residual)
        return self.at(self._free.zero + self.constraint.lmo(gradient).atom)

    @property
    def lipschitz(self) -> float:
        """An upper bound of the Lipschitz constant of the gradient, in the Euclidean norm."""
        return self._free.lipschitz

    @cached_property
    def diameter(self) -> float:
        """The largest Euclidean distance between two points of the set."""
        return float(self.constraint.diameter(self._free.zero.shape))

    @cached_property
    def sample(self) -> Problem[Data] | None:
        """The problem of some of the samples; None where they are too few, or make no problem."""
        sampled = self.data.sample
        if sampled is None or (loss := self.loss.subset(sampled[0])) is None:
            return None
        return Problem(loss, sampled[1], self.constraint)

    def multiplier(self, point: Point) -> float:
        """Return the Lagrange multiplier of the constraint, at an optimal point."""
        return self.constraint.multiplier(self.data.inner(point.evaluation.residual, point.predictions))

    def minimise(self, plane: AveragePlane, hint: Hint | None = None) -> Cut:
        """Minimise a plane over the set."""
        return self._cut(plane, self.data.adjoint(plane.residual), hint)

    def minimise_average(self, past: Cut, newest: Cut, weight: float, hint: Hint | None = None) -> Cut:
        """Minimise an average of two planes whose directions are known: no product with the data."""
        direction = (1.0 - weight) * past.direction + weight * newest.direction
        return self._cut(past.plane.blend(newest.plane, weight), direction, hint)

    def _cut(self, plane: AveragePlane, direction: Direction, hint: Hint | None) -> Cut:
        minimum = self.constraint.lmo(direction, hint)
        return Cut(plane, direction, minimum, plane.lower_bound(minimum, self._error_effect))

    @cached_property
    def _error_effect(self) -> ErrorEffect:
        errors = self.data.adjoint_error(1.0), self.data.adjoint_error(0.0), self.data.adjoint_bound()
        with np.errstate(over="ignore"):
            effect = ErrorEffect(
                *(float(self.constraint.error_effect(error, self._free.zero)) for error in errors)
            )
        # The effect of the residuals is a bound of the predictions.
        if not (effect.product < np.inf and effect.residual < self.loss.largest_prediction):
            raise ValueError(
                "The data times the constraint's radius is too large for floating-point numbers."
            )
        return effect

    def line(self, predictions: SampleVector, evaluation: Evaluation, change: SampleVector) -> Line:
        """Return the line of predictions that begins at an evaluated point."""
        return Line(self.loss, self.data, predictions, evaluation, change)

    def segment(self, point: Point, atom: Atom, parameter_free_step: float) -> Segment:
        """Return the segment from a point to an atom."""
        change = atom.image(self.data) - point.predictions
        return Segment(
            self.loss,
            self.data,
            point.predictions,
            point.evaluation,
            change,
            point.x,
            atom,
            parameter_free_step,
        )


@final
@dataclass(frozen=True)
class _FreeProblem:
    """Loss and data without a set, with what problems in different sets share."""

    loss: Loss
    data: Data

    @cached_property
    def zero(self) -> Iterate:
        return self.data.zeros()

    @cached_property
    def null(self) -> Point:
        predictions = self.data.apply(self.zero)
        return Point(self.zero, predictions, self.loss.evaluate(predictions))

    @cached_property
    def lipschitz(self) -> float:
        return self.loss.curvature * self.data.squared_norm(self.loss.weights)

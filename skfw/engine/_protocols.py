"""The small interfaces between the solver and the parts it is put together from.

Every problem is ``min f(x) = loss(A x)`` over a convex compact set. The solver works in *prediction space*:
it keeps ``z = A x`` beside ``x``, and the gradient ``A^T r`` is only ever formed from the residual
``r = loss'(z)``. Whoever adds a loss, a constraint, a momentum or a step rule writes one class with the
methods below.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ._sums import inner

Array: TypeAlias = npt.NDArray[np.float64]
Shape: TypeAlias = tuple[int, ...]
# An iterate: an array, or a `FactoredMatrix`. A direction: an array, or a sparse matrix on the observed
# entries. Both support the arithmetic the solver writes down, `(1 - step) * x + step * atom` and `@`.
Iterate: TypeAlias = Any
Direction: TypeAlias = Any


@dataclass(frozen=True)
class Evaluation:
    """A loss at one point ``z``, and the plane that touches it there.

    The plane ``offset + <residual, z'>`` lies below the loss for every ``z'``.

    Attributes
    ----------
    value : float
        The weighted mean loss.
    residual : ndarray
        Its derivative with respect to the predictions.
    offset : float
        Height of the plane at the origin, computed without cancellation.
    size : float
        An upper bound of the sum of the residual's absolute values.
    intercept : float or ndarray
        The best intercept at these predictions; zero for a loss without one.
    """

    value: float
    residual: Array
    offset: float
    size: float
    intercept: float | Array = 0.0


@dataclass(frozen=True)
class Point:
    """An iterate, with its predictions and the loss there."""

    x: Iterate
    predictions: Array
    evaluation: Evaluation

    @property
    def value(self) -> float:
        """The loss."""
        return self.evaluation.value


class Hessian(ABC):
    """The second derivative of a loss in the predictions, at one point.

    Attributes
    ----------
    diagonal : ndarray of the predictions' shape
        The second derivative in each prediction alone, with the intercept held fixed.
    """

    diagonal: Array

    @abstractmethod
    def apply(self, change: Array) -> Array:
        """Return how the residual changes with the predictions, to first order."""

    def gram(self, linear_map: Any) -> Array | None:
        """Return the second derivative in the models as a matrix; None where only products are known."""
        return None


class Loss(ABC):
    """A convex, smooth, weighted mean of losses in the predictions.

    Attributes
    ----------
    curvature : float
        An upper bound of each sample's second derivative.
    weights : ndarray of shape (n_samples,)
        Positive, summing to one.
    infimum : float
        A lower bound of the loss that is known before any work.
    """

    curvature: ClassVar[float]
    infimum: ClassVar[float] = -np.inf
    weights: Array

    @abstractmethod
    def evaluate(self, predictions: Array, intercept: float | Array = 0.0) -> Evaluation:
        """Value, residual and tangent plane at `predictions`; `intercept` is a guess of the best one."""

    @abstractmethod
    def curvature_along(self, evaluation: Evaluation, change: Array) -> float:
        """Second derivative along `change` at the evaluated point."""

    @abstractmethod
    def curvature_bound(self, change: Array) -> float:
        """Upper bound of the second derivative along `change`, at every point."""

    @abstractmethod
    def hessian(self, evaluation: Evaluation) -> Hessian:
        """Return the second derivative at the evaluated point."""

    def subset(self, rows: npt.NDArray[np.intp]) -> Loss | None:
        """Return the loss of some of the samples; None if they alone make no problem."""
        return None


class LinearMap(ABC):
    """The data: the linear map from a model to its predictions, and its adjoint."""

    @abstractmethod
    def zeros(self) -> Iterate:
        """Return the model that is zero."""

    @abstractmethod
    def apply(self, x: Iterate) -> Array:
        """Return the predictions of `x`."""

    @abstractmethod
    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> Array:
        """Return the predictions of the model with these few nonzeros (flat indices)."""

    @abstractmethod
    def apply_rank_one(self, left: Array, right: Array) -> Array:
        """Return the predictions of the matrix ``left right^T``."""

    @abstractmethod
    def adjoint(self, residual: Array) -> Direction:
        """Return ``A^T residual``."""

    @abstractmethod
    def adjoint_rounding(self) -> Direction:
        """Entrywise bound of the rounding error of `adjoint`, for residuals whose sizes sum to one."""

    @abstractmethod
    def squared_norm(self, weights: Array) -> float:
        """Upper bound of the largest eigenvalue of ``A^T diag(weights) A``."""


class Atom(Protocol):
    """An extreme point of the set, stored by its structure instead of densely.

    ``scale * atom`` and ``x + atom`` give an atom and an iterate.
    """

    def image(self, linear_map: LinearMap) -> Array:
        """Return the predictions of this atom."""
        ...

    def inner(self, direction: Direction) -> float:
        """Return the inner product with a direction."""
        ...

    def squared_distance(self, x: Iterate) -> float:
        """Return the squared Euclidean distance to `x`."""
        ...

    def __rmul__(self, scale: float) -> Atom: ...


@dataclass(frozen=True)
class LinearMinimum:
    """What a linear minimisation oracle found.

    Attributes
    ----------
    atom : Atom
        A point of the set with ``<direction, atom> = value``.
    value : float
        The smallest value found.
    slack : float
        The true minimum is at least ``value - slack``. Zero for an exact oracle.
    """

    atom: Atom
    value: float
    slack: float = 0.0


@dataclass(frozen=True)
class Hint:
    """What the solver can tell an iterative oracle; exact ones ignore it.

    Attributes
    ----------
    iteration : int
        Number of this call, so that an oracle can draw fresh random numbers without keeping a state.
    atom : Atom or None
        What the last call returned: the place to start from.
    accuracy : float
        A slack below this is not worth any work.
    """

    iteration: int = 0
    atom: Atom | None = None
    accuracy: float = 0.0


class Constraint(ABC):
    """A convex compact set, known by its linear minimisation oracle.

    Subclasses keep their constructor's arguments as attributes of the same names, so that the parameters
    can be read, set and searched from outside (``constraint__radius``).
    """

    #: Whether the zero model is in the set; if so a run starts there, else at an atom.
    contains_zero: bool = False
    #: Whether the oracle takes sparse directions and returns rank-one atoms, as matrix completion needs.
    low_rank: bool = False

    @abstractmethod
    def lmo(self, direction: Direction, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the set."""

    @abstractmethod
    def diameter(self, shape: Shape) -> float:
        """Largest Euclidean distance between two points of the set."""

    def check(self, shape: Shape) -> None:  # noqa: B027 - many sets have nothing to check
        """Raise a ValueError if the parameters make no sense for a model of this shape."""

    def scale_into(self, x: Iterate) -> Iterate | None:
        """Scale `x` so that it lies in the set; None where this is not known, which means a cold start."""
        return None

    def corrector(self, loss: Loss, linear_map: LinearMap) -> Corrector | None:
        """Return a corrector made for this set; None if there is no better one than that for any set."""
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Constraint:
        """Set constructor parameters by name."""
        unknown = params.keys() - self.get_params().keys()
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {sorted(unknown)[0]!r}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self


class Momentum(ABC):
    """How much the newest tangent plane weighs in the running average.

    `clock` counts iterations, from zero at the start; a restart sets it forward.
    """

    @abstractmethod
    def weight(self, clock: float) -> float:
        """Return the weight of the newest plane, in (0, 1]."""

    @abstractmethod
    def step(self, clock: float) -> float:
        """Return the parameter-free step that belongs to this momentum."""


@dataclass(frozen=True)
class Line:
    """The segment from the iterate `x` to the `atom`, seen in prediction space.

    ``predictions + step * change`` are the predictions of ``(1 - step) * x + step * atom``.
    """

    loss: Loss
    x: Iterate
    atom: Atom
    predictions: Array
    change: Array
    evaluation: Evaluation
    parameter_free_step: float

    @cached_property
    def length(self) -> float:
        """Largest entry of `change`; dividing by it keeps squares within the range of floats."""
        return float(max(self.change.max(), -self.change.min()))

    @cached_property
    def unit(self) -> Array:
        """`change` with a largest entry of one."""
        return self.change / self.length

    @cached_property
    def slope(self) -> float:
        """Derivative of the loss along `unit`, at the iterate."""
        return inner(self.evaluation.residual, self.unit)

    @cached_property
    def curvature_bound(self) -> float:
        """Upper bound of the second derivative along the line; at most L D^2."""
        return self.loss.curvature_bound(self.unit) * self.length * self.length if self.length else 0.0


class StepRule(ABC):
    """How far to go along a line."""

    @abstractmethod
    def step(self, line: Line) -> float:
        """Return the step, in [0, 1]."""


class Corrector(ABC):
    """Improves an iterate inside the set, over what has been discovered so far.

    Any move that does not increase the loss keeps every guarantee, because the lower bound does not depend on
    how the iterates came about. A corrector is made for one run, and may keep a memory of it.
    """

    @abstractmethod
    def improve(self, point: Point, gradient: Direction, atom: Atom, gap: float) -> Point:
        """Return a point of the set that is no worse, or `point` itself if there is nothing to win.

        Parameters
        ----------
        point : Point
        gradient : the gradient there
        atom : Atom
            What the oracle found last.
        gap : float
            The certified gap of the point: more accuracy than a fraction of it is not worth any work.
        """

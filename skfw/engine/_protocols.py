"""The interfaces between the solver and the parts it is put together from.

Every problem is ``min f(x) = loss(A x)`` over a convex compact set. The solver works in *prediction space*:
it keeps ``z = A x`` beside ``x``, and the gradient ``A^T r`` is only ever formed from the residual
``r = loss'(z)``. Whoever adds a loss, a set, a momentum or a step rule writes one class with the methods
below; nothing else of an object is used.

A `SampleVector` has one number for each sample: predictions, residuals, changes of predictions. It is opaque
to solver, step rules, momenta and correctors. They add such vectors and multiply them by numbers; all else is
done by loss and data, which know what they are made of. In memory they are NumPy arrays.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ._sums import euclidean_norm, inner
from ._threads import BLOCK, add_up, map_blocks, row_blocks

if TYPE_CHECKING:
    from ._certificate import Cut
    from ._linear_system import LinearSystem
    from ._lines import LinePoint, Segment

Array: TypeAlias = npt.NDArray[np.float64]
Shape: TypeAlias = tuple[int, ...]
SampleVector: TypeAlias = Any
# Which samples a part of the data has: made by the data, read by loss and data.
Rows: TypeAlias = Any
# A model: an array, or a `FactoredMatrix`. It supports `(1 - step) * x + step * atom` and has a `shape`.
Iterate: TypeAlias = Any
# A gradient: an array, an `EntryMatrix` or a `MappedMatrix`. It supports `a + b`, `number * a`, `a / number`,
# `abs(a)`, `a @ b`, `a.T`, `a.shape`, `a.astype(kind)`, and products with a column on the left and with a row
# on the right. Of `abs(a)`, and of a bound of its errors, `max()` bounds the entries, and the Euclidean norm
# of `ravel()` that of all of them: where the matrix is not formed, they are cruder than those of an array.
Direction: TypeAlias = Any
# The fewest samples of a block in sums over the samples.
_SHORTEST_PART = 1024


def check_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raise a TypeError unless an argument is of the kind that is needed: nothing else is asked of it."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, such as {example}; got {name}={value!r:.50}.")


@dataclass(frozen=True)
class Evaluation:
    """A loss at one point ``z``, and the plane that touches it there.

    The plane ``offset + <residual, z'>`` lies below the loss for every ``z'``.

    Attributes
    ----------
    value : float
        The weighted mean loss.
    residual : SampleVector
        Its derivative with respect to the predictions.
    offset : float
        Height of the plane at the origin.
    size : float
        An upper bound of the sum of the residual's absolute values.
    offset_size : float
        An upper bound of the sum of the absolute values of what `offset` is a sum of; `offset` itself where
        all of these are positive.
    intercept : float or ndarray
        The best intercept at these predictions; zero for a loss without one.
    """

    value: float
    residual: SampleVector
    offset: float
    size: float
    offset_size: float
    intercept: float | Array = 0.0


@dataclass(frozen=True)
class Point:
    """An iterate, with its predictions and the loss there."""

    x: Iterate
    predictions: SampleVector
    evaluation: Evaluation

    @property
    def value(self) -> float:
        """The loss."""
        return self.evaluation.value


class Hessian(ABC):
    """The second derivative of a loss in the predictions, at one point.

    Attributes
    ----------
    diagonal : SampleVector
        The second derivative in each prediction alone, with the intercept held fixed.
    """

    diagonal: SampleVector

    @abstractmethod
    def apply(self, change: SampleVector) -> SampleVector:
        """Return how the residual changes with the predictions, to first order."""

    def gram(self, design: Design) -> Array | None:
        """Return the second derivative in the models as a matrix; None where only products are known."""
        return None

    def rough_gram(self, design: Design) -> Array | None:
        """Return the same with a few digits only, for a preconditioner."""
        return self.gram(design)

    def output_grams(self, design: Design, rows: Rows | None = None) -> list[Array] | None:
        """Return the second derivative in the models of each output alone, over the samples of a design.

        For a preconditioner: a few digits are enough.

        `rows` says which samples `design` has of those the loss has, by default all. None where only products
        are known.
        """
        return None


class Loss(ABC):
    """A convex, smooth, weighted mean of losses in the predictions.

    Most losses are simpler written as a `SeparableLoss`.

    Attributes
    ----------
    curvature : float
        An upper bound of each sample's second derivative.
    weights : SampleVector
        Positive, summing to one.
    is_quadratic : bool
        Whether the second derivative is the same everywhere.
    infimum : float
        A lower bound of the loss that is known before any work.
    largest_prediction : float
        The loss of predictions up to this size is finite.
    """

    curvature: ClassVar[float]
    is_quadratic: ClassVar[bool] = False
    infimum: ClassVar[float] = -np.inf
    largest_prediction: ClassVar[float] = 1e300
    weights: SampleVector

    @abstractmethod
    def evaluate(self, predictions: SampleVector, intercept: float | Array = 0.0) -> Evaluation:
        """Value, residual and tangent plane at `predictions`; `intercept` is a guess of the best one."""

    @abstractmethod
    def curvature_along(self, evaluation: Evaluation, change: SampleVector) -> float:
        """Second derivative along `change` at the evaluated point."""

    @abstractmethod
    def curvature_bound(self, change: SampleVector) -> float:
        """Upper bound of the second derivative along `change`, at every point."""

    @abstractmethod
    def hessian(self, evaluation: Evaluation) -> Hessian:
        """Return the second derivative at the evaluated point."""

    def evaluate_roughly(self, predictions: SampleVector, intercept: float | Array = 0.0) -> Evaluation:
        """Evaluate on the way of a descent: less precisely, where that is faster."""
        return self.evaluate(predictions, intercept)

    def subset(self, rows: Rows) -> Loss | None:
        """Return the loss of some of the samples; None if they alone make no problem."""
        return None


class Data(ABC):
    """The data: the linear map ``A`` from a model to its predictions, and its adjoint.

    Attributes
    ----------
    kind : str
        What correctors are looked up by: "design" for a `Design`, "entries" for `Entries`.
    low_rank : bool
        Whether models are `FactoredMatrix` objects, so that atoms must have rank one.
    product_cost : float
        Rough seconds that `apply` and `adjoint` take together.
    """

    kind: ClassVar[str] = ""
    low_rank: ClassVar[bool] = False

    @property
    @abstractmethod
    def product_cost(self) -> float: ...

    @abstractmethod
    def zeros(self) -> Iterate:
        """Return the model that is zero."""

    def compressed(self, x: Iterate) -> Iterate:
        """Return the same model in its smallest form: what a run ends with."""
        return x

    @abstractmethod
    def n_atoms(self, x: Iterate) -> int:
        """Return the number of nonzeros of a model, or of its rank-one terms."""

    @abstractmethod
    def apply(self, x: Iterate) -> SampleVector:
        """Return the predictions of `x`."""

    @abstractmethod
    def apply_sparse(self, indices: npt.NDArray[np.intp], values: Array) -> SampleVector:
        """Return the predictions of the model with these few nonzeros (flat indices)."""

    @abstractmethod
    def apply_rank_one(self, left: Array, right: Array) -> SampleVector:
        """Return the predictions of the matrix ``left right^T``."""

    @abstractmethod
    def adjoint(self, residual: SampleVector) -> Direction:
        """Return ``A^T residual``."""

    @abstractmethod
    def adjoint_size(self) -> Direction:
        """Entrywise upper bound of ``A^T residual``, for residuals whose sizes sum to one."""

    def adjoint_bound(self) -> Direction:
        """Entrywise upper bound of `adjoint_size`, for errors: cruder where that saves time."""
        return self.adjoint_size()

    @abstractmethod
    def adjoint_error(self, size: float) -> Direction:
        """Entrywise upper bound of the rounding error of `adjoint`, for residuals whose sizes sum to `size`.

        What remains at a size of zero is the effect of underflow, and zero where nothing is multiplied.
        """

    @abstractmethod
    def squared_norm(self, weights: SampleVector) -> float:
        """Upper bound of the largest eigenvalue of ``A^T diag(weights) A``."""

    @property
    def sample(self) -> tuple[Rows, Data] | None:
        """Some samples at random and the data they give; None if there are not many."""
        return None

    def inner(self, a: SampleVector, b: SampleVector) -> float:
        """Return the inner product of two sample vectors."""
        return inner(a, b)

    def inner_products(self, a: Sequence[SampleVector], b: Sequence[SampleVector]) -> Array:
        """Return the inner products of each vector of `a` with each of `b`."""
        sides = [([vector.ravel() for vector in vectors], axis) for vectors, axis in ((a, 0), (b, 1))]

        def products(part: slice) -> Array:
            left, right = (np.stack([vector[part] for vector in vectors], axis) for vectors, axis in sides)
            return np.asarray(np.dot(left, right))

        size = max(BLOCK // (len(a) + len(b)), _SHORTEST_PART)
        return add_up(map_blocks(products, row_blocks(sides[0][0][0].size, size)))

    def largest(self, a: SampleVector) -> float:
        """Return the largest absolute value in a sample vector."""
        return float(max(a.max(), -a.min()))

    def size_and_slope(self, change: SampleVector, residual: SampleVector) -> tuple[float, float]:
        """Return the largest absolute value in a change, and the slope along the change divided by that.

        The slope is zero where nothing changes.
        """
        size = self.largest(change)
        return size, self.inner(residual, change / size) if size > 0.0 else 0.0


class Design(Data):
    """Predictions ``X x`` of a linear model, with what correctors need of the features.

    Attributes
    ----------
    shape : tuple of two ints
        Number of samples and of features.
    n_outputs : int or None
        Number of columns of the model; None if the model is a vector.
    gram_cost : float
        Rough seconds that `gram` takes.
    """

    kind: ClassVar[str] = "design"
    shape: tuple[int, int]
    n_outputs: int | None

    @property
    @abstractmethod
    def gram_cost(self) -> float: ...

    @property
    @abstractmethod
    def sample(self) -> tuple[Rows, Design] | None:
        """Some samples at random and the design they give; None if there are not many."""

    @abstractmethod
    def restrict(self, features: npt.NDArray[np.intp]) -> Design:
        """Return the design of some of the features."""

    @abstractmethod
    def squares(self, weights: SampleVector) -> Array:
        """Return ``sum_i weights_i X_ij^2`` for each feature, and for each column of the weights."""

    @abstractmethod
    def gram(self, weights: SampleVector) -> Array:
        """Return ``X^T diag(weights) X`` as a dense matrix, for non-negative weights."""

    @property
    def rough_gram_cost(self) -> float:
        """Rough seconds that `rough_gram` takes."""
        return self.gram_cost

    def rough_gram(self, weights: SampleVector) -> Array:
        """Return the same with a few digits only, for a preconditioner, where that is faster.

        Many of the weights may be zero: it is faster still where their samples are left out.
        """
        return self.gram(weights)


class FactorMap(ABC):
    """A matrix that gives the factors of rows, or of columns, from those of a model."""

    @abstractmethod
    def apply(self, factors: Array) -> Array:
        """Return the matrix times factors, or times a vector, in their precision."""

    @abstractmethod
    def adjoint(self, rows: Array) -> Array:
        """Return the transpose times numbers of the rows."""

    @property
    @abstractmethod
    def is_identity(self) -> bool:
        """Whether it is the identity: rows have no features."""

    @property
    @abstractmethod
    def squares(self) -> FactorMap:
        """The matrix with all its entries squared."""


class Entries(Data):
    """Predictions are observed entries of ``A x C^T``, with what correctors need of the two maps.

    Attributes
    ----------
    shape : tuple of two ints
        Shape of the model.
    observed : PlainEntries
        The observed entries of a matrix, whatever it is made from.
    row_map, column_map : FactorMap
        ``A`` and ``C``: from a factored model ``L V^T`` to the factors ``A L`` and ``C V`` of the matrix.
    """

    kind: ClassVar[str] = "entries"
    low_rank: ClassVar[bool] = True
    shape: tuple[int, int]
    observed: PlainEntries
    row_map: FactorMap
    column_map: FactorMap

    @abstractmethod
    def products(self, left: Array, right: Array) -> SampleVector:
        """Return the predictions of ``left right^T``."""


class PlainEntries(Entries):
    """Predictions are observed entries of the model itself, with what losses need of its rows and columns."""

    def transposed_adjoint(self, values: SampleVector) -> Direction:
        """Return the transpose of `adjoint`, for many products."""
        return self.adjoint(values).T

    @abstractmethod
    def marginals(self, values: SampleVector) -> Array:
        """Sum values of entries over each row, then over each column, in any order."""

    @abstractmethod
    def spread(self, marginals: Array, part: slice) -> SampleVector:
        """Return, for each entry of a part, the number of its row plus that of its column."""


class Atom(Protocol):
    """An extreme point of the set, stored by its structure instead of densely.

    ``scale * atom`` and ``x + atom`` give an atom and an iterate.
    """

    def image(self, data: Data) -> SampleVector:
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
    memory : optional
        What an iterative oracle wants to be given in the next call's hint.
    """

    atom: Atom
    value: float
    slack: float = 0.0
    memory: Any = None


@dataclass(frozen=True)
class Hint:
    """What the solver can tell an iterative oracle; exact ones ignore it.

    Attributes
    ----------
    key : tuple of ints
        Different in each call and in each run, so that an oracle can draw fresh random numbers without
        keeping a state.
    memory : optional
        What the oracle returned as memory in a call before: where to start from.
    accuracy : float
        A slack below this is not worth any work.
    """

    key: tuple[int, ...] = ()
    memory: Any = None
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
    #: What correctors are looked up by. A set with a geometry is a `SetWithRadius`, `GroupGeometry`,
    #: `BoxGeometry`, `PolytopeGeometry` or `NuclearGeometry`; a set without one is re-optimised atom by atom.
    geometry: ClassVar[str] = ""

    @abstractmethod
    def lmo(self, direction: Direction, hint: Hint | None = None) -> LinearMinimum:
        """Minimise ``<direction, v>`` over the set."""

    @abstractmethod
    def diameter(self, shape: Shape) -> float:
        """Largest Euclidean distance between two points of the set."""

    def check(self, shape: Shape) -> None:  # noqa: B027 - many sets have nothing to check
        """Raise a ValueError if the parameters make no sense for a model of this shape."""

    def scale_into(self, x: Iterate) -> Iterate | None:
        """Return a point of the set next to `x`; None where this is not known, which means a cold start."""
        return None

    def restored(self, x: Iterate) -> Iterate:
        """Put right what rounding has moved out of the set; by default nothing. A run ends with it."""
        return x

    def multiplier(self, slope: float) -> float:
        """Return the Lagrange multiplier, given the inner product of a solution with the gradient there.

        It is how fast the optimum falls as the radius grows; NaN for a set without a radius.
        """
        return np.nan

    def error_effect(self, error: Direction, zero: Iterate) -> float:
        """Upper bound of ``sum_j error_j |v_j|`` over the set, for non-negative errors.

        The minimum of ``<direction, v>`` changes by at most this where the direction's entries change by at
        most `error`. This bound is Cauchy and Schwarz's; `zero` is the model that is zero.
        """
        largest_norm = self.diameter(zero.shape)
        if not self.contains_zero:
            largest_norm += float(np.sqrt(self.lmo(error).atom.squared_distance(zero)))
        return euclidean_norm(error.ravel()) * largest_norm

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


class SetWithRadius(Protocol):
    """What the correctors for an l1 ball, an l2 ball and a simplex read of the set."""

    radius: float


class BoxGeometry(Protocol):
    """What the corrector for boxes reads of the set."""

    def bounds(self, shape: Shape) -> tuple[Array, Array]:
        """Return the lower and the upper bound of each coefficient."""
        ...


class GroupGeometry(SetWithRadius, Protocol):
    """What the corrector for n-support balls and balls of groups reads of the set.

    The set is the convex hull of the models with at most `support_size` groups of nonzeros and a Euclidean
    norm of at most `radius`.
    """

    support_size: int

    def partition(self, shape: Shape) -> npt.NDArray[np.intp]:
        """Return the group of each coefficient of the flattened model, numbered from zero."""
        ...


class PolytopeGeometry(Protocol):
    """What the corrector for polytopes reads of the set."""

    def system(self, n_features: int) -> LinearSystem:
        """Return the constraints as arrays."""
        ...


class NuclearGeometry(SetWithRadius, Protocol):
    """What the correctors for nuclear-norm balls read of the set."""

    random_state: int

    def weights(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Return what rows and columns are multiplied by before the norm is taken."""
        ...


class Planes(Protocol):
    """What a momentum chooses from, at one iterate.

    Attributes
    ----------
    past : Cut
        What was chosen at the iterate before.
    newest : Cut
        The tangent plane at this iterate, minimised over the set when it is first asked for.
    objective : float
        The loss of this iterate.
    """

    @property
    def past(self) -> Cut: ...

    @property
    def newest(self) -> Cut: ...

    @property
    def objective(self) -> float: ...

    def average(self, weight: float) -> Cut:
        """Return the average of past and newest plane, which gets this weight, minimised over the set."""
        ...


@dataclass(frozen=True)
class Choice:
    """What a momentum chose.

    Attributes
    ----------
    cut : Cut
        An average of tangent planes, minimised over the set.
    weight : float
        The weight of the newest plane in it.
    clock : float
        What the momentum counts iterations with, at this iterate; one more at the next.
    atom : Atom
        Where to step to.
    restarted : bool
        Whether the past was forgotten.
    """

    cut: Cut
    weight: float
    clock: float
    atom: Atom
    restarted: bool = False


class Momentum(ABC):
    """Chooses the average of tangent planes that gives the next direction."""

    @abstractmethod
    def choose(self, planes: Planes, clock: float) -> Choice:
        """Choose an average; `clock` counts iterations from zero at the start, unless it was set forward."""

    @abstractmethod
    def step(self, clock: float) -> float:
        """Return the parameter-free step that belongs to this momentum."""

    def promise(self, clock: float) -> float:
        """Return the gap that is guaranteed after the step from here, divided by ``L D^2``.

        Where it is positive, a corrected iterate within it needs no step, and a step that does not get there
        is made again with the `fallback`. Where it is zero, every iteration makes its step.
        """
        return 0.0

    def fallback(self, planes: Planes, clock: float) -> Choice | None:
        """Return a choice that keeps the promise, where the first one did not; None if there is none."""
        return None


class StepRule(ABC):
    """How far to go along a segment."""

    @abstractmethod
    def step(self, segment: Segment) -> LinePoint:
        """Return where to go on the segment: ``segment.at(step)`` for a step in [0, 1]."""


class Corrector(ABC):
    """Improves an iterate inside the set, over what has been discovered so far.

    Any move that does not increase the loss keeps every guarantee, because the lower bound does not depend on
    how the iterates came about. A corrector is made for one run, and may keep a memory of it.
    """

    #: Whether a run may go nowhere but where the corrector leads, and ends where that leads nowhere.
    is_exclusive: bool = False

    @abstractmethod
    def improve(self, point: Point, newest: Cut, gap: float) -> Point:
        """Return a point of the set that is no worse, or `point` itself if there is nothing to win.

        Parameters
        ----------
        point : Point
        newest : Cut
            Its tangent plane: the gradient, and the atom that the oracle found for it.
        gap : float
            The certified gap of the point: more accuracy than a fraction of it is not worth any work.
        """

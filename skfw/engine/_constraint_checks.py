"""Whether a set keeps the promises that a certificate rests on, as far as that can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, final

import numpy as np
from scipy import sparse
from scipy.spatial.distance import pdist

from ._protocols import Array, Atom, Constraint, Data, Direction, Hint, Iterate, LinearMinimum, Shape
from ._sums import euclidean_norm, inner, sum_error
from .data import ObservedEntries, design_matrix

_ROUNDS = 8
# How far from a direction others are. Their atoms expose an approximate minimum, which random ones hardly do.
_NEIGHBOURS = (1e-1, 1e-2, 1e-3)
# Squares of directions of these sizes are still within the range of floats.
_SCALES = (1.0, 1e-100, 1e100)
# The slack that an iterative oracle is allowed by a hint, relative to the minimum.
_ACCURACY = 0.1
_MODELS = 20
# A value, the atom that attains it, a norm that a model was scaled by, and a product here: each is a sum.
_SUMS = 4.0

_TOO_HIGH = "Lower bounds would be above the optimum: the certificate would be false."


def check_constraint(constraint: Constraint, shape: Shape, *, random_state: int = 0) -> None:
    """Check whether a set keeps the promises of `Constraint`, for models of a shape.

    The oracle is asked for many directions, of different kinds and scales. Its atoms are points of the set,
    and so are zero, if `contains_zero` is true, and what `scale_into` returns. None of these points may have
    a smaller inner product with a direction than `lmo` says, no two may be further apart than `diameter`, and
    `error_effect` must hold for all of them. Each atom must attain its value, and be the same point in all of
    its methods. A set with ``low_rank = True`` is checked with the directions of matrix completion too.

    That is no proof: only some directions are tried, and a point that `lmo` and `scale_into` never return is
    not missed.

    Parameters
    ----------
    constraint : Constraint
    shape : tuple of one or two ints
        ``(n_features,)``, ``(n_features, n_outputs)``, or the shape of a matrix to complete. With few
        coefficients more of the possible directions are tried.
    random_state : int
        Seed of the directions; another one tries others.

    Raises
    ------
    AssertionError
        If a promise is broken. The message names it, and says what that does to a certificate. Errors that
        the set itself raises are passed on.

    See Also
    --------
    check_loss : The same for a loss.

    Examples
    --------
    >>> from skfw.engine import L1Ball, check_constraint
    >>> check_constraint(L1Ball(2.0), shape=(5,))
    """
    if len(shape) not in ((2,) if constraint.low_rank else (1, 2)):
        raise ValueError(
            f"shape must be one or two numbers, and two for a set with low_rank=True; got shape={shape!r}."
        )
    constraint.check(shape)
    _check_parameters(constraint)
    rng = np.random.default_rng(random_state)
    _check_set(constraint, _space_of_arrays(shape), rng)
    if constraint.low_rank:
        _check_set(constraint, _space_of_completion(shape, rng), rng)


def _check_parameters(constraint: Constraint) -> None:
    """Parameters survive a copy, and the multiplier is a number."""
    try:
        params = constraint.get_params()
        copy = type(constraint)(**params)
        kept = copy.get_params()
        copy.set_params(**params)
    except AttributeError as error:
        raise AssertionError(
            f"get_params and set_params need each argument of the constructor as an attribute of the same "
            f"name: {error}"
        ) from error
    for name, value in params.items():
        if kept[name] is not value:
            raise AssertionError(
                f"get_params: the constructor was given {name}={value!r} and kept {kept[name]!r}. It must "
                f"keep the same object, or scikit-learn cannot copy the set."
            )
    for slope in (-1.0, 0.0, 1.0):
        if np.isinf(multiplier := constraint.multiplier(slope)):
            raise AssertionError(
                f"multiplier({slope}) is {multiplier}; it must be finite, or NaN where there is none."
            )


@final
@dataclass(frozen=True)
class _Space:
    """Models as a run has them: how all their entries are read, and how directions are made.

    Attributes
    ----------
    entries : Data
        Its predictions are all entries of a model.
    data : Data
        Its predictions are the entries that are observed, and its adjoint makes directions.
    observed : index
        Which of all entries these are.
    """

    entries: Data
    data: Data
    observed: Any

    def direction(self, array: Array) -> Direction:
        """Return a direction, given all of its entries."""
        return self.data.adjoint(array[self.observed])

    def text(self, array: Array) -> str:
        """Describe a direction, given all of its entries."""
        numbers = np.array2string(array.ravel(), precision=6, threshold=12, max_line_width=1000)
        return f"{type(self.direction(array)).__name__}({numbers})"

    def arrays(self, rng: np.random.Generator) -> Iterator[Array]:
        """Yield all entries of many directions: zero where none is observed."""
        shape = self.entries.apply(self.entries.zeros()).shape
        for array in _arrays(shape, rng):
            seen = np.zeros(shape)
            seen[self.observed] = array[self.observed]
            yield from (seen, -seen)  # whose atoms are furthest apart


def _space_of_arrays(shape: Shape) -> _Space:
    identity = design_matrix(sparse.identity(shape[0], format="csr"), *shape[1:])
    return _Space(identity, identity, ...)


def _space_of_completion(shape: Shape, rng: np.random.Generator) -> _Space:
    """Return the models and directions of matrix completion, of entries so few that directions are sparse."""
    n_rows, n_columns = shape
    n_entries = n_rows * n_columns
    observed = np.sort(rng.choice(n_entries, max(n_entries // 3, 1), replace=False))
    entries, data = (
        ObservedEntries(*np.divmod(positions, n_columns), (n_rows, n_columns))
        for positions in (np.arange(n_entries), observed)
    )
    return _Space(entries, data, observed)


def _arrays(shape: Shape, rng: np.random.Generator) -> Iterator[Array]:
    for _ in range(_ROUNDS):
        normal = rng.normal(size=shape)
        yield normal
        yield from (normal + distance * rng.normal(size=shape) for distance in _NEIGHBOURS)
        yield np.where(rng.random(shape) < 0.3, normal, 0.0)
        yield np.where(np.abs(normal) < np.abs(normal).max(), 0.0, normal)
        yield np.abs(normal)
        yield np.sign(normal)  # with ties
        yield np.sign(normal) * np.exp(6.0 * normal)  # of very different sizes
    yield np.ones(shape)
    yield np.zeros(shape)


@final
@dataclass(frozen=True)
class _Answer:
    """What the oracle returned for a direction; direction and atom with all their entries."""

    direction: Array
    minimum: LinearMinimum
    point: Array


def _check_set(constraint: Constraint, space: _Space, rng: np.random.Generator) -> None:
    answers = list(_answers(constraint, space, rng))
    atoms = np.reshape([answer.point for answer in answers], (len(answers), -1))
    if lower := _lower_point(space, answers, atoms):
        raise AssertionError(
            f"lmo does not minimise: {lower} at an atom that it returned for another direction. {_TOO_HIGH}"
        )
    zero = np.zeros((1 if constraint.contains_zero else 0, atoms.shape[1]))
    if lower := _lower_point(space, answers, zero):
        raise AssertionError(
            f"contains_zero is True, but zero is not in the set, or lmo does not minimise: {lower} at zero. "
            f"A run would start outside of the set, or lower bounds would be above the optimum."
        )
    models = _models(space, [answer.minimum.atom for answer in answers], rng)
    scaled = np.reshape(list(_scaled_points(constraint, space, models)), (-1, atoms.shape[1]))
    if lower := _lower_point(space, answers, scaled):
        raise AssertionError(
            f"scale_into returns a point outside of the set, or lmo does not minimise: {lower} at what "
            f"scale_into returned. A warm start would be outside of the set, or lower bounds would be above "
            f"the optimum."
        )
    points = np.concatenate([atoms, zero, scaled])
    _check_diameter(constraint, space, points)
    for answer in answers:
        _check_error_effect(constraint, space, np.abs(answer.direction), np.abs(points))


def _answers(constraint: Constraint, space: _Space, rng: np.random.Generator) -> Iterator[_Answer]:
    """Ask for each direction, for what its atom leaves of it, and once more with a hint, as a run would."""
    x, memory = space.entries.zeros(), None
    for i, (direction, scale) in enumerate(zip(space.arrays(rng), cycle(_SCALES), strict=False)):
        answer = _ask(constraint, space, direction, None, x)
        yield answer
        # If the atom has a wrong support, one on the rest of the coordinates is better.
        yield _ask(constraint, space, np.where(answer.point == 0.0, direction, 0.0), None, x)
        hint = Hint((i,), memory, _ACCURACY * scale * abs(answer.minimum.value))
        answer = _ask(constraint, space, scale * direction, hint, x)
        yield answer
        x, memory = space.entries.zeros() + answer.minimum.atom, answer.minimum.memory


def _ask(constraint: Constraint, space: _Space, array: Array, hint: Hint | None, x: Iterate) -> _Answer:
    """Ask the oracle for one direction, and check what can be seen of the atom alone."""
    direction = space.direction(array)
    given = direction.ravel().copy()
    minimum = constraint.lmo(direction, hint)
    if not np.array_equal(direction.ravel(), given):
        raise AssertionError(
            f"lmo changes the direction that it is given, here {space.text(array)}. It is used again: later "
            f"lower bounds would be those of other planes, and the certificate would be false."
        )
    value, slack, atom = minimum.value, minimum.slack, minimum.atom
    if not (np.isfinite(value) and 0.0 <= slack < np.inf):
        raise AssertionError(
            f"lmo must return a finite value and a finite slack of at least zero; got value={value} and "
            f"slack={slack} for direction={space.text(array)}."
        )
    point = atom.image(space.entries)
    rounding = _rounding(array.size)
    allowed = rounding * (inner(np.abs(array), np.abs(point)) + abs(value))
    for name, product in (("image", inner(array, point)), ("inner", atom.inner(direction))):
        if not abs(product - value) <= allowed:
            raise AssertionError(
                f"lmo: value is not the inner product of direction and atom. For "
                f"direction={space.text(array)} it is {value:.9g}, but {product:.9g} by the method {name} of "
                f"the atom. Too large, it makes a certificate false; too small, gaps do not close."
            )
    _check_atom(space, atom, point, x, rounding)
    return _Answer(array, minimum, point)


def _check_atom(space: _Space, atom: Atom, point: Array, x: Iterate, rounding: float) -> None:
    """Check that all methods of an atom are about the same point, as seen from the iterate `x`."""
    entries = space.entries
    at = entries.apply(x)
    sizes = euclidean_norm(at), euclidean_norm(point)
    for text, model, expected in (
        ("x + atom", entries.zeros() + atom, point),
        ("0.75 * x + 0.25 * atom", 0.75 * x + 0.25 * atom, 0.75 * at + 0.25 * point),
    ):
        difference = np.abs(entries.apply(model) - expected).max()
        if not difference <= rounding * sum(sizes):
            raise AssertionError(
                f"atom: {text} and atom.image are not about the same point: they differ by up to "
                f"{difference:.3g}. The objective of a run, which it has from images, would not be that of "
                f"its model."
            )
    squared = atom.squared_distance(x)
    distance = euclidean_norm(at - point)
    if not abs(squared - distance * distance) <= rounding * sum(sizes) ** 2:
        raise AssertionError(
            f"atom: squared_distance returns {squared:.9g} where the squared distance is "
            f"{distance * distance:.9g}. Steps would have a wrong length, and error_effect may be too small."
        )


def _scaled_points(constraint: Constraint, space: _Space, models: Iterable[Iterate]) -> Iterator[Array]:
    for x in models:
        before = space.entries.apply(x)
        scaled = constraint.scale_into(x)
        if not np.array_equal(space.entries.apply(x), before):
            raise AssertionError(
                "scale_into changes its argument. A model that is kept would no longer be the one that its "
                "objective belongs to."
            )
        if scaled is not None:
            point = space.entries.apply(scaled)
            if not np.all(np.isfinite(point)):
                raise AssertionError(
                    f"scale_into must return a point of the set, or None; got numbers that are not finite "
                    f"for a model with a norm of {euclidean_norm(before):g}."
                )
            yield point


def _models(space: _Space, atoms: Sequence[Atom], rng: np.random.Generator) -> Iterator[Iterate]:
    """Yield zero, averages of atoms, which are in the set, and other sums of them."""
    yield space.entries.zeros()
    for _ in range(_MODELS):
        chosen = rng.choice(len(atoms), 3).tolist()
        for shares in (rng.dirichlet(np.ones(3)), rng.normal(size=3), rng.exponential(10.0, size=3)):
            x = space.entries.zeros()
            for share, atom in zip(shares.tolist(), chosen, strict=True):
                x = x + share * atoms[atom]
            yield x


def _lower_point(space: _Space, answers: Sequence[_Answer], points: Array) -> str:
    """Describe a point with a smaller inner product than the oracle allows for; empty if there is none."""
    directions = np.stack([answer.direction.ravel() for answer in answers], axis=1)
    values = np.array([answer.minimum.value for answer in answers])
    slacks = np.array([answer.minimum.slack for answer in answers])
    products = points @ directions
    rounding = _rounding(points.shape[1]) * (np.abs(points) @ np.abs(directions) + np.abs(values))
    too_low = products < values - slacks - rounding
    if not too_low.any():
        return ""
    row, column = np.argwhere(too_low)[0]
    return (
        f"for direction={space.text(answers[column].direction)} it returns value={values[column]:.9g} with "
        f"slack={slacks[column]:.3g}, but the inner product is {products[row, column]:.9g}"
    )


def _check_diameter(constraint: Constraint, space: _Space, points: Array) -> None:
    diameter = constraint.diameter(space.entries.zeros().shape)
    if not 0.0 < diameter < np.inf:
        raise AssertionError(f"diameter must be positive and finite; got {diameter}.")
    largest = float(pdist(points).max())
    if not (1.0 + _rounding(points.shape[1])) * diameter >= largest:
        raise AssertionError(
            f"diameter returns {diameter:.9g}, but two points of the set are {largest:.9g} apart. By default "
            f"error_effect depends on it: lower bounds would be reduced by too little for rounding errors, "
            f"and may be above the optimum."
        )


def _check_error_effect(constraint: Constraint, space: _Space, error: Array, sizes: Array) -> None:
    effect = constraint.error_effect(space.direction(error), space.entries.zeros())
    largest = float((sizes @ error.ravel()).max())
    if not (1.0 + _rounding(error.size)) * effect >= largest:
        raise AssertionError(
            f"error_effect returns {effect:.9g} for error={space.text(error)}, but at a point of the set the "
            f"sum is {largest:.9g}. Lower bounds would be reduced by too little for rounding errors, and may "
            f"be above the optimum."
        )


def _rounding(n_entries: int) -> float:
    """Return how far sums over all entries may be off, relative to the sum of the absolute values."""
    return _SUMS * float(sum_error(n_entries))

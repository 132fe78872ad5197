"""Which corrector is made for which set and which data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np

from .._problem import Problem
from .._protocols import (
    BoxGeometry,
    Corrector,
    Data,
    GroupGeometry,
    NuclearGeometry,
    PolytopeGeometry,
    SetWithRadius,
)
from ._active_atoms import ActiveAtoms
from ._active_coordinates import ActiveCoordinates
from ._active_groups import ActiveGroups
from ._euclidean_ball import EuclideanBall
from ._factor_descent import FactorDescent
from ._factor_newton import FactorNewton
from ._free_coordinates import FreeCoordinates
from ._interior_point import InteriorPoint

# An interior-point method factors a matrix of this size some twenty times in a step: that takes seconds.
_FEW_FEATURES = 3000


def best_corrector(problem: Problem[Data]) -> Corrector:
    """Return the corrector made for a problem, or else the one for any; for a single run."""
    make = _CORRECTORS.get((problem.constraint.geometry, problem.data.kind), ActiveAtoms)
    return make(problem)


def _coordinates(problem: Problem[Any], signed: bool) -> Corrector:
    return ActiveCoordinates(problem, cast(SetWithRadius, problem.constraint).radius, signed)


def _ball(problem: Problem[Any]) -> Corrector:
    return EuclideanBall(problem, cast(SetWithRadius, problem.constraint).radius)


def _box(problem: Problem[Any]) -> Corrector:
    bounds = cast(BoxGeometry, problem.constraint).bounds(problem.null.x.shape)
    return FreeCoordinates(problem, *bounds)


def _groups(problem: Problem[Any]) -> Corrector:
    ball = cast(GroupGeometry, problem.constraint)
    return ActiveGroups(problem, ball.radius, ball.partition(problem.null.x.shape), ball.support_size)


def _polytope(problem: Problem[Any]) -> Corrector:
    n_features = problem.data.shape[1]
    if problem.data.n_outputs is not None or n_features > _FEW_FEATURES:
        return ActiveAtoms(problem)
    return InteriorPoint(problem, cast(PolytopeGeometry, problem.constraint).system(n_features))


def _matrices(problem: Problem[Any]) -> Corrector:
    ball = cast(NuclearGeometry, problem.constraint)
    return FactorNewton(problem, ball.radius, *ball.weights(problem.null.x.shape))


def _factors(problem: Problem[Any]) -> Corrector:
    if np.isinf(problem.loss.curvature):  # there is no quadratic upper bound to descend on
        return ActiveAtoms(problem)
    ball = cast(NuclearGeometry, problem.constraint)
    row_weights, column_weights = ball.weights(problem.data.shape)
    return FactorDescent(problem, ball.radius, row_weights, column_weights, ball.random_state)


# By the geometry of the set and the kind of the data, which say what attributes these have.
_CORRECTORS: dict[tuple[str, str], Callable[[Problem[Any]], Corrector]] = {
    ("l1 ball", "design"): partial(_coordinates, signed=True),
    ("simplex", "design"): partial(_coordinates, signed=False),
    ("l2 ball", "design"): _ball,
    ("group ball", "design"): _groups,
    ("box", "design"): _box,
    ("polytope", "design"): _polytope,
    ("nuclear ball", "design"): _matrices,
    ("nuclear ball", "entries"): _factors,
}

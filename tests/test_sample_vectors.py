"""Sample vectors are opaque: the same runs with predictions that are no arrays.

Here predictions, residuals and all that has one number for each sample are `Blocks`, which can be added and
multiplied by numbers and nothing else. Loss and data, which know what they are made of, join them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from problems import MOMENTA, STEPS

from skfw.engine import (
    ActiveCoordinates,
    ActiveGroups,
    Design,
    EuclideanBall,
    GapRestart,
    Hessian,
    L1Ball,
    L2Ball,
    LInfBall,
    LogisticLoss,
    Loss,
    MultinomialLoss,
    NSupportBall,
    NuclearBall,
    Problem,
    Simplex,
    Smooth,
    SquaredLoss,
    best_corrector,
    design_matrix,
    frank_wolfe,
    sample_start,
)


class Blocks:
    """Two pieces of an array, with the arithmetic of sample vectors."""

    __slots__ = ("pieces",)
    __array_ufunc__ = None  # NumPy's numbers leave products to this class

    def __init__(self, *pieces):
        self.pieces = pieces

    def __add__(self, other):
        return Blocks(*(a + b for a, b in zip(self.pieces, other.pieces, strict=True)))

    def __sub__(self, other):
        return Blocks(*(a - b for a, b in zip(self.pieces, other.pieces, strict=True)))

    def __rmul__(self, number):
        return Blocks(*(float(number) * piece for piece in self.pieces))

    def __truediv__(self, number):
        return Blocks(*(piece / float(number) for piece in self.pieces))


def split(array):
    return Blocks(*(piece.copy() for piece in np.array_split(array, [len(array) // 3])))


def join(blocks):
    return np.concatenate(blocks.pieces)


@dataclass(frozen=True)
class SomeRows:
    """Which samples a part of the data has: nothing that an array could be indexed with."""

    numbers: Any


class BlockDesign(Design):
    """A design in memory, seen through blocks."""

    def __init__(self, design):
        self.design, self.shape, self.n_outputs = design, design.shape, design.n_outputs

    @property
    def product_cost(self):
        return self.design.product_cost

    @property
    def gram_cost(self):
        return self.design.gram_cost

    @property
    def sample(self):
        if (sampled := self.design.sample) is None:
            return None
        return SomeRows(sampled[0]), BlockDesign(sampled[1])

    def zeros(self):
        return self.design.zeros()

    def n_atoms(self, x):
        return self.design.n_atoms(x)

    def apply(self, x):
        return split(self.design.apply(x))

    def apply_sparse(self, indices, values):
        return split(self.design.apply_sparse(indices, values))

    def apply_rank_one(self, left, right):
        return split(self.design.apply_rank_one(left, right))

    def adjoint(self, residual):
        return self.design.adjoint(join(residual))

    def adjoint_size(self):
        return self.design.adjoint_size()

    def adjoint_error(self, size):
        return self.design.adjoint_error(size)

    def squared_norm(self, weights):
        return self.design.squared_norm(join(weights))

    def inner(self, a, b):
        return self.design.inner(join(a), join(b))

    def inner_products(self, a, b):
        return self.design.inner_products([join(one) for one in a], [join(one) for one in b])

    def largest(self, a):
        return self.design.largest(join(a))

    def restrict(self, features):
        return BlockDesign(self.design.restrict(features))

    def squares(self, weights):
        return self.design.squares(join(weights))

    def gram(self, weights):
        return self.design.gram(join(weights))


class BlockLoss(Loss):
    """A loss in memory, seen through blocks."""

    def __init__(self, loss):
        self.loss, self.weights = loss, split(loss.weights)
        self.curvature, self.infimum = loss.curvature, loss.infimum

    def evaluate(self, predictions, intercept=0.0):
        evaluation = self.loss.evaluate(join(predictions), intercept)
        return replace(evaluation, residual=split(evaluation.residual))

    def curvature_along(self, evaluation, change):
        return self.loss.curvature_along(joined(evaluation), join(change))

    def curvature_bound(self, change):
        return self.loss.curvature_bound(join(change))

    def hessian(self, evaluation):
        return BlockHessian(self.loss.hessian(joined(evaluation)))

    def subset(self, rows):
        subset = self.loss.subset(rows.numbers)
        return None if subset is None else BlockLoss(subset)


def joined(evaluation):
    return replace(evaluation, residual=join(evaluation.residual))


class BlockHessian(Hessian):
    def __init__(self, hessian):
        self.hessian, self.diagonal = hessian, split(hessian.diagonal)

    def apply(self, change):
        return split(self.hessian.apply(join(change)))

    def gram(self, design):
        return self.hessian.gram(design.design)

    def output_grams(self, design, rows):
        return self.hessian.output_grams(design.design, None if rows is None else rows.numbers)


def in_blocks(problem):
    return Problem(BlockLoss(problem.loss), BlockDesign(problem.data), problem.constraint)


def make_problem(loss_name, constraint, n_samples=60, n_features=6, intercept=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_features)) * rng.uniform(0.2, 2.0, n_features)
    scores = X @ rng.normal(size=(n_features, 3)) + rng.gumbel(size=(n_samples, 3))
    weights = rng.uniform(0.5, 2.0, n_samples)
    weights /= weights.sum()
    loss = {
        "logistic": lambda: LogisticLoss(np.where(scores[:, 0] > 0.0, 1.0, -1.0), weights, intercept),
        "multinomial": lambda: MultinomialLoss(scores.argmax(axis=1), 3, weights, intercept),
        "squared": lambda: SquaredLoss(scores[:, 0], weights, intercept),
    }[loss_name]()
    return Problem(loss, design_matrix(X, 3 if loss_name == "multinomial" else None), constraint)


def assert_the_same(blocks, arrays):
    assert (blocks.status, blocks.n_iter, blocks.n_restarts) == (
        arrays.status,
        arrays.n_iter,
        arrays.n_restarts,
    )
    for name in blocks.trace.keys() - {"seconds"}:
        np.testing.assert_allclose(blocks.trace[name], arrays.trace[name], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(blocks.x, arrays.x, rtol=1e-9, atol=1e-12)
    assert isinstance(blocks.predictions, Blocks)
    np.testing.assert_allclose(join(blocks.predictions), arrays.predictions, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(blocks.intercept, arrays.intercept, rtol=1e-9, atol=1e-12)
    assert blocks.multiplier == pytest.approx(arrays.multiplier, rel=1e-9)


def test_blocks_are_no_arrays():
    """A test of the test: what is not in the interface fails."""
    blocks = split(np.arange(6.0))
    np.testing.assert_array_equal(
        join(np.float64(2.0) * blocks + blocks / 2.0 - blocks), 1.5 * np.arange(6.0)
    )
    for wrong in (
        lambda: blocks * 2.0,
        lambda: blocks * blocks,
        lambda: blocks + 1.0,
        lambda: -blocks,
        lambda: len(blocks),
        lambda: blocks[0],
        lambda: blocks.sum(),
        lambda: np.asarray(blocks).sum() + 1.0,
        lambda: np.abs(blocks),
    ):
        with pytest.raises((TypeError, AttributeError)):
            wrong()
    assert not isinstance(blocks, Sequence)


CONSTRAINTS = [L1Ball(0.9), L2Ball(0.8), LInfBall(0.3), Simplex(5.0)]
every_loss = pytest.mark.parametrize("loss_name", ["logistic", "multinomial", "squared"])
every_constraint = pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)


@every_loss
@every_constraint
@pytest.mark.parametrize("momentum", [*MOMENTA, "restart"])
@pytest.mark.parametrize("step", [*STEPS, "smooth"])
def test_steps(loss_name, constraint, momentum, step):
    problem = make_problem(loss_name, constraint)
    runs = []
    for p in (in_blocks(problem), problem):
        chooser = MOMENTA.get(momentum) or GapRestart(MOMENTA["weighted"], p.lipschitz * p.diameter**2)
        rule = STEPS.get(step) or Smooth(p.lipschitz)
        runs.append(frank_wolfe(p, momentum=chooser, step_rule=rule, max_iter=15))
    assert_the_same(*runs)
    assert runs[1].objective < problem.start.value


@every_loss
@every_constraint
@pytest.mark.parametrize("gram_products", [0.0, np.inf], ids=["products", "matrices"])
@pytest.mark.parametrize("n_samples", [60, 5000], ids=["small", "sampled"])
def test_correctors(loss_name, constraint, gram_products, n_samples, monkeypatch):
    """Those for each of the sets, with products and with matrices, and with preconditioners of samples."""
    for module in ("_active_coordinates", "_euclidean_ball"):
        monkeypatch.setattr(f"skfw.engine.correctors.{module}.GRAM_PRODUCTS", gram_products)
    problem = make_problem(loss_name, constraint, n_samples)
    runs = [
        frank_wolfe(
            p, momentum=MOMENTA["adaptive"], corrector=best_corrector(p), tolerance=1e-10, max_iter=60
        )
        for p in (in_blocks(problem), problem)
    ]
    assert_the_same(*runs)
    assert runs[1].status == "converged"
    assert np.any(runs[1].trace["step"] == 0.0)  # the corrector was at work


@pytest.mark.parametrize("gram_products", [0.0, np.inf], ids=["products", "matrices"])
@pytest.mark.parametrize("radius", [1.5, 1e3])
@pytest.mark.parametrize("n_samples", [60, 5000], ids=["small", "sampled"])
def test_newton_on_factors(gram_products, radius, n_samples, monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._factor_newton.GRAM_PRODUCTS", gram_products)
    problem = make_problem("multinomial", NuclearBall(radius), n_samples)
    runs = [
        frank_wolfe(p, momentum=MOMENTA["adaptive"], corrector=best_corrector(p), tolerance=1e-7, max_iter=60)
        for p in (in_blocks(problem), problem)
    ]
    assert_the_same(*runs)
    assert runs[1].status == "converged"


@pytest.mark.parametrize(
    "constraint, kind",
    [
        (L1Ball(1.0), ActiveCoordinates),
        (Simplex(1.0), ActiveCoordinates),
        (L2Ball(1.0), EuclideanBall),
        (NSupportBall(1.0, 2), ActiveGroups),
    ],
    ids=str,
)
def test_correctors_are_found_for_designs_of_ones_own(constraint, kind):
    assert type(best_corrector(in_blocks(make_problem("logistic", constraint)))) is kind


@every_loss
def test_a_matrix_of_all_samples(loss_name, monkeypatch):
    """A preconditioner of all rows, which is made where that of a sample has led to many products."""
    monkeypatch.setattr("skfw.engine.correctors._euclidean_ball._STALE", -1)
    problem = make_problem(loss_name, L2Ball(0.8))
    runs = [
        frank_wolfe(p, corrector=best_corrector(p), tolerance=1e-10, max_iter=60)
        for p in (in_blocks(problem), problem)
    ]
    assert_the_same(*runs)


@every_loss
@every_constraint
def test_starts_from_samples(loss_name, constraint):
    problem = make_problem(loss_name, constraint, n_samples=5000)
    blocks, arrays = (sample_start(p, momentum=MOMENTA["adaptive"]) for p in (in_blocks(problem), problem))
    assert arrays is not None
    np.testing.assert_allclose(blocks.x, arrays.x, rtol=1e-9, atol=1e-12)
    assert blocks.value == pytest.approx(arrays.value, rel=1e-12)


def test_a_problem_in_blocks():
    problem = make_problem("logistic", L1Ball(1.0))
    blocks = in_blocks(problem)
    assert blocks.lipschitz == pytest.approx(problem.lipschitz, rel=1e-12)
    assert blocks.within(L2Ball(1.0)).null.value == problem.null.value

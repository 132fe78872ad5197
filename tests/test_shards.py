"""Rows in blocks: the same losses, designs and runs as in memory."""

import gc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from problems import MOMENTA
from scipy import sparse

from skfw.engine import (
    Box,
    Extent,
    Here,
    HuberLoss,
    L1Ball,
    L2Ball,
    LogisticLoss,
    Made,
    MultinomialLoss,
    NSupportBall,
    NuclearBall,
    Pieces,
    PoissonLoss,
    Problem,
    SeveralTargets,
    ShardedDesign,
    ShardedLoss,
    ShardVector,
    Simplex,
    SquaredLoss,
    best_corrector,
    design_matrix,
    frank_wolfe,
    sample_start,
)
from skfw.engine._shards import Deferred

RUNNER = Here()


class Counting(Here):
    """Counts the passes over the blocks, by what they do."""

    def __init__(self):
        self.names = []

    def map(self, function, *arguments):
        self.names.append(function.__name__)
        return super().map(function, *arguments)


def several(targets, weights, fit_intercept):
    columns = (np.ascontiguousarray(column) for column in targets.T)
    return SeveralTargets(tuple(SquaredLoss(column, weights, fit_intercept) for column in columns))


# What makes a loss, and how many outputs it has.
LOSSES = {
    "logistic": (LogisticLoss, None),
    "squared": (SquaredLoss, None),
    "huber": (lambda targets, weights, fit: HuberLoss(targets, weights, fit, epsilon=1.0), None),
    "poisson": (PoissonLoss, None),
    "multinomial": (lambda labels, weights, fit: MultinomialLoss(labels, 3, weights, fit), 3),
    "several": (several, 3),
}
every_loss = pytest.mark.parametrize("name", LOSSES)
with_intercept = pytest.mark.parametrize("fit_intercept", [False, True])


def data(name, n_samples=200, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) * rng.uniform(0.2, 2.0, n_features)
    X *= rng.uniform(size=X.shape) < 0.7
    scores = X @ rng.normal(size=(n_features, 3)) + rng.gumbel(size=(n_samples, 3))
    weights = rng.uniform(0.5, 2.0, n_samples)
    targets = {
        "logistic": np.where(scores[:, 0] > 0.0, 1.0, -1.0),
        "squared": scores[:, 0],
        "huber": scores[:, 0],
        "poisson": np.floor(np.exp(np.clip(scores[:, 0], -2.0, 2.0))),
        "multinomial": scores.argmax(axis=1),
        "several": scores,
    }[name]
    return X, targets, weights / weights.sum()


def losses(name, targets, weights, fit_intercept, n_blocks):
    """Return the loss in memory, the same in blocks, and the rows of these."""
    make, n_outputs = LOSSES[name]
    rows = np.array_split(np.arange(len(weights)), n_blocks)
    blocks = Pieces([make(targets[part], weights[part], False) for part in rows])
    pattern = make(targets, weights, fit_intercept)
    sharded = ShardedLoss(RUNNER, blocks, pattern, n_outputs, fit_intercept)
    return make(targets, weights, fit_intercept), sharded, rows


def designs(name, X, rows):
    n_outputs = LOSSES[name][1]
    blocks = [design_matrix(X[part], n_outputs) for part in rows]
    sharded = ShardedDesign(RUNNER, Pieces(blocks), [Extent.of(block) for block in blocks], n_outputs)
    return design_matrix(X, n_outputs), sharded


def in_blocks(vector, rows):
    return ShardVector.of(Pieces([vector[part] for part in rows]))


def joined(vector):
    return np.concatenate(RUNNER.parts(RUNNER.map(lambda part: part, vector)))


def vectors(name, n_samples, count, seed=1):
    n_outputs = LOSSES[name][1]
    shape = (n_samples,) if n_outputs is None else (n_samples, n_outputs)
    return np.random.default_rng(seed).normal(size=(count, *shape))


def test_vectors_are_added_and_multiplied_where_they_are_used():
    rows = np.array_split(np.arange(10), 3)
    a, b = np.arange(10.0), np.ones(10)
    one, other = in_blocks(a, rows), in_blocks(b, rows)
    np.testing.assert_allclose(joined(np.float64(2.0) * one - other / 4.0 + one), 3.0 * a - b / 4.0)
    assert len((one + one).terms) == 1
    for wrong in (lambda: one * 2.0, lambda: one + 1.0, lambda: one * other, lambda: len(one)):
        with pytest.raises((TypeError, AttributeError)):
            wrong()
    assert a[1] == 1.0  # nothing was changed in place


def test_what_is_deferred_is_computed_once_by_the_first_that_needs_it():
    X, targets, weights = data("squared")
    _, _, rows = losses("squared", targets, weights, False, 3)
    counting = Counting()
    blocks = [design_matrix(X[part]) for part in rows]
    design = ShardedDesign(counting, Pieces(blocks), [Extent.of(block) for block in blocks])
    predictions = design.apply(np.ones(6))
    assert not counting.names
    np.testing.assert_allclose(design.inner(predictions, predictions), ((X @ np.ones(6)) ** 2).sum())
    twice = 2.0 * predictions
    np.testing.assert_allclose(design.adjoint(twice), 2.0 * X.T @ (X @ np.ones(6)))
    assert counting.names == ["_inner_products", "_adjoint"]
    pieces = next(iter(predictions.terms))
    assert len(pieces.handles) == 3
    assert not pieces.arguments  # the model need not be kept


def test_what_is_made_is_made_by_each_task_and_kept_by_none():
    made = []
    double = Made(lambda row: made.append(row) or 2.0 * row, Pieces([np.ones(2), np.ones(3), np.ones(4)]))
    some = double.of_blocks([0, 2])
    for _ in range(2):
        assert RUNNER.sums(lambda row, other: ((row + other).sum(),), some, some) == (24.0,)
    assert [len(row) for row in made] == [2, 4, 2, 4]
    vector = ShardVector.of(Deferred(lambda row: 3.0 * row, double))
    assert joined(vector).tolist() == [6.0] * 9
    (kept,) = vector.terms
    assert all(len(handle) == 2 for handle in kept.handles)  # the result of the pass, and the vector


def test_a_task_lets_go_of_its_blocks_at_once():
    """Even where Python does not look for cycles, as it may not for a while: blocks are large."""
    gone = []

    class Block:
        def __del__(self):
            gone.append(self)

    source = Made(lambda number: Block(), Pieces([1, 2, 3]))
    gc.disable()
    try:
        RUNNER.sums(lambda block, number: (number,), source, Pieces([1, 2, 3]))
        assert len(gone) == 3
    finally:
        gc.enable()


@pytest.mark.parametrize("n_blocks", [1, 16, 17, 300])
def test_sums_over_any_number_of_blocks(n_blocks):
    numbers = np.random.default_rng(0).normal(size=(n_blocks, 4))
    total, count = RUNNER.sums(lambda row: (row, 1), Pieces(list(numbers)))
    np.testing.assert_allclose(total, numbers.sum(axis=0), rtol=1e-12, atol=1e-12)
    assert count == n_blocks


@every_loss
@with_intercept
@pytest.mark.parametrize("n_blocks", [1, 2, 7])
def test_losses_are_those_in_memory(name, fit_intercept, n_blocks):
    _, targets, weights = data(name)
    loss, sharded, rows = losses(name, targets, weights, fit_intercept, n_blocks)
    z, change = vectors(name, len(weights), 2)
    expected, found = loss.evaluate(z), sharded.evaluate(in_blocks(z, rows) + in_blocks(0.0 * z, rows))
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.offset == pytest.approx(expected.offset, rel=1e-9)
    np.testing.assert_allclose(joined(found.residual), expected.residual, atol=1e-11)
    shift = 0.0 if name != "multinomial" else np.mean(expected.intercept - found.intercept)
    np.testing.assert_allclose(found.intercept + shift, expected.intercept, atol=1e-8)
    moved = in_blocks(change, rows)
    assert sharded.curvature_along(found, moved) == pytest.approx(loss.curvature_along(expected, change))
    if np.isfinite(loss.curvature):
        assert sharded.curvature_bound(moved) == pytest.approx(loss.curvature_bound(change), rel=1e-12)
    image = loss.hessian(expected).apply(change)
    np.testing.assert_allclose(joined(sharded.hessian(found).apply(moved)), image, atol=1e-10)
    np.testing.assert_allclose(
        joined(sharded.hessian(found).diagonal), loss.hessian(expected).diagonal, atol=1e-10
    )


@pytest.mark.parametrize("name", ["logistic", "huber", "multinomial"])
@with_intercept
def test_second_derivatives_in_the_models_are_those_in_memory(name, fit_intercept):
    X, targets, weights = data(name)
    loss, sharded, rows = losses(name, targets, weights, fit_intercept, 4)
    design, blocks = designs(name, X, rows)
    (z,) = vectors(name, len(weights), 1)
    expected, found = loss.hessian(loss.evaluate(z)), sharded.hessian(sharded.evaluate(in_blocks(z, rows)))
    if LOSSES[name][1] is None:
        np.testing.assert_allclose(found.gram(blocks), expected.gram(design), atol=1e-10)
    else:
        assert found.gram(blocks) is expected.gram(design) is None
    some = np.sort(np.random.default_rng(3).choice(len(weights), 40, replace=False))
    places = Pieces([np.flatnonzero(np.isin(part, some)) for part in rows])
    sample = design.subset(some)
    for matrix, other in zip(
        found.output_grams(sample, places), expected.output_grams(sample, some), strict=True
    ):
        np.testing.assert_allclose(matrix, other, atol=1e-10)


def test_products_of_conjugate_gradients_are_one_pass_each():
    X, targets, weights = data("logistic")
    X += 5.0  # the intercept makes up for much
    loss, sharded, rows = losses("logistic", targets, weights, True, 4)
    design, blocks = designs("logistic", X, rows)
    blocks.runner = sharded.runner = counting = Counting()
    (z,) = vectors("logistic", len(weights), 1)
    found = sharded.hessian(sharded.evaluate(in_blocks(z, rows)))
    expected = loss.hessian(loss.evaluate(z))
    counting.names.clear()
    for x in np.random.default_rng(0).normal(size=(3, 6)):
        image = blocks.apply(x)
        np.testing.assert_allclose(
            blocks.adjoint(found.apply(image)), design.adjoint(expected.apply(design.apply(x))), atol=1e-12
        )
    assert counting.names == ["_adjoint"] * 4  # of these one for the means of the features
    # So are those of sums, and of others than products with this design, which take a pass more.
    twice = blocks.apply(x) + image / 2.0 - 0.5 * image
    np.testing.assert_allclose(joined(found.apply(twice)), expected.apply(design.apply(x)), atol=1e-12)
    assert "_intercept_slope" not in counting.names
    part, other = np.array([1, 4]), in_blocks(z, rows)
    image = blocks.restrict(part).apply(x[part])
    np.testing.assert_allclose(
        joined(found.apply(image)), expected.apply(design.restrict(part).apply(x[part])), atol=1e-12
    )
    mixed = image + blocks.apply(x) + other
    exact = design.restrict(part).apply(x[part]) + design.apply(x) + z
    np.testing.assert_allclose(joined(found.apply(mixed)), expected.apply(exact), atol=1e-12)
    assert "_intercept_slope" in counting.names


class Crossing(Here):
    """Notes how many numbers cross: what is computed of several blocks, or brought here."""

    def __init__(self):
        self.largest = self.n_sums = 0

    def submit(self, function, handles):
        self.largest, self.n_sums = max(self.largest, *map(_n_numbers, handles)), self.n_sums + 1
        return super().submit(function, handles)

    def gather(self, handles):
        self.largest = max(self.largest, *map(_n_numbers, handles))
        return super().gather(handles)


def _n_numbers(part):
    if isinstance(part, dict | list | tuple):
        return sum(map(_n_numbers, part.values() if isinstance(part, dict) else part))
    return np.size(part)


@pytest.mark.parametrize("few", [0, 1 << 18])
@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_vectors_stay_with_their_blocks(name, few, monkeypatch):
    """Neither where sums are brought here nor where a task adds them up."""
    monkeypatch.setattr("skfw.engine._shards._FEW_NUMBERS", few)
    X, targets, weights = data(name, 1_800)
    _, loss, rows = losses(name, targets, weights, True, 18)
    _, design = designs(name, X, rows)
    design.runner = loss.runner = crossing = Crossing()
    result = frank_wolfe(
        problem := Problem(loss, design, L2Ball(2.0)), corrector=best_corrector(problem), tolerance=1e-6
    )
    assert result.status == "converged"
    assert crossing.n_sums > 0
    assert crossing.largest < 100  # the samples of a block


def test_an_intercept_takes_few_passes():
    _, targets, weights = data("poisson", 400)
    loss, sharded, rows = losses("poisson", targets, weights, True, 4)
    sharded.runner = counting = Counting()
    (z,) = vectors("poisson", len(weights), 1)
    best = loss.evaluate(z).intercept
    sharded.evaluate(in_blocks(z, rows), best)
    counting.names.clear()
    found = sharded.evaluate(in_blocks(z, rows), best + 0.1)
    assert found.intercept == pytest.approx(best, abs=1e-12)
    assert counting.names == ["_evaluate"] * 4  # Newton's method alone takes five


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_the_slope_of_a_line_comes_with_its_length(scale):
    X, targets, weights = data("squared")
    rows = losses("squared", targets, weights, False, 5)[2]
    design, blocks = designs("squared", X, rows)
    change, residual = vectors("squared", len(weights), 2)
    change[rows[1]] = 0.0
    expected = design.size_and_slope(scale * change, residual)
    found = blocks.size_and_slope(in_blocks(scale * change, rows), in_blocks(residual, rows))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    nothing = in_blocks(0.0 * change, rows)
    assert blocks.size_and_slope(nothing, in_blocks(residual, rows)) == (0.0, 0.0)


def test_a_plane_that_cannot_be_balanced_bounds_nothing():
    _, targets, weights = data("logistic")
    _, sharded, rows = losses("logistic", targets, weights, True, 3)
    found = sharded._at(in_blocks(vectors("logistic", len(weights), 1)[0], rows), np.array([5.0]))
    assert found.slope[0] > 0.1
    aside = sharded._find_planes_aside(np.zeros(1))
    sharded._planes_aside = replace(aside, slopes=np.abs(aside.slopes))
    assert sharded._balanced(found).offset == -np.inf


@every_loss
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_planes_lie_below_the_loss_at_every_intercept(name, scale):
    """What is left of the sum of a residual would make a plane that is above it at a large intercept."""
    _, targets, weights = data(name)
    loss, sharded, rows = losses(name, targets, weights, True, 3)
    scale = min(scale, 3.0) if name == "poisson" else scale
    points = scale * vectors(name, len(weights), 6)
    evaluation = sharded.evaluate(in_blocks(points[0], rows))
    residual = joined(evaluation.residual)
    np.testing.assert_allclose(residual.sum(axis=0), 0.0, atol=1e-14 * np.abs(residual).sum())
    for z in points:
        least = loss.evaluate(z).value
        assert evaluation.offset + (residual * z).sum() <= least + 1e-12 * max(
            abs(evaluation.offset_size), 1.0
        )
    touching = evaluation.offset + (residual * points[0]).sum()
    assert touching == pytest.approx(evaluation.value, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["logistic", "multinomial"])
@pytest.mark.parametrize("n_blocks", [1, 5])
def test_designs_are_those_in_memory(kind, name, n_blocks):
    X, _, weights = data(name)
    X = sparse.csr_matrix(X) if kind == "sparse" else X
    rows = np.array_split(np.arange(len(weights)), n_blocks)
    design, sharded = designs(name, X, rows)
    rng = np.random.default_rng(2)
    x = rng.normal(size=design.zeros().shape)
    (residual,) = vectors(name, len(weights), 1)
    at = in_blocks(residual, rows)
    assert (sharded.shape, sharded.zeros().shape) == (design.shape, design.zeros().shape)
    np.testing.assert_allclose(joined(sharded.apply(x)), design.apply(x))
    np.testing.assert_allclose(sharded.adjoint(at), design.adjoint(residual), atol=1e-12)
    few = np.array([1, 4]), np.array([2.0, -1.0])
    np.testing.assert_allclose(joined(sharded.apply_sparse(*few)), design.apply_sparse(*few))
    pair = rng.normal(size=6), rng.normal(size=3)
    np.testing.assert_allclose(joined(sharded.apply_rank_one(*pair)), design.apply_rank_one(*pair))
    squares = in_blocks(residual**2, rows)
    np.testing.assert_allclose(sharded.squares(squares), design.squares(residual**2))
    np.testing.assert_allclose(sharded.gram(in_blocks(weights, rows)), design.gram(weights), atol=1e-14)
    np.testing.assert_allclose(sharded.squared_norm(in_blocks(weights, rows)), design.squared_norm(weights))
    np.testing.assert_allclose(sharded.adjoint_size(), design.adjoint_size())
    np.testing.assert_allclose(sharded.adjoint_error(2.0), design.adjoint_error(2.0))
    assert sharded.largest(at) == design.largest(residual)
    some = np.array([0, 3, 5])
    restricted = sharded.restrict(some)
    part = rng.normal(size=restricted.zeros().shape)
    np.testing.assert_allclose(joined(restricted.apply(part)), design.restrict(some).apply(part))
    np.testing.assert_allclose(restricted.adjoint_size(), design.restrict(some).adjoint_size())
    assert sharded.product_cost > 0.0
    assert sharded.gram_cost > 0.0


CONSTRAINTS = [L1Ball(0.9), L2Ball(0.8), Simplex(1.0), Box(-0.1, 0.2), NSupportBall(1.0, 2), NuclearBall(1.0)]


RUNS = [(name, ball) for name in LOSSES for ball in CONSTRAINTS if LOSSES[name][1] or ball != CONSTRAINTS[-1]]


@pytest.mark.parametrize("name, constraint", RUNS, ids=str)
@with_intercept
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_runs_are_those_in_memory(name, fit_intercept, constraint, kind):
    X, targets, weights = data(name)
    X = sparse.csr_matrix(X) if kind == "sparse" else X
    loss, sharded, rows = losses(name, targets, weights, fit_intercept, 4)
    problems = [
        Problem(each, design, constraint)
        for each, design in zip((loss, sharded), designs(name, X, rows), strict=True)
    ]
    tolerance = 1e-6 * problems[0].null.value
    expected, found = (
        frank_wolfe(
            problem,
            momentum=MOMENTA["adaptive"],
            corrector=best_corrector(problem),
            tolerance=tolerance,
            max_iter=200,
        )
        for problem in problems
    )
    assert (found.status, expected.status) == ("converged", "converged")
    assert found.lower_bound <= expected.objective + 1e-12
    assert expected.lower_bound <= found.objective + 1e-12
    assert found.objective == pytest.approx(expected.objective, abs=2.0 * tolerance)
    at = loss.evaluate(problems[0].data.apply(found.x))
    assert found.objective == pytest.approx(at.value, rel=1e-10)


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_starts_and_preconditioners_come_from_a_sample_that_is_brought_here(name):
    X, targets, weights = data(name, n_samples=6000)
    loss, sharded, rows = losses(name, targets, weights, True, 5)
    problems = [
        Problem(each, design, L2Ball(2.0))
        for each, design in zip((loss, sharded), designs(name, X, rows), strict=True)
    ]
    places, sample = problems[1].data.sample
    assert sample.shape == (750, 6)
    assert len(places.handles) == 5
    np.testing.assert_allclose(
        sample.apply(sample.zeros() + 1.0), problems[0].data.sample[1].apply(sample.zeros() + 1.0)
    )
    starts = [sample_start(problem, momentum=MOMENTA["adaptive"]) for problem in problems]
    np.testing.assert_allclose(starts[1].x, starts[0].x, atol=1e-8)
    runs = [
        frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-10, start=start)
        for problem, start in zip(problems, starts, strict=True)
    ]
    np.testing.assert_allclose(runs[1].x, runs[0].x, atol=1e-6)
    assert runs[1].n_iter == runs[0].n_iter


def test_a_sample_is_no_larger_than_what_may_cross(monkeypatch):
    monkeypatch.setattr("skfw.engine.data._sharded_design._LARGEST_SAMPLE", 6 * 600)
    X, _, _ = data("logistic", n_samples=6000)
    _, design = designs("logistic", X, np.array_split(np.arange(6000), 5))
    assert design.sample[1].shape[0] == 600
    monkeypatch.setattr("skfw.engine.data._sharded_design._LARGEST_SAMPLE", 6 * 500)
    _, design = designs("logistic", X, np.array_split(np.arange(6000), 5))
    assert design.sample is None


def test_a_sample_without_all_classes_makes_no_problem():
    X, targets, weights = data("multinomial", n_samples=6000)
    targets[1:] = np.minimum(targets[1:], 1)
    targets[0] = 2
    _, sharded, rows = losses("multinomial", targets, weights, True, 3)
    _, design = designs("multinomial", X, rows)
    problem = Problem(sharded, design, L2Ball(1.0))
    chosen = np.random.default_rng(0).choice(6000, 750, replace=False)
    assert 0 not in chosen
    assert problem.sample is None


def test_a_sample_without_events_makes_no_problem():
    X, _, weights = data("poisson", n_samples=6000)
    chosen = np.random.default_rng(0).choice(6000, 750, replace=False)
    targets = np.zeros(6000)
    targets[np.setdiff1d(np.arange(6000), chosen)[:20]] = 1.0
    _, sharded, rows = losses("poisson", targets, weights, True, 3)
    _, design = designs("poisson", X, rows)
    problem = Problem(sharded, design, L2Ball(1.0))
    assert problem.sample is None
    assert frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-6).status == "converged"


@pytest.mark.parametrize("name", ["logistic", "squared", "huber", "poisson", "multinomial"])
@pytest.mark.parametrize("guess", [-700.0, 0.0, 300.0])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_intercept_is_found_from_anywhere(name, guess, scale):
    """Where predictions are large nothing curves."""
    _, targets, weights = data(name)
    loss, sharded, rows = losses(name, targets, weights, True, 3)
    z = 200.0 + scale * vectors(name, len(weights), 1)[0]
    given = guess if name != "multinomial" else np.array([guess, 0.0, 0.0])
    expected, found = loss.evaluate(z), sharded.evaluate(in_blocks(z, rows), given)
    assert found.value == pytest.approx(expected.value, rel=1e-6)
    unprofiled = LOSSES[name][0](targets, weights, False).evaluate(z + found.intercept)
    assert found.value == pytest.approx(unprofiled.value, rel=1e-9)
    residual = joined(found.residual)
    assert found.offset + (residual * z).sum() <= expected.value * (1.0 + 1e-9)
    np.testing.assert_allclose(residual.sum(axis=0), 0.0, atol=1e-14 * np.abs(residual).sum())


def test_a_loss_that_falls_forever_has_no_best_intercept():
    weights = np.full(4, 0.25)
    _, sharded, rows = losses("logistic", np.ones(4), weights, True, 2)
    with pytest.raises(ValueError, match="no best intercept"):
        sharded.evaluate(in_blocks(np.arange(4.0), rows))


def test_sums_over_samples_are_added_pairwise():
    """A residual of several outputs would otherwise be summed row after row, and the plane with it."""
    n = 200_000
    _, sharded, rows = losses("several", np.full((n, 3), 0.1), np.full(n, 1.0 / n), True, 1)
    sorted_predictions = np.sort(np.random.default_rng(0).normal(size=(n, 3)), axis=0)
    evaluation = sharded.evaluate(in_blocks(sorted_predictions, rows))
    residual = joined(evaluation.residual)
    exact = [float(sum(map(Fraction, column.tolist()))) for column in residual.T]
    assert np.abs(exact).max() <= 4.0 * np.finfo(float).eps * np.abs(residual).sum()

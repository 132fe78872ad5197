"""Descent on the factors, against dense solutions of completion problems."""

import numpy as np
import pytest
from problems import dense_completion
from scipy import sparse

from skfw.engine import (
    ActiveAtoms,
    Adaptive,
    AveragePlane,
    BiasedSquaredLoss,
    FactorDescent,
    FeaturedEntries,
    FeatureMap,
    LogisticLoss,
    NoMomentum,
    NuclearBall,
    ObservedEntries,
    PoissonLoss,
    Problem,
    SquaredLoss,
    Weighted,
    WeightedNuclearBall,
    best_corrector,
    frank_wolfe,
)

# The second is large enough for the iterative oracle.
SHAPES = {"small": (30, 20), "large": (130, 150)}


def completion(shape, ordered=True, share=0.4, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.uniform(size=shape) < share)
    if not ordered:  # and some of them twice
        picked = rng.permutation(np.append(np.arange(len(rows)), np.arange(len(rows) // 5)))
        rows, columns = rows[picked], columns[picked]
    truth = rng.normal(size=(shape[0], 3)) @ rng.normal(size=(3, shape[1]))
    values = truth[rows, columns] + 0.3 * rng.normal(size=len(rows))
    weights = rng.uniform(0.5, 2.0, len(rows))
    entry_weights = [rng.uniform(0.5, 2.0, length) for length in shape]
    return ObservedEntries(rows, columns, shape), values, weights / weights.sum(), entry_weights


def dense_optimum(entries, values, weights, radius):
    """The optimum by a proximal method; repeated entries as one, and what they differ by added."""
    positions = entries.row_indices * entries.shape[1] + entries.column_indices
    distinct, which = np.unique(positions, return_inverse=True)
    totals = np.bincount(which, weights)
    means = np.bincount(which, weights * values) / totals
    optimum = dense_completion(entries.shape, *np.divmod(distinct, entries.shape[1]), means, totals, radius)
    return optimum + 0.5 * weights @ (values - means[which]) ** 2


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [NoMomentum(), Weighted(), Adaptive()], ids=lambda m: type(m).__name__)
def test_certified_optimum(shape, weighted, ordered, momentum):
    entries, values, weights, (row_weights, column_weights) = completion(SHAPES[shape], ordered)
    rows, columns = entries.row_indices, entries.column_indices
    radius = 0.6 * np.linalg.norm(values)
    ball, norm = NuclearBall(radius), 1.0
    if weighted:
        ball = WeightedNuclearBall(radius, row_weights, column_weights)
        norm = row_weights[rows] * column_weights[columns]
    optimum = dense_optimum(entries, values * norm, weights / norm**2, radius)
    loss = SquaredLoss(values, weights)
    problem = Problem(loss, entries, ball)
    null = problem.null.value
    feasible = []
    result = frank_wolfe(
        problem,
        momentum=momentum,
        corrector=best_corrector(problem),
        tolerance=1e-4 * null,
        max_iter=60,
        callback=lambda state: feasible.append(ball.norm(state.x) <= radius * (1 + 1e-12)) and None,
    )
    assert result.status == "converged"
    assert all(feasible)
    assert np.all(result.trace["lower_bound"] <= optimum + 1e-9 * null)
    assert np.all(result.trace["objective"] >= optimum - 1e-9 * null)
    assert np.diff(result.trace["objective"]).max() <= 0.0
    assert loss.evaluate(entries.apply(result.x)).value == pytest.approx(result.objective, rel=1e-12)
    plain = frank_wolfe(problem, max_iter=60)
    assert result.gap < 0.1 * plain.gap


@pytest.mark.parametrize("shape", SHAPES)
def test_single_precision_serves_until_the_gap_is_small(shape, monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._factor_descent._MANY_ENTRIES", 1)
    entries, values, weights, _ = completion(SHAPES[shape])
    loss, ball = SquaredLoss(values, weights), NuclearBall(0.6 * np.linalg.norm(values))
    optimum = dense_optimum(entries, values, weights, ball.radius)
    problem = Problem(loss, entries, ball)
    null = problem.null.value
    gaps, kinds, descend = [], [], FactorDescent._descend

    def spy(self, model, gap):
        gaps.append(gap / null)
        kinds.append(model.factors.dtype)
        return descend(self, model, gap)

    monkeypatch.setattr(FactorDescent, "_descend", spy)
    corrector = best_corrector(problem)
    result = frank_wolfe(problem, corrector=corrector, tolerance=1e-7 * null, max_iter=100)
    assert result.status == "converged"
    assert [kind == np.float32 for kind in kinds] == [gap > 1e-3 for gap in gaps]
    assert {np.dtype(np.float32), np.dtype(np.float64)} == set(kinds)
    assert result.predictions.dtype == result.x.left.dtype == np.float64
    assert ball.norm(result.x) <= ball.radius * (1.0 + 1e-12)
    assert np.all(result.trace["lower_bound"] <= optimum + 1e-9 * null)
    assert np.all(result.trace["objective"] >= optimum - 1e-9 * null)


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_numbers_beyond_single_precision(scale, monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._factor_descent._MANY_ENTRIES", 1)
    entries, values, weights, _ = completion((30, 20))
    values = scale * values
    loss, ball = SquaredLoss(values, weights), NuclearBall(0.6 * np.linalg.norm(values))
    problem = Problem(loss, entries, ball)
    tolerance = 1e-4 * problem.null.value
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=tolerance, max_iter=100)
    assert result.status == "converged"


def test_weights_beyond_single_precision(monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._factor_descent._MANY_ENTRIES", 1)
    entries, values, weights, (row_weights, column_weights) = completion((30, 20))
    row_weights[:3] = 1e-30
    loss, ball = SquaredLoss(values, weights), WeightedNuclearBall(5.0, row_weights, column_weights)
    problem = Problem(loss, entries, ball)
    result = frank_wolfe(problem, corrector=best_corrector(problem), max_iter=3)
    assert np.isfinite(result.objective)
    assert result.objective < problem.null.value


def test_rank_is_that_of_the_solution():
    entries, values, weights, _ = completion((60, 40), seed=1)
    ball, loss = NuclearBall(0.5 * np.linalg.norm(values)), SquaredLoss(values, weights)
    problem = Problem(loss, entries, ball)
    result = frank_wolfe(problem, corrector=best_corrector(problem), max_iter=40)
    plain = frank_wolfe(problem, max_iter=40)
    assert len(result.x) <= 10 < len(plain.x)


@pytest.mark.parametrize("penalty", [1e-4, 1e-2])
def test_with_biases(penalty):
    entries, values, weights, _ = completion((50, 40))
    loss = BiasedSquaredLoss(values + 2.0, weights, entries, penalty, penalty)
    ball = NuclearBall(20.0)
    problem = Problem(loss, entries, ball)
    null = problem.null.value
    results = [
        frank_wolfe(problem, corrector=corrector, tolerance=tolerance * null, max_iter=2000)
        for corrector, tolerance in ((best_corrector(problem), 1e-6), (None, 1e-2))
    ]
    assert [result.status for result in results] == ["converged"] * 2
    assert results[1].lower_bound <= results[0].objective <= results[1].objective
    assert results[0].lower_bound <= results[1].objective


def test_a_ball_that_does_not_bind():
    """Inside the ball the entries are fitted exactly, and there is nothing that the bound holds up."""
    entries, values, weights, _ = completion((20, 15), share=0.5)
    loss, ball = SquaredLoss(values, weights), NuclearBall(1e3 * np.linalg.norm(values))
    problem = Problem(loss, entries, ball)
    null = problem.null.value
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-3 * null, max_iter=200)
    assert result.status == "converged"
    assert result.objective <= 1e-3 * null


def test_notices_a_step_it_did_not_make(monkeypatch):
    entries, values, weights, _ = completion((30, 20))
    loss, ball = SquaredLoss(values, weights), NuclearBall(0.6 * np.linalg.norm(values))
    models, enlarge = [], FactorDescent._enlarge

    def spy(self, model, *others):
        models.append(model)
        return enlarge(self, model, *others)

    monkeypatch.setattr(FactorDescent, "_enlarge", spy)
    problem = Problem(loss, entries, ball)
    corrector = best_corrector(problem)
    frank_wolfe(problem, corrector=corrector, max_iter=3)
    # The same corrector again, from elsewhere: what it remembers is of no use.
    other = frank_wolfe(problem, corrector=corrector, max_iter=3)
    assert len(models) == 6
    for model in models:
        predictions = entries.products(model.factors[:30], model.factors[30:])
        np.testing.assert_allclose(predictions, model.predictions, atol=1e-9)
    assert loss.evaluate(entries.apply(other.x)).value == pytest.approx(other.objective, rel=1e-12)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("n_entries", [1, 10**9], ids=["single", "double"])
def test_every_iterate_is_in_the_ball(n_entries, features, monkeypatch):
    """In single precision factors leave it by rounding, and are taken back."""
    for name, value in {"_MANY_ENTRIES": n_entries, "_COARSE": 0.0}.items():
        monkeypatch.setattr(f"skfw.engine.correctors._factor_descent.{name}", value)
    entries, values, weights, _ = completion((130, 150), seed=2)
    ball = NuclearBall(0.6 * np.linalg.norm(values))
    data = with_features(entries) if features else entries
    problem, norms = Problem(SquaredLoss(values, weights), data, ball), []
    frank_wolfe(
        problem,
        momentum=Adaptive(),
        corrector=best_corrector(problem),
        max_iter=40,
        callback=lambda state: norms.append(ball.norm(state.x)),
    )
    assert max(norms) <= ball.radius * (1 + 1e-12)
    assert max(norms) >= 0.99 * ball.radius


def test_an_optimum_inside_of_the_ball():
    """A matrix of rank 3, all of it observed: its norm is below the radius, and the factors find it there."""
    rng = np.random.default_rng(0)
    entries = ObservedEntries(np.repeat(np.arange(30), 20), np.tile(np.arange(20), 30), (30, 20))
    truth = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 20))
    norm = np.linalg.svd(truth, compute_uv=False).sum()
    problem = Problem(SquaredLoss(truth.ravel(), np.full(600, 1 / 600)), entries, NuclearBall(1.5 * norm))
    corrector, point = best_corrector(problem), problem.null
    for _ in range(5):
        newest = problem.minimise(AveragePlane.tangent(point.evaluation))
        point = corrector.improve(point, newest, point.value)
    assert point.value <= 1e-18 * problem.null.value
    assert problem.constraint.norm(point.x) == pytest.approx(norm, rel=1e-6)


def with_features(entries, scale=1.0):
    """Return the same entries, of a matrix whose rows and columns have features; the first most of them."""
    rng, maps = np.random.default_rng(0), []
    for length in entries.shape:
        features = rng.normal(size=(length, 4)) * (rng.uniform(size=(length, 4)) < 0.5)
        features[:, 0] = rng.uniform(size=length) < 0.9
        maps.append(FeatureMap(sparse.csr_matrix(scale * features)))
    return FeaturedEntries(entries, *maps)


@pytest.mark.parametrize("n_entries", [1, 10**9], ids=["single", "double"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_with_features_the_optimum_is_the_same_as_without_corrector(shape, biased, n_entries, monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._factor_descent._MANY_ENTRIES", n_entries)
    entries, values, weights, _ = completion(SHAPES[shape], ordered=False)
    loss = SquaredLoss(values, weights)
    if biased:
        loss = BiasedSquaredLoss(values + 2.0, weights, entries, 1e-3, 1e-3)
    ball = NuclearBall(0.2 * np.linalg.norm(values))
    problem, norms = Problem(loss, with_features(entries), ball), []
    null = problem.null.value
    result = frank_wolfe(
        problem,
        corrector=best_corrector(problem),
        tolerance=1e-5 * null,
        max_iter=40,
        callback=lambda state: norms.append(ball.norm(state.x)),
    )
    assert result.status == "converged"
    assert max(norms) <= ball.radius * (1 + 1e-12)
    assert loss.evaluate(problem.data.apply(result.x)).value == pytest.approx(result.objective, rel=1e-9)
    plain = frank_wolfe(problem, max_iter=100)
    assert plain.lower_bound <= result.objective <= plain.objective
    assert result.lower_bound <= plain.objective
    assert result.gap < 0.01 * plain.gap


@pytest.mark.parametrize("seed", range(3))
def test_steps_to_atoms_after_a_descent_reduce_the_gap(seed, monkeypatch):
    """Where the loss is curved most, slopes are large although there is next to nothing to win."""
    gaps = []
    for most in (0, 3):
        monkeypatch.setattr("skfw.engine.correctors._factor_descent._MAX_ATOMS", most)
        entries, values, weights, _ = completion((60, 50), seed=seed)
        loss = BiasedSquaredLoss(values + 2.0, weights, entries, 1e-3, 1e-3)
        problem = Problem(loss, with_features(entries), NuclearBall(5.0))
        result = frank_wolfe(problem, corrector=best_corrector(problem), max_iter=1)
        gaps.append(result.gap)
    assert gaps[1] < 0.7 * gaps[0]


def test_atoms_found_in_single_precision_have_vectors_of_norm_one(monkeypatch):
    """Longer ones would lead out of the ball."""
    for name, value in {"_MANY_ENTRIES": 1, "_COARSE": 0.0}.items():
        monkeypatch.setattr(f"skfw.engine.correctors._factor_descent.{name}", value)
    norms, towards = [], FactorDescent._towards

    def spy(self, model, left, right, shares):
        if len(shares) == 1:
            norms.extend(np.linalg.norm(side) for side in (left, right))
        return towards(self, model, left, right, shares)

    monkeypatch.setattr(FactorDescent, "_towards", spy)
    entries, values, weights, _ = completion((60, 50))
    problem = Problem(SquaredLoss(values, weights), with_features(entries), NuclearBall(5.0))
    frank_wolfe(problem, corrector=best_corrector(problem), max_iter=3)
    np.testing.assert_allclose(norms, 1.0, rtol=0.0, atol=1e-15)
    assert norms


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_features_of_another_size_than_ids(scale):
    """A few of them make most of the second derivative, and must not hold up all else."""
    entries, values, weights, _ = completion((60, 50))
    problem = Problem(SquaredLoss(values, weights), with_features(entries, scale), NuclearBall(5.0))
    null = problem.null.value
    result = frank_wolfe(
        problem, momentum=Adaptive(), corrector=best_corrector(problem), tolerance=1e-2 * null, max_iter=40
    )
    assert result.status == "converged"


@pytest.mark.parametrize("features", [False, True])
def test_a_loss_that_is_not_quadratic(features):
    """Steps come from the quadratic upper bound."""
    entries, values, weights, _ = completion((40, 30))
    loss, ball = LogisticLoss(np.sign(values), weights), NuclearBall(40.0)
    assert not loss.is_quadratic
    problem = Problem(loss, with_features(entries) if features else entries, ball)
    corrector, null = best_corrector(problem), problem.null.value
    assert isinstance(corrector, FactorDescent)
    result = frank_wolfe(problem, corrector=corrector, tolerance=1e-4 * null, max_iter=60)
    assert result.status == "converged"
    assert np.diff(result.trace["objective"]).max() <= 0.0
    plain = frank_wolfe(problem, max_iter=60)
    assert max(plain.lower_bound, result.lower_bound) <= min(plain.objective, result.objective)
    assert result.gap < 0.1 * plain.gap


@pytest.mark.parametrize("features", [False, True])
def test_without_a_quadratic_upper_bound_atoms_are_weighed_instead(features):
    entries, values, weights, _ = completion((30, 20))
    loss = PoissonLoss(np.floor(np.exp(np.clip(values, -2.0, 2.0))), weights)
    problem = Problem(loss, with_features(entries) if features else entries, NuclearBall(10.0))
    corrector = best_corrector(problem)
    assert isinstance(corrector, ActiveAtoms)
    result = frank_wolfe(problem, corrector=corrector, max_iter=40)
    plain = frank_wolfe(problem, max_iter=40)
    assert max(plain.lower_bound, result.lower_bound) <= result.objective <= plain.objective
    assert result.gap < 0.5 * plain.gap


@pytest.mark.parametrize("scale, kind", [(1e-12, np.float32), (1e12, np.float64), (1e40, np.float64)])
def test_features_beyond_single_precision(scale, kind, monkeypatch):
    """Tiny ones are nothing beside the ids."""
    monkeypatch.setattr("skfw.engine.correctors._factor_descent._MANY_ENTRIES", 1)
    kinds, descend = [], FactorDescent._descend

    def spy(self, model, gap):
        kinds.append(model.factors.dtype)
        return descend(self, model, gap)

    monkeypatch.setattr(FactorDescent, "_descend", spy)
    entries, values, weights, _ = completion((30, 20))
    problem = Problem(SquaredLoss(values, weights), with_features(entries, scale), NuclearBall(5.0))
    result = frank_wolfe(problem, corrector=best_corrector(problem), max_iter=3)
    assert result.objective < problem.null.value
    assert kinds[0] == kind


@pytest.mark.parametrize("scale", [1e-140, 1e-100, 1e100])
def test_the_corrector_works_at_every_scale(scale):
    entries, values, weights, _ = completion((30, 20))
    ball = NuclearBall(0.6 * scale * np.linalg.norm(values))
    problem = Problem(SquaredLoss(scale * values, weights), entries, ball)
    tolerance = 1e-6 * problem.null.value
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=tolerance, max_iter=6)
    assert result.status == "converged"

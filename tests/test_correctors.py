"""Correctors: what they reach beyond the guarantees that the whole grid is tested for."""

import numpy as np
import pytest
from problems import PROBLEMS, problem
from scipy import sparse

from skfw.engine import (
    ActiveAtoms,
    Adaptive,
    DesignMatrix,
    Directional,
    EuclideanBall,
    L1Ball,
    L2Ball,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    NoMomentum,
    NSupportBall,
    Simplex,
    best_corrector,
    frank_wolfe,
    sample_start,
)


def solve(loss, design, constraint, corrector=None, **options):
    options = {"momentum": Adaptive(), "step_rule": Directional(), "max_iter": 60, **options}
    corrector = corrector or best_corrector(loss, design, constraint)
    return frank_wolfe(loss, design, constraint, corrector=corrector, **options)


@pytest.mark.parametrize("names", PROBLEMS, ids=lambda names: "-".join(map(str, names)))
def test_a_certified_optimum_in_few_iterations(names):
    p = problem(*names)
    result = solve(p.loss, p.linear_map, p.constraint, tolerance=1e-8)
    assert result.status == "converged"
    assert result.n_iter <= 30
    assert result.objective == pytest.approx(p.optimum, abs=2e-8)


def classification(n_samples, n_features, density, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random(n_samples, n_features, density, format="csr", random_state=rng)
    scores = X @ rng.normal(size=(n_features, n_classes)) * 3.0 + rng.gumbel(size=(n_samples, n_classes))
    weights = rng.uniform(0.5, 2.0, n_samples)
    return X, scores.argmax(axis=1), weights / weights.sum()


def losses(labels, weights, intercept):
    yield LogisticLoss(np.where(labels == 1, 1.0, -1.0), weights, intercept)
    yield MultinomialLoss(labels, 3, weights, intercept)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("multiclass", [False, True], ids=["binary", "multiclass"])
@pytest.mark.parametrize(
    "constraint", [L1Ball(30.0), L1Ball(1e4), Simplex(20.0), L2Ball(5.0), L2Ball(1e3)], ids=str
)
@pytest.mark.parametrize("shape", [(300, 40), (120, 400), (6000, 12)], ids=["tall", "wide", "sampled"])
def test_shapes(shape, constraint, multiclass, intercept, dense):
    """Wide and tall, sparse and dense, with the set's boundary reached or far away."""
    X, labels, weights = classification(*shape, 0.2, n_classes=3)
    loss = list(losses(labels, weights, intercept))[multiclass]
    design = DesignMatrix(X.toarray() if dense else X, 3 if multiclass else None)
    result = solve(loss, design, constraint, tolerance=1e-6, max_iter=100)
    assert result.status == "converged"
    assert np.diff(result.trace["objective"]).max(initial=0.0) <= 1e-15
    if isinstance(constraint, Simplex):
        assert result.x.min() >= 0.0
        assert result.x.sum() == pytest.approx(constraint.radius, rel=1e-12)
    else:
        assert constraint.norm(result.x) <= constraint.radius * (1 + 1e-12)
    # The predictions that were updated on the way are those of the model.
    assert loss.evaluate(design.apply(result.x)).value == pytest.approx(result.objective, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("constraint", [L1Ball(20.0), L2Ball(3.0)], ids=str)
def test_both_ways_to_solve_the_model_agree(constraint, monkeypatch):
    X, labels, weights = classification(400, 30, 0.3)
    for loss in (LogisticLoss(2.0 * labels - 1.0, weights, intercept) for intercept in (False, True)):
        found = []
        for products in (0.0, np.inf):
            monkeypatch.setattr("skfw.engine._correctors._GRAM_PRODUCTS", products)
            found.append(solve(loss, DesignMatrix(X), constraint, tolerance=1e-10))
        assert found[0].objective == pytest.approx(found[1].objective, abs=1e-10)
        np.testing.assert_allclose(found[0].x, found[1].x, atol=1e-3)


def test_an_inactive_ball_gives_the_unconstrained_optimum():
    X, labels, weights = classification(500, 5, 1.0)
    loss, design = LogisticLoss(2.0 * labels - 1.0, weights, True), DesignMatrix(X)
    for ball in (L1Ball(1e3), L2Ball(1e3)):
        result = solve(loss, design, ball, tolerance=1e-8)
        assert result.status == "converged"
        assert np.abs(design.adjoint(loss.evaluate(result.predictions).residual)).max() < 1e-8


def test_from_a_bad_start_on_the_sphere():
    """The loss falls inwards from there, and steeper along the sphere."""
    X, labels, weights = classification(500, 8, 1.0)
    loss, design = LogisticLoss(2.0 * labels - 1.0, weights, False), DesignMatrix(X)
    cold = solve(loss, design, L2Ball(50.0), tolerance=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(5):
        start = rng.normal(size=8)
        start *= 50.0 / np.linalg.norm(start)
        result = solve(loss, design, L2Ball(50.0), tolerance=1e-9, start=start)
        assert result.objective == pytest.approx(cold.objective, abs=1e-9)


def test_atoms_lose_their_weight_and_are_dropped():
    p = problem("logistic", "n_support", True)
    corrector = ActiveAtoms(p.loss, p.linear_map)
    result = solve(p.loss, p.linear_map, p.constraint, corrector, tolerance=1e-9)
    assert 2 <= len(corrector._atoms) < result.n_iter


def test_there_are_no_more_atoms_than_dimensions():
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(30, 3)) * [1.0, 30.0, 1e3], rng.choice([-1.0, 1.0], 30)
    loss, design = LogisticLoss(signs, np.full(30, 1 / 30)), DesignMatrix(X)
    corrector, n_atoms = ActiveAtoms(loss, design), []
    result = solve(
        loss,
        design,
        LInfBall(10.0),
        corrector,
        momentum=NoMomentum(),
        max_iter=100,
        callback=lambda state: n_atoms.append(len(corrector._atoms)),
    )
    assert 2 <= max(n_atoms) <= 5
    assert result.gap <= 1e-6


@pytest.mark.parametrize("ball", [NSupportBall(1e8, 2), LInfBall(1e8)], ids=str)
def test_objective_is_that_of_the_iterate_even_where_atoms_are_huge(ball):
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(40, 5)), rng.choice([-1.0, 1.0], 40)
    loss, design = LogisticLoss(signs, np.full(40, 1 / 40), True), DesignMatrix(X)
    result = solve(loss, design, ball, max_iter=30)
    assert loss.evaluate(X @ result.x).value == pytest.approx(result.objective, rel=1e-12)


def test_nothing_to_correct():
    """No feature tells anything: the gradient is zero, and there are no active coordinates."""
    loss = LogisticLoss(np.array([1.0, -1.0, 1.0, -1.0]), np.full(4, 0.25), True)
    result = solve(loss, DesignMatrix(np.zeros((4, 2))), L1Ball(1.0), tolerance=0.0, max_iter=1000)
    assert result.objective == pytest.approx(np.log(2.0))
    assert result.status == "stalled"
    assert 20 <= result.n_iter <= 200


def test_corrector_notices_a_step_it_did_not_make():
    p = problem("logistic", "linf", True)
    corrector = ActiveAtoms(p.loss, p.linear_map)
    result = solve(p.loss, p.linear_map, p.constraint, corrector, momentum=NoMomentum(), max_iter=20)
    assert result.objective == pytest.approx(p.optimum, abs=1e-9)


def test_sample_start():
    X, labels, weights = classification(9000, 10, 0.5)
    loss, design = LogisticLoss(2.0 * labels - 1.0, weights, True), DesignMatrix(X)
    null = loss.evaluate(np.zeros(9000)).value
    for constraint in (L1Ball(10.0), L2Ball(5.0)):
        start = sample_start(loss, design, constraint, momentum=Adaptive(), null=null)
        assert constraint.norm(start) <= constraint.radius * (1 + 1e-12)
        cold = solve(loss, design, constraint, tolerance=1e-6)
        warm = solve(loss, design, constraint, tolerance=1e-6, start=start)
        assert warm.trace["gap"][0] < 0.2 * cold.trace["gap"][0]
        assert warm.n_iter < cold.n_iter
        # A start that is no better than zero is of no use.
        assert sample_start(loss, design, constraint, null=0.0) is None
    few = DesignMatrix(X[:1000])
    assert sample_start(loss.subset(np.arange(1000)), few, L1Ball(1.0), null=null) is None


def test_many_features_are_not_factored():
    """A matrix of all features squared is out of the question; products and a diagonal are enough."""
    X, labels, weights = classification(200, 20_000, 0.002)
    loss, design = LogisticLoss(2.0 * labels - 1.0, weights, True), DesignMatrix(X)
    result = solve(loss, design, L2Ball(5.0), EuclideanBall(loss, design, 5.0), tolerance=1e-6)
    assert result.status == "converged"

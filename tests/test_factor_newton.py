"""Newton's method on factors: matrices of coefficients in nuclear-norm balls."""

import numpy as np
import pytest
from problems import nuclear_optimum
from scipy import sparse
from scipy.special import logsumexp, softmax

from skfw.engine import (
    ActiveAtoms,
    Adaptive,
    AveragePlane,
    DenseDesign,
    FactorNewton,
    MultinomialLoss,
    NuclearBall,
    Problem,
    SeveralTargets,
    SquaredLoss,
    WeightedNuclearBall,
    best_corrector,
    design_matrix,
    frank_wolfe,
)
from skfw.engine.correctors._factor_newton import _shrunk

SHAPES = {"tall": (60, 5), "wide": (15, 25), "deficient": (40, 12)}


def features(shape, seed=0):
    n_samples, n_features = SHAPES[shape]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) * rng.uniform(0.5, 2.0, n_features) + rng.normal(
        size=n_features
    )
    X[rng.random(X.shape) < 0.3] = 0.0
    if shape == "deficient":
        X[:, -4:] = X[:, :4] @ rng.normal(size=(4, 4))
        X[:, 4] = 0.0
    weights = rng.uniform(0.5, 2.0, n_samples)
    return X, weights / weights.sum()


def targets(X, n_targets=4):
    """The first one is zero, and all others depend on two combinations of the features."""
    rng = np.random.default_rng(1)
    scores = X @ rng.normal(size=(X.shape[1], 2)) @ rng.normal(size=(2, n_targets))
    scores = 2.0 * scores / scores.std() + rng.normal(size=scores.shape)
    scores[:, 0] = 0.0
    return scores


def labels(X):
    classes = (targets(X) + np.random.default_rng(2).gumbel(size=(len(X), 4))).argmax(axis=1)
    classes[:4] = np.arange(4)  # each occurs
    return classes


def make_loss(name, X, weights, intercept):
    if name == "softmax":
        return MultinomialLoss(labels(X), 4, weights, intercept)
    return SeveralTargets(tuple(SquaredLoss(column, weights, intercept) for column in targets(X).T))


def reference(name, X, weights, intercept, radius, scale=1.0):
    """Return the optimum by dense projected gradients; with a `scale`, of the matrix divided by it."""
    if name == "squared":
        Y = targets(X)
        if intercept:
            X, Y = X - weights @ X, Y - weights @ Y

        def value_and_gradient(matrix):
            errors = X @ (scale * matrix) - Y
            share = weights[:, np.newaxis] / Y.shape[1]
            return 0.5 * np.sum(share * errors**2), scale * (X.T @ (share * errors))

        curvature = 1.0 / Y.shape[1]
    else:
        classes, centred, curvature = labels(X), X - weights @ X if intercept else X, 0.5
        onehot, b = np.eye(4)[classes], np.zeros(4)

        def value_and_gradient(matrix):
            z = centred @ (scale * matrix)
            for _ in range(50 * intercept):  # Newton's method in the intercepts
                slope = weights @ (softmax(z + b, axis=1) - onehot)
                if np.abs(slope).max() < 1e-15:
                    break
                p = softmax(z + b, axis=1)
                hessian = np.diag(weights @ p) - (weights[:, np.newaxis] * p).T @ p + 0.25
                b[:] -= np.linalg.solve(hessian, slope)
            residual = weights[:, np.newaxis] * (softmax(z + b, axis=1) - onehot)
            value = weights @ (logsumexp(z + b, axis=1) - (z + b)[np.arange(len(z)), classes])
            return value, scale * (centred.T @ residual)

        X = centred
    steepest = curvature * np.linalg.norm(np.sqrt(weights)[:, np.newaxis] * X, 2) ** 2 * np.max(scale) ** 2
    return nuclear_optimum(value_and_gradient, steepest, (X.shape[1], 4), radius)


def solve(p, **options):
    options = {"momentum": Adaptive(), "corrector": best_corrector(p), "max_iter": 60, **options}
    return frank_wolfe(p, **options)


def improve(corrector, point):
    newest = corrector.problem.minimise(AveragePlane.tangent(point.evaluation))
    with np.errstate(all="ignore"):  # as the solver does
        return corrector.improve(point, newest, point.value - newest.bound)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("radius", [0.2, 1.5])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["squared", "softmax"])
def test_the_optimum_is_that_of_projected_gradients(name, shape, radius, intercept, kind):
    X, weights = features(shape)
    loss = make_loss(name, X, weights, intercept)
    p = Problem(loss, design_matrix(kind(X), 4), NuclearBall(radius))
    assert isinstance(best_corrector(p), FactorNewton)
    result = solve(p, tolerance=1e-9 * p.null.value)
    assert result.status == "converged"
    assert result.n_iter <= 15
    optimum = reference(name, X, weights, intercept, radius)
    assert result.lower_bound <= optimum * (1 + 1e-12)
    assert result.objective == pytest.approx(optimum, rel=1e-8)
    assert NuclearBall(radius).norm(result.x) <= radius * (1 + 1e-12)
    assert np.diff(result.trace["objective"]).max() <= 1e-15
    assert loss.evaluate(design_matrix(X, 4).apply(result.x)).value == pytest.approx(
        result.objective, rel=1e-12
    )
    if name == "squared":
        assert np.abs(result.x[:, 0]).max() <= 1e-6 * np.abs(result.x).max()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [50.0, 1e4])
def test_a_ball_that_does_not_bind(shape, radius, intercept):
    """The optimum is that of least squares, inside the ball; that of the first target is zero."""
    X, weights = features(shape)
    p = Problem(make_loss("squared", X, weights, intercept), design_matrix(X, 4), NuclearBall(radius))
    result = solve(p, tolerance=1e-7 * p.null.value)
    assert result.status == "converged"
    Y, roots = targets(X), np.sqrt(weights)[:, np.newaxis]
    if intercept:
        X, Y = X - weights @ X, Y - weights @ Y
    best = np.linalg.lstsq(roots * X, roots * Y, rcond=None)[0]
    assert NuclearBall(radius).norm(best) < radius
    least = 0.5 * np.mean(np.sum((roots * (X @ best - Y)) ** 2, axis=0))
    assert result.lower_bound <= least + 1e-12
    assert result.objective == pytest.approx(least, abs=1e-7 * p.null.value)


@pytest.mark.parametrize("name", ["squared", "softmax"])
@pytest.mark.parametrize("weighted", ["rows", "columns", "both"])
def test_weights_of_rows_and_columns(name, weighted):
    X, weights = features("deficient")
    row_weights = np.geomspace(0.3, 3.0, 12) if weighted != "columns" else np.ones(12)
    column_weights = np.geomspace(2.0, 0.5, 4) if weighted != "rows" else np.ones(4)
    ball = WeightedNuclearBall(0.8, row_weights, column_weights)
    p = Problem(make_loss(name, X, weights, True), design_matrix(X, 4), ball)
    result = solve(p, tolerance=1e-9 * p.null.value)
    assert result.status == "converged"
    optimum = reference(name, X, weights, True, 0.8, 1.0 / np.outer(row_weights, column_weights))
    assert result.lower_bound <= optimum * (1 + 1e-12)
    assert result.objective == pytest.approx(optimum, rel=1e-8)
    assert ball.norm(result.x) <= 0.8 * (1 + 1e-12)


@pytest.mark.parametrize("name", ["squared", "softmax"])
def test_matrices_and_products_agree(name, monkeypatch):
    X, weights = features("tall")
    p = Problem(make_loss(name, X, weights, True), design_matrix(X, 4), NuclearBall(1.5))
    found = []
    for products in (0.0, np.inf):
        monkeypatch.setattr("skfw.engine.correctors._factor_newton.GRAM_PRODUCTS", products)
        found.append(solve(p, tolerance=1e-11 * p.null.value))
    assert found[0].status == found[1].status == "converged"
    assert found[0].n_iter != found[1].n_iter or not np.array_equal(found[0].x, found[1].x)
    np.testing.assert_allclose(found[0].x, found[1].x, atol=1e-4)


def test_a_sample_stands_in_for_all_samples():
    """Its matrix is scaled to theirs, and saves about as many products."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(40, 40)) * 0.9 ** np.arange(40)[:, np.newaxis]
    X = rng.normal(size=(30_000, 40)) @ mixing
    Y = X @ rng.normal(size=(40, 3)) + 10.0 * rng.normal(size=(30_000, 3))
    weights = np.full(len(X), 1.0 / len(X))
    loss = SeveralTargets(tuple(SquaredLoss(column, weights, True) for column in Y.T))
    products = []
    for gram_cost in (0.0, 1.0, np.inf):
        design = Counting(X, 3, gram_cost)
        p = Problem(loss, design, NuclearBall(10.0))
        assert solve(p, tolerance=1e-6 * p.null.value).status == "converged"
        products.append(design.products)
    assert products[1] <= 1.3 * products[0]
    assert products[2] > 1.5 * products[0]


class Counting(DenseDesign):
    """Counts products; says what a matrix of all samples costs, or that there is no matrix to be had."""

    def __init__(self, X, n_outputs, gram_cost):
        super().__init__(X, n_outputs)
        self.products, self._gram_cost = 0, gram_cost

    def apply(self, x):
        self.products += 1
        return super().apply(x)

    @property
    def gram_cost(self):
        return self._gram_cost

    @property
    def sample(self):
        return super().sample if self._gram_cost < np.inf else None


@pytest.mark.parametrize("name", ["squared", "softmax"])
def test_corrected_points_are_in_the_ball_and_no_worse(name):
    X, weights = features("wide")
    p = Problem(make_loss(name, X, weights, True), design_matrix(X, 4), NuclearBall(1.5))
    corrector, point = best_corrector(p), p.null
    for _ in range(4):
        previous, point = point, improve(corrector, point)
        assert point.value <= previous.value
        assert NuclearBall(1.5).norm(point.x) <= 1.5 * (1 + 1e-12)
        np.testing.assert_allclose(point.predictions, p.data.apply(point.x), atol=1e-12)
    assert point.value < 0.9 * p.null.value


def test_orthogonal_features_need_one_step():
    """The projected gradient step is the solution then: singular values of the targets, made smaller."""
    rng = np.random.default_rng(0)
    X = np.sqrt(50) * np.linalg.qr(rng.normal(size=(50, 8)))[0]
    Y = X @ rng.normal(size=(8, 5))
    loss = SeveralTargets(tuple(SquaredLoss(column, np.full(50, 0.02)) for column in Y.T))
    left, values, right = np.linalg.svd(X.T @ Y / 50, full_matrices=False)
    p = Problem(loss, design_matrix(X, 5), NuclearBall(float(values[:2].sum() - 2.0 * values[2])))
    point = improve(best_corrector(p), p.null)
    shrunk = np.r_[values[:2] - values[2], 0.0, 0.0, 0.0]
    np.testing.assert_allclose(point.x, (left * shrunk) @ right, atol=1e-9)


def test_a_start_on_the_sphere_where_the_loss_falls_inwards():
    """And steeper along the sphere: the solution is on it, far away."""
    X, weights = features("tall")
    p = Problem(make_loss("squared", X, weights, True), design_matrix(X, 4), NuclearBall(1.5))
    optimum = reference("squared", X, weights, True, 1.5)
    rng = np.random.default_rng(0)
    for _ in range(5):
        start = rng.normal(size=(5, 4))
        start = p.at(start * 1.5 / NuclearBall(1.5).norm(start))
        result = solve(p, tolerance=1e-9 * p.null.value, start=start)
        assert result.status == "converged"
        assert result.objective == pytest.approx(optimum, rel=1e-8)


def test_reduced_rank_regression_in_few_iterations():
    """Weights of atoms, one more in each iteration, take hundreds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 30))
    Y = X @ rng.normal(size=(30, 3)) @ rng.normal(size=(3, 25)) / 4.0 + 3.0 * rng.normal(size=(80, 25))
    weights = np.full(80, 1 / 80)
    loss = SeveralTargets(tuple(SquaredLoss(column, weights, True) for column in Y.T))
    p = Problem(loss, design_matrix(X, 25), NuclearBall(25.0))
    result = solve(p, tolerance=1e-6 * p.null.value)
    assert result.status == "converged"
    assert result.n_iter <= 10
    atoms = solve(p, tolerance=1e-6 * p.null.value, corrector=ActiveAtoms(p), max_iter=result.n_iter)
    assert atoms.gap > 1e4 * result.gap


@pytest.mark.parametrize("feature_scale", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("target_scale", [1e-100, 1e100])
@pytest.mark.parametrize("radius", [1.5, 1e3])
def test_scales(feature_scale, target_scale, radius):
    """Warnings are errors here."""
    X, weights = features("tall")
    loss = SeveralTargets(tuple(SquaredLoss(target_scale * y, weights, True) for y in targets(X).T))
    ball = NuclearBall(radius * (target_scale / feature_scale))
    p = Problem(loss, design_matrix(feature_scale * X, 4), ball)
    result = solve(p, tolerance=1e-7 * p.null.value)
    assert result.status == "converged"
    assert ball.norm(result.x) <= ball.radius * (1 + 1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_scales_of_features_of_classes(scale):
    X, weights = features("tall")
    p = Problem(make_loss("softmax", X, weights, True), design_matrix(scale * X, 4), NuclearBall(1.5 / scale))
    assert solve(p, tolerance=1e-8).status == "converged"


@pytest.mark.parametrize("radius", [1e-120, 1e-20, 1e120])
def test_radii_far_from_any_sense(radius):
    X, weights = features("tall")
    p = Problem(make_loss("softmax", X, weights, False), design_matrix(X, 4), NuclearBall(radius))
    result = solve(p)
    assert result.lower_bound <= result.objective <= p.null.value
    assert NuclearBall(radius).norm(result.x) <= radius * (1 + 1e-12)


def test_numbers_that_are_not_finite_lead_nowhere():
    class Broken(MultinomialLoss):
        def hessian(self, evaluation):
            hessian = super().hessian(evaluation)
            object.__setattr__(hessian, "output_grams", lambda design, rows: [np.full((5, 5), np.nan)])
            return hessian

    X, weights = features("tall")
    p = Problem(Broken(labels(X), 4, weights, True), design_matrix(X, 4), NuclearBall(1.5))
    assert improve(best_corrector(p), p.null) is p.null
    assert solve(p, max_iter=5).objective < p.null.value  # by steps without it


def test_nothing_to_win():
    X, weights = features("tall")
    zero = SeveralTargets(tuple(SquaredLoss(np.zeros(len(X)), weights, True) for _ in range(4)))
    p = Problem(zero, design_matrix(X, 4), NuclearBall(1.0))
    assert improve(best_corrector(p), p.null) is p.null
    useless = Problem(make_loss("squared", X, weights, True), design_matrix(0.0 * X, 4), NuclearBall(1.0))
    assert improve(best_corrector(useless), useless.null) is useless.null


def test_huge_singular_values_are_shrunk():
    np.testing.assert_array_equal(_shrunk(np.array([1e308, 1e308, 1.0])), [0.5, 0.5, 0.0])
    np.testing.assert_array_equal(_shrunk(np.array([1.7e308] * 4)), np.full(4, 0.25))
    np.testing.assert_allclose(_shrunk(np.array([0.9, 0.5, 0.1])), [0.7, 0.3, 0.0])

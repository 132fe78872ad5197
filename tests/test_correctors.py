"""Correctors: what they reach beyond the guarantees that the whole grid is tested for."""

import numpy as np
import pytest
from problems import KNOWN_PROBLEMS, problem
from scipy import sparse

from skfw.engine import (
    ActiveAtoms,
    ActiveCoordinates,
    Adaptive,
    AveragePlane,
    DenseDesign,
    Directional,
    EuclideanBall,
    GroupBall,
    L1Ball,
    L2Ball,
    LInfBall,
    LogisticLoss,
    MultinomialLoss,
    NoMomentum,
    NSupportBall,
    Problem,
    Simplex,
    SparseDesign,
    SquaredLoss,
    best_corrector,
    design_matrix,
    frank_wolfe,
)
from skfw.engine.correctors._columns import Coordinates, FactoredHessian


def solve(p, corrector=None, **options):
    options = {"momentum": Adaptive(), "step_rule": Directional(), "max_iter": 60, **options}
    return frank_wolfe(p, corrector=corrector or best_corrector(p), **options)


def improve(corrector, point, gap=None):
    """Correct a point once, as a run does; by default one that knows nothing but the point's own bound."""
    newest = corrector.problem.minimise(AveragePlane.tangent(point.evaluation))
    return corrector.improve(point, newest, point.value - newest.bound if gap is None else gap)


@pytest.mark.parametrize("make", KNOWN_PROBLEMS.values(), ids=KNOWN_PROBLEMS)
def test_a_certified_optimum_in_few_iterations(make):
    p = make()
    result = solve(p.problem, tolerance=1e-8)
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
    "constraint",
    [L1Ball(30.0), L1Ball(1e4), Simplex(20.0), L2Ball(5.0), L2Ball(1e3), NSupportBall(15.0, 5)],
    ids=str,
)
@pytest.mark.parametrize("shape", [(300, 40), (120, 400), (6000, 12)], ids=["tall", "wide", "sampled"])
def test_shapes(shape, constraint, multiclass, intercept, dense):
    """Wide and tall, sparse and dense, with the set's boundary reached or far away."""
    X, labels, weights = classification(*shape, 0.2, n_classes=3)
    loss = list(losses(labels, weights, intercept))[multiclass]
    design = design_matrix(X.toarray() if dense else X, 3 if multiclass else None)
    result = solve(Problem(loss, design, constraint), tolerance=1e-6, max_iter=100)
    assert result.status == "converged"
    assert np.diff(result.trace["objective"]).max(initial=0.0) <= 1e-15
    if isinstance(constraint, Simplex):
        assert result.x.min() >= 0.0
        assert result.x.sum() == pytest.approx(constraint.radius, rel=1e-12)
    else:
        assert constraint.norm(result.x) <= constraint.radius * (1 + 1e-12)
    # The predictions that were updated on the way are those of the model.
    assert loss.evaluate(design.apply(result.x)).value == pytest.approx(result.objective, rel=1e-9, abs=1e-12)


def logistic(constraint, shape, density=1.0, intercept=True):
    X, labels, weights = classification(*shape, density)
    return Problem(LogisticLoss(2.0 * labels - 1.0, weights, intercept), design_matrix(X), constraint)


@pytest.mark.parametrize("constraint", [L1Ball(20.0), L2Ball(3.0), Simplex(20.0)], ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_both_ways_to_solve_the_model_agree(constraint, intercept, monkeypatch):
    p = logistic(constraint, (400, 30), 0.3, intercept)
    found = []
    for products in (0.0, np.inf):
        for module in ("_active_coordinates", "_euclidean_ball"):
            monkeypatch.setattr(f"skfw.engine.correctors.{module}.GRAM_PRODUCTS", products)
        found.append(solve(p, tolerance=1e-10))
    assert found[0].objective == pytest.approx(found[1].objective, abs=1e-10)
    np.testing.assert_allclose(found[0].x, found[1].x, atol=1e-3)


def test_an_inactive_ball_gives_the_unconstrained_optimum():
    for ball in (L1Ball(1e3), L2Ball(1e3)):
        p = logistic(ball, (500, 5))
        result = solve(p, tolerance=1e-8)
        assert result.status == "converged"
        assert np.abs(p.data.adjoint(p.at(result.x).evaluation.residual)).max() < 1e-8


def test_nothing_to_correct():
    """No feature tells anything: the gradient is zero, and there are no active coordinates."""
    loss = LogisticLoss(np.array([1.0, -1.0, 1.0, -1.0]), np.full(4, 0.25), True)
    result = solve(Problem(loss, design_matrix(np.zeros((4, 2))), L1Ball(1.0)), max_iter=1000)
    assert result.objective == pytest.approx(np.log(2.0))
    assert result.status == "stalled"
    assert 20 <= result.n_iter <= 200


@pytest.mark.parametrize(
    "constraint",
    [
        L1Ball(20.0),
        L2Ball(3.0),
        Simplex(20.0),
        LInfBall(1.0),
        NSupportBall(8.0, 4),
        GroupBall(8.0, np.arange(30) % 7),
    ],
    ids=lambda constraint: type(constraint).__name__,
)
def test_a_corrected_point_is_in_the_set_and_no_worse(constraint):
    p = logistic(constraint, (400, 30), 0.3)
    corrector, point = best_corrector(p), p.start
    for _ in range(5):
        previous, point = point, improve(corrector, point)
        assert point.value <= previous.value * (1 + 1e-15)
        np.testing.assert_allclose(point.predictions, p.data.apply(point.x), atol=1e-9)
        if isinstance(constraint, Simplex):
            assert point.x.min() >= 0.0
            assert point.x.sum() == pytest.approx(20.0, rel=1e-12)
        else:
            assert constraint.norm(point.x) <= constraint.radius * (1 + 1e-12)
    assert point.value < p.start.value


@pytest.mark.parametrize("n_classes", [2, 3])
def test_hessians_have_no_negative_diagonals(n_classes):
    """Their roots scale the rows of a matrix. Predictions are far apart here, and slopes at their limits."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        labels, weights = rng.integers(0, n_classes, 40), rng.uniform(0.5, 2.0, 40)
        labels[:n_classes], weights = np.arange(n_classes), weights / weights.sum()
        predictions = 10 ** rng.uniform(0.0, 6.0) * rng.normal(size=(40, 3))
        if n_classes == 2:
            loss, predictions = LogisticLoss(2.0 * labels - 1.0, weights, True), predictions[:, 0]
        else:
            loss = MultinomialLoss(labels, 3, weights, True)
        assert loss.hessian(loss.evaluate(predictions)).diagonal.min() >= 0.0


# Euclidean balls.


def bowl(centre, radius):
    """Half the squared distance to a centre, up to a factor: the gradient points away from it."""
    size = len(centre)
    loss = SquaredLoss(np.sqrt(size) * np.asarray(centre, dtype=float), np.full(size, 1.0 / size))
    return Problem(loss, design_matrix(np.sqrt(size) * np.eye(size)), L2Ball(radius))


def test_along_the_sphere_where_the_centre_is_outside():
    """One Newton step: the iterate stays on the sphere, and comes close to the nearest point of it."""
    p = bowl([3.0, 0.0, 0.0], 1.0)
    start = p.at(np.array([np.cos(0.5), np.sin(0.5), 0.0]))
    point = improve(EuclideanBall(p, 1.0), start)
    assert np.linalg.norm(point.x) == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(point.x, [1.0, 0.0, 0.0], atol=0.1)
    # A second one is enough for three more digits.
    np.testing.assert_allclose(improve(EuclideanBall(p, 1.0), point).x, [1.0, 0.0, 0.0], atol=1e-4)


def test_from_the_sphere_inwards_where_that_is_steepest():
    p = bowl([0.5, 0.01, 0.0], 1.0)
    point = improve(EuclideanBall(p, 1.0), p.at(np.array([1.0, 0.0, 0.0])))
    np.testing.assert_allclose(point.x, [0.5, 0.01, 0.0], atol=1e-6)


def test_along_the_sphere_first_where_that_is_steeper_than_inwards():
    """Straight inwards would leave the sphere at a bad place; a step along it comes first."""
    p = bowl([0.3, 0.95, 0.0], 1.0)
    start = p.at(np.array([1.0, 0.0, 0.0]))
    slopes = p.data.adjoint(start.evaluation.residual)
    assert slopes[0] > 0.0
    assert slopes[0] < abs(slopes[1])
    point = improve(EuclideanBall(p, 1.0), start)
    assert np.linalg.norm(point.x) == pytest.approx(1.0, rel=1e-9)
    assert point.value < start.value


def test_inside_the_ball_up_to_the_sphere():
    """The centre is outside: the step inside ends at the sphere, not beyond."""
    p = bowl([3.0, 4.0, 0.0], 1.0)
    point = improve(EuclideanBall(p, 1.0), p.null)
    np.testing.assert_allclose(point.x, [0.6, 0.8, 0.0], atol=1e-6)
    assert np.linalg.norm(point.x) <= 1.0 + 1e-12


def test_from_a_bad_start_on_the_sphere():
    """The loss falls inwards from there, and steeper along the sphere."""
    p = logistic(L2Ball(50.0), (500, 8), intercept=False)
    cold = solve(p, tolerance=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(5):
        start = rng.normal(size=8)
        result = solve(p, tolerance=1e-9, start=p.at(start * 50.0 / np.linalg.norm(start)))
        assert result.objective == pytest.approx(cold.objective, abs=1e-9)


def test_steps_along_the_sphere_keep_what_they_win():
    """Categories, some of them rare, and a small multiplier: scaled back, a step wins next to nothing."""
    rng = np.random.default_rng(0)
    frequency = 1.0 / np.arange(1, 31) ** 2
    labels = rng.choice(30, (4_000, 4), p=frequency / frequency.sum())
    X = (labels[:, :, np.newaxis] == np.arange(30)).reshape(4_000, 120).astype(float)
    y = np.where(X @ rng.normal(size=120) + rng.logistic(size=4_000) > 0.0, 1.0, -1.0)
    p = Problem(LogisticLoss(y, np.full(4_000, 1 / 4_000)), DenseDesign(X), L2Ball(25.0))
    result = solve(p, tolerance=1e-7)
    assert 0.0 < result.multiplier < 1e-4
    assert result.n_iter <= 12


class Counting(DenseDesign):
    """Counts products, Hessians, preconditioners (each needs the features' squares) and copies of columns."""

    def __init__(self, X, n_outputs=None):
        super().__init__(X, n_outputs)
        self.products, self.preconditioners, self.restricted, self.samples = 0, 0, [], 0
        self.grams = 0

    def apply(self, x):
        self.products += 1
        return super().apply(x)

    def squares(self, weights):
        self.preconditioners += 1
        return super().squares(weights)

    def gram(self, weights):
        self.grams += 1
        return super().gram(weights)

    def restrict(self, features):
        self.restricted.append(features)
        return super().restrict(features)

    @property
    def sample(self):
        self.samples += 1
        return super().sample


class WithoutSample(Counting):
    sample = None


def correlated(n_samples, n_features, kind, radius=5.0):
    """Features that are mostly the same, so that a diagonal says little of the Hessian."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(n_features, n_features)) * 0.8 ** np.arange(n_features)[:, np.newaxis]
    X = rng.normal(size=(n_samples, n_features)) @ mixing
    y = np.where(X @ rng.normal(size=n_features) + rng.logistic(size=n_samples) > 0.0, 1.0, -1.0)
    design = kind(X)
    return Problem(LogisticLoss(y, np.full(n_samples, 1 / n_samples), True), design, L2Ball(radius))


def test_the_hessian_of_a_sample_saves_products(monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._euclidean_ball._ENOUGH", 0.01)
    products = []
    for kind in (Counting, WithoutSample):
        p = correlated(20_000, 30, kind, radius=1e3)
        point = p.at(np.full(30, 0.1))
        before = p.data.products
        assert improve(EuclideanBall(p, 1e3), point, gap=1e-6).value < point.value
        products.append(p.data.products - before)
    assert products[0] < 0.5 * products[1]


def test_a_preconditioner_is_used_again():
    """From the same point, the second time: the shift is the same, and few products were needed."""
    p = correlated(20_000, 12, Counting)
    corrector = EuclideanBall(p, 5.0)
    improve(corrector, p.null)
    assert p.data.preconditioners == 1
    improve(corrector, p.null)
    assert p.data.preconditioners == 1
    # Elsewhere on the sphere the multiplier is another one, and so is what is to be inverted.
    far = p.at(np.full(12, 4.9 / np.sqrt(12)))
    improve(corrector, far)
    assert p.data.preconditioners == 2


def test_a_preconditioner_that_led_to_many_products_is_made_anew(monkeypatch):
    """And better: with all samples, which are so few here that there is no sample of them."""
    monkeypatch.setattr("skfw.engine.correctors._euclidean_ball._ENOUGH", 0.01)
    p = correlated(400, 30, Counting, radius=1e3)
    corrector, products = EuclideanBall(p, 1e3), []
    point = p.at(np.full(30, 0.1))
    for _ in range(3):
        before = p.data.products
        improve(corrector, point, gap=1e-6)
        products.append(p.data.products - before)
    assert products[0] > 5
    assert p.data.preconditioners == 2
    assert products[1] == products[2] <= 3


def test_a_preconditioner_that_leads_nowhere_is_not_kept():
    """Matrices that are no numbers: once, and never again."""
    failures = [True]

    class Broken(LogisticLoss):
        def hessian(self, evaluation):
            hessian = super().hessian(evaluation)
            if failures and failures.pop():
                object.__setattr__(hessian, "output_grams", lambda design, rows: [np.full((12, 12), np.nan)])
            return hessian

    p = correlated(20_000, 12, Counting)
    p = Problem(Broken(p.loss.targets, p.loss.weights, True), p.data, p.constraint)
    corrector = EuclideanBall(p, 5.0)
    assert improve(corrector, p.null) is p.null
    assert improve(corrector, p.null).value < p.null.value


def test_many_features_are_not_factored():
    """A matrix of all features squared is out of the question; products and a diagonal are enough."""
    p = logistic(L2Ball(5.0), (200, 20_000), 0.002)
    result = solve(p, EuclideanBall(p, 5.0), tolerance=1e-6)
    assert result.status == "converged"


# Active coordinates.


def regression(n_samples, n_features, slopes, kind=Counting, constraint=None):
    """Features without noise whose slopes at zero are proportional to these."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(n_samples, n_features)))[0]
    loss = SquaredLoss(X @ slopes, np.full(n_samples, 1 / n_samples))
    return Problem(loss, kind(X), constraint or L1Ball(1e6))


def test_coordinates_enter_in_batches_the_steepest_first():
    slopes = np.linspace(1.0, 2.0, 200) * np.where(np.arange(200) % 2, 1.0, -1.0)
    p = regression(300, 200, slopes)
    corrector = ActiveCoordinates(p, 1e6, signed=True)
    first = improve(corrector, p.null)
    np.testing.assert_array_equal(np.flatnonzero(first.x), np.arange(150, 200))
    np.testing.assert_allclose(first.x[150:], slopes[150:], rtol=1e-6)
    # Then twice as many as have stayed, but no fewer than a batch.
    second = improve(corrector, first)
    assert np.count_nonzero(second.x) == 150
    assert np.count_nonzero(improve(corrector, second).x) == 200
    corrector = ActiveCoordinates(p, 1e6, signed=True)
    improve(corrector, p.null)
    np.testing.assert_array_equal(np.flatnonzero(improve(corrector, p.null).x), np.arange(150, 200))


def test_no_more_coordinates_enter_at_once_than_there_are_samples():
    corrector = ActiveCoordinates(regression(60, 40, np.ones(40)), 1e6, signed=True)
    assert len(corrector._active(np.zeros(400), np.ones(400))) == 50
    x = np.zeros(400)
    x[corrector._entered] = -1.0
    assert len(corrector._active(x, np.where(x == 0.0, 1.0, 0.0))) == 50 + 60


def test_on_the_simplex_only_what_is_below_the_mean_slope_enters():
    slopes = np.r_[np.full(3, 2.0), np.full(5, -2.0)]
    p = regression(40, 8, slopes, constraint=Simplex(1.0))
    point = improve(ActiveCoordinates(p, 1.0, signed=False), p.start)
    assert set(np.flatnonzero(point.x)) <= {0, 1, 2}
    assert point.x.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(point.x[:3], 1 / 3, rtol=1e-6)


def test_columns_are_gathered_once():
    """As long as the coordinates are about the same; and never where they are most of the features."""
    slopes = np.r_[np.full(20, 2.0), np.zeros(180)]
    p = regression(300, 200, slopes)
    corrector = ActiveCoordinates(p, 1e6, signed=True)
    point = improve(corrector, p.null)
    gathered = len(p.data.restricted)
    assert gathered >= 1
    for _ in range(3):
        active = corrector._active(point.x.ravel(), p.data.adjoint(point.evaluation.residual))
        columns = corrector._columns.restrict(active[:18])
        assert columns.design.shape[1] <= 200
        values = np.arange(1.0, 19.0)
        np.testing.assert_allclose(columns.apply(values), p.data.apply_sparse(active[:18], values))
    most = regression(300, 60, np.full(60, 2.0))
    improve(ActiveCoordinates(most, 1e6, signed=True), most.null)
    assert most.data.restricted == []


def test_a_hessian_that_is_the_same_everywhere_is_formed_once():
    """As long as no feature joins those it is of, however many leave."""
    rng = np.random.default_rng(0)
    # With a part in common, slopes at zero have other signs than coefficients.
    X, weights = rng.normal(size=(2_000, 60)) + rng.normal(size=(2_000, 1)), np.full(2_000, 1 / 2_000)
    targets = X[:, :5] @ rng.normal(size=5) + rng.normal(size=2_000)

    def hessians(loss):
        p = Problem(loss, Counting(X), L1Ball(2.0))
        result = solve(p, tolerance=1e-9)
        assert result.n_iter > 1
        assert result.trace["atoms"][-1] < 0.7 * 60
        return p.data.grams + len(p.data.restricted)

    assert hessians(SquaredLoss(targets, weights, True)) == 1
    assert hessians(LogisticLoss(np.sign(targets), weights, True)) > 1


def test_the_inverse_of_an_earlier_hessian():
    """Coordinates that have joined since have their diagonal, and those that have left count as zero."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(9, 3))
    matrix, residual = root.T @ root, rng.normal(size=3)
    factored = FactoredHessian.of(np.array([2, 5, 9]), matrix.copy())
    inverse = np.linalg.inv(matrix)
    same = factored.inverse(np.array([2, 5, 9]), np.ones(3))
    np.testing.assert_allclose(same(residual), inverse @ residual, rtol=1e-4)
    other = factored.inverse(np.array([0, 5, 9, 11]), np.array([2.0, 1.0, 1.0, 4.0]))
    expected = np.r_[0.5, inverse[1:, 1:] @ residual[1:], 0.25]
    np.testing.assert_allclose(other(np.r_[1.0, residual[1:], 1.0]), expected, rtol=1e-4)
    assert FactoredHessian.of(np.array([0]), np.array([[-1.0]])) is None


def test_a_preconditioner_is_made_once_products_have_cost_as_much(monkeypatch):
    monkeypatch.setattr("skfw.engine.correctors._active_coordinates.GRAM_PRODUCTS", 0.0)
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1_000, 3)) @ rng.normal(size=(3, 80))
    X = SparseDesign(sparse.csr_matrix((common + 0.2 * rng.normal(size=(1_000, 80))) / 3.0))
    loss = LogisticLoss(np.sign(X.apply(rng.normal(size=80))), np.full(1_000, 1e-3))

    def products(cost, solve_cost=0.0):
        monkeypatch.setattr(Coordinates, "matrix_cost", 1e9)
        monkeypatch.setattr(Coordinates, "rough_matrix_cost", cost)
        monkeypatch.setattr(Coordinates, "solve_cost", solve_cost)
        p = Problem(loss, X, L1Ball(60.0))
        corrector, point, total = ActiveCoordinates(p, 60.0, signed=True), p.null, 0
        for _ in range(12):
            point = improve(corrector, point)
            total += corrector._n_products
        return total, corrector._factored, point.value

    without, none, value = products(1e9)
    few, factored, same_value = products(2.5e-4)
    assert none is None
    assert factored is not None
    assert few < 0.7 * without
    assert same_value <= value + 1e-9
    # Nor is it where each of its solves would take longer than several products.
    assert products(2.5e-4, solve_cost=1.0)[:2] == (without, None)


# Active atoms.


def test_atoms_lose_their_weight_and_are_dropped():
    p = problem("logistic", "n_support", True).problem
    corrector = ActiveAtoms(p)
    result = solve(p, corrector, tolerance=1e-9)
    assert 2 <= len(corrector._atoms) < result.n_iter


def test_there_are_no_more_atoms_than_dimensions():
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(30, 3)) * [1.0, 30.0, 1e3], rng.choice([-1.0, 1.0], 30)
    p = Problem(LogisticLoss(signs, np.full(30, 1 / 30)), design_matrix(X), LInfBall(10.0))
    corrector, n_atoms = ActiveAtoms(p), []
    result = solve(
        p,
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
    p = Problem(LogisticLoss(signs, np.full(40, 1 / 40), True), design_matrix(X), ball)
    states = []
    result = solve(p, max_iter=30, callback=states.append)
    assert p.at(result.x).value == pytest.approx(result.objective, rel=1e-12)
    for state in states:
        assert p.at(state.x).value == pytest.approx(state.objective, rel=1e-6)
    assert np.diff(result.trace["objective"]).max() <= 1e-12


def test_corrector_notices_a_step_it_did_not_make():
    p = problem("logistic", "linf", True)
    result = solve(p.problem, ActiveAtoms(p.problem), momentum=NoMomentum(), max_iter=20)
    assert result.objective == pytest.approx(p.optimum, abs=1e-9)


def test_corrected_atoms_belong_to_the_point_at_hand():
    """A point that did not come from the corrector: its atoms are not those of before."""
    p = problem("logistic", "linf", True).problem
    corrector = ActiveAtoms(p)
    improve(corrector, improve(corrector, p.null))
    elsewhere = p.at(np.array([0.3, -0.3, 0.1, 0.2]))
    fresh = improve(ActiveAtoms(p), elsewhere)
    np.testing.assert_allclose(improve(corrector, elsewhere).x, fresh.x)


class WithoutGram(DenseDesign):
    """A design whose Gram matrix is never worth it."""

    gram_cost = np.inf


@pytest.mark.parametrize("kind", [WithoutGram, DenseDesign])
def test_the_sum_on_a_simplex_stays_where_a_smaller_one_would_be_better(kind):
    p = regression(40, 8, np.ones(8), kind, Simplex(100.0))
    start = p.at(np.append(65.0, np.full(7, 5.0)))
    assert p.data.inner(start.evaluation.residual, start.predictions) > 0.0
    point = improve(ActiveCoordinates(p, 100.0, signed=False), start)
    assert point.value < start.value
    assert point.x.sum() == pytest.approx(100.0, rel=1e-12)
    assert point.x.min() >= 0.0


@pytest.mark.parametrize("radius", [1e9, 1e12])
def test_atoms_that_are_immense_do_not_lead_uphill(radius):
    """Where their average is mostly rounding, the point stays where it is."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20, 6))
        loss = SquaredLoss(X @ rng.normal(size=6) + 1e-3 * rng.normal(size=20), np.full(20, 1 / 20))
        p = Problem(loss, design_matrix(X), LInfBall(radius))
        objective = frank_wolfe(p, corrector=ActiveAtoms(p), max_iter=30).trace["objective"]
        assert np.diff(objective[:-1]).max(initial=0.0) <= 1e-12 * objective[0]

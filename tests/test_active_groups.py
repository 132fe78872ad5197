"""The corrector for n-support balls and balls of groups, and the quadratic models that it minimises."""

import numpy as np
import pytest
from problems import LOSSES, MATRIX_LOSSES, data, several_targets

from skfw.engine import (
    ActiveAtoms,
    ActiveGroups,
    Adaptive,
    AveragePlane,
    DenseDesign,
    GroupBall,
    HuberLoss,
    L1Ball,
    L2Ball,
    LogisticLoss,
    MultinomialLoss,
    NSupportBall,
    Problem,
    SeveralTargets,
    SquaredLoss,
    best_corrector,
    design_matrix,
    frank_wolfe,
)
from skfw.engine.correctors._group_quadratics import (
    GroupNorm,
    QuadraticModel,
    _Multiplier,
    _Penalised,
    _Piece,
    minimise_over_ball,
)

# Groups of very different sizes, in any order, and one with nothing in it.
UNEVEN = np.array([4, 0, 1, 0, 4, 4, 3, 4, 0, 4, 4, 1])
NORMS = {
    "l1": GroupNorm(np.arange(12), 12, 1),
    "n-support": GroupNorm(np.arange(12), 12, 4),
    "l2": GroupNorm(np.arange(12), 12, 12),
    "groups": GroupNorm(UNEVEN, 5, 1),
    "two groups": GroupNorm(UNEVEN, 5, 2),
    "one group": GroupNorm(np.zeros(12, dtype=int), 1, 1),
}
every_norm = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)


def points(n=30, size=12):
    """Yield points with few and with many nonzeros, of sizes that are alike and that are not."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        x = rng.normal(size=size) * 10.0 ** rng.uniform(-2.0, 2.0, size) ** rng.choice([0, 1])
        yield np.where(rng.uniform(size=size) < rng.choice([0.3, 0.7, 1.0]), x, 0.0)


def solve(problem, tolerance=1e-8, **options):
    options = {"corrector": best_corrector(problem), "max_iter": 60, **options}
    return frank_wolfe(problem, momentum=Adaptive(), tolerance=tolerance, **options)


def improve(corrector, point):
    newest = corrector.problem.minimise(AveragePlane.tangent(point.evaluation))
    return corrector.improve(point, newest, point.value - newest.bound)


# The norm.


@pytest.mark.parametrize("ball", [NSupportBall(1.0, 1), NSupportBall(1.0, 5), NSupportBall(1.0, 12)], ids=str)
def test_the_norm_and_its_dual_are_those_of_an_n_support_ball(ball):
    norm = GroupNorm(ball.partition((12,)), 12, ball.support_size)
    for x in points():
        assert norm.of(x) == pytest.approx(ball.norm(x), rel=1e-13)
        assert norm.dual(x) == pytest.approx(-ball.lmo(x).value, rel=1e-13)


@pytest.mark.parametrize("shape", [(12,), (12, 3)])
def test_the_norm_and_its_dual_are_those_of_a_ball_of_groups(shape):
    ball = GroupBall(1.0, UNEVEN)
    norm = GroupNorm(ball.partition(shape), 5, ball.support_size)
    for x in points(size=int(np.prod(shape))):
        assert norm.of(x) == pytest.approx(ball.norm(x.reshape(shape)), rel=1e-13)
        assert norm.dual(x) == pytest.approx(-ball.lmo(x.reshape(shape)).value, rel=1e-13)


@every_norm
def test_the_normal_attains_the_dual_norm(norm):
    """<normal, x> = |x|^2, and its dual norm is |x|: so it is a gradient of half the square."""
    for x in points():
        normal = norm.normal(x)
        assert normal @ x == pytest.approx(norm.of(x) ** 2, rel=1e-12)
        assert norm.dual(normal) == pytest.approx(norm.of(x), rel=1e-12)


@every_norm
def test_derivatives_of_a_piece(norm):
    """Against differences, at points whose groups all are nonzero; and both inverses against the matrix."""
    rng = np.random.default_rng(0)
    barred = np.zeros(norm.n_groups, dtype=bool)
    for _ in range(10):
        x, change = rng.normal(size=(2, 12))
        piece = _Piece(norm, x, np.zeros(12), 3.0, np.ones(norm.n_groups), barred)
        np.testing.assert_array_equal(piece.free, np.arange(12))
        np.testing.assert_allclose(piece.gradient, 3.0 * norm.normal(x), rtol=1e-12)
        step = 1e-6 * change
        difference = 3.0 * (norm.normal(x + step) - norm.normal(x - step)) / 2e-6
        np.testing.assert_allclose(piece.curved(change), difference, atol=1e-6)

        matrix = np.column_stack([piece.curved(column) for column in np.eye(12)])
        diagonal, root = rng.uniform(0.5, 2.0, 12), rng.normal(size=(12, 12))
        expected = np.linalg.solve(np.diag(diagonal) + matrix, change)
        np.testing.assert_allclose(piece.inverse(diagonal)(change), expected, rtol=1e-9)
        expected = np.linalg.solve(root @ root.T + np.diag(diagonal) + matrix, change)
        np.testing.assert_allclose(
            piece.inverse_with(root @ root.T, diagonal)(change), expected, rtol=1e-8, atol=1e-10
        )


def test_with_fewer_groups_than_an_atom_has_the_norm_is_euclidean():
    """Those that are zero then join as they are: there is no kink at zero, and nothing ties them together."""
    barred, slope = np.zeros(6, dtype=bool), np.ones(6)
    for norm, x in (
        (GroupNorm(np.arange(6), 6, 4), np.array([3.0, -4.0, 0.0, 0.0, 0.0, 0.0])),
        (GroupNorm(np.arange(6), 6, 9), np.array([0.0, 0.0, 3.0, 0.0, 0.0, 4.0])),
    ):
        assert norm.of(x) == pytest.approx(5.0, rel=1e-14)
        piece = _Piece(norm, x, slope, 2.0, np.ones(6), barred)
        np.testing.assert_array_equal(piece.free, np.arange(6))
        np.testing.assert_array_equal(piece.gradient, 2.0 * x)
        np.testing.assert_array_equal(piece.curved(slope), 2.0 * slope)
    assert norm.dual(x) == pytest.approx(5.0, rel=1e-14)


def test_the_multiplier_stays_between_its_bounds_and_ends_at_zero():
    multiplier = _Multiplier(1.0)
    multiplier.move(size=2.0, radius=1.0, bend=1e9, target=1e-3)
    assert multiplier.value == pytest.approx(2.0)  # the lower bound: a step of Newton's would be too short
    multiplier.move(size=0.9, radius=1.0, bend=1e-9, target=1e-3)
    assert multiplier.value == pytest.approx(0.02)  # the older bound was above this one, and is forgotten
    # One that is next to nothing becomes zero, all others in steps of a certain size.
    for value, least in ((1.0, 0.01), (1e-4, 0.0)):
        multiplier = _Multiplier(value)
        multiplier.move(size=0.1, radius=1.0, bend=1e-9, target=1e-3)
        assert multiplier.value == pytest.approx(least)
    # From zero it grows as far as it has to.
    multiplier = _Multiplier(0.0)
    multiplier.move(size=2.0, radius=1.0, bend=1.0, target=1e-3)
    assert multiplier.value == pytest.approx(4.0)


# Quadratic models.


def quadratic(rng, n_terms, by_products=False):
    """A model that is singular if it has few terms; two of its columns are the same, and one is zero."""
    root = rng.normal(size=(n_terms, 12)) @ (np.eye(12) + 0.5 * rng.normal(size=(12, 12)))
    root[:, 3], root[:, 7] = root[:, 4], 0.0
    H = root.T @ root
    linear = -root.T @ rng.normal(size=n_terms)
    return QuadraticModel(lambda x: H @ x, None if by_products else H, np.maximum(np.diag(H), 1e-300), linear)


@every_norm
@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("n_terms", [5, 40])
@pytest.mark.parametrize("radius", [0.01, 0.3, 100.0])
def test_models_are_minimised(norm, by_products, n_terms, radius):
    """The gap in the ball proves it, from zero and from elsewhere, with multipliers that are far off."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model = quadratic(rng, n_terms, by_products)
        start = rng.normal(size=12) * rng.choice([0.0, 1.0])
        start *= radius / max(norm.of(start), radius)
        guess, target = 10.0 ** rng.uniform(-8.0, 2.0), (1e-4 if by_products else 1e-7) * max(1.0, radius)
        best, multiplier = minimise_over_ball(model, norm, radius, start, start, guess, target, 1e-3, np.inf)
        assert norm.of(best) <= radius * (1.0 + 1e-12)
        slope = model.linear + model.product(best)
        assert slope @ best + radius * norm.dual(slope) <= 1.01 * target
        assert multiplier >= 0.0


def value_of(function, x, image):
    return function.model.linear @ x + (x @ image + function.multiplier * function.norm.of(x) ** 2) / 2.0


@every_norm
def test_no_pass_goes_uphill(norm):
    """Wherever it starts, and however wrong the multiplier is."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = quadratic(rng, int(rng.integers(3, 20)))
        x = rng.normal(size=12) * 10.0 ** rng.uniform(-3.0, 3.0, 12) * (rng.uniform(size=12) < 0.7)
        image = model.product(x)
        traces = norm.sums(model.diagonal)
        function = _Penalised(model, norm, 10.0 ** rng.uniform(-6.0, 3.0), 0.0, traces, 1e-3)
        found = function.descend(x, image)
        assert found is not None
        moved, moved_image = found.x, found.image
        np.testing.assert_allclose(moved_image, model.product(moved), rtol=1e-12)
        before = value_of(function, x, image)
        assert value_of(function, moved, moved_image) <= before + 1e-13 * abs(before)


def test_what_crosses_zero_stays_there_and_the_others_are_solved_for_again(monkeypatch):
    """On nearly flat models many groups cross at once: that wins more than a shorter step."""
    norm, ratios = GroupNorm(np.arange(60), 60, 5), []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(60, 60)) * 0.85 ** np.arange(60) @ rng.normal(size=(60, 60))
        H, linear = root.T @ root, -root.T @ np.sign(rng.normal(size=60))
        model = QuadraticModel(lambda x, H=H: H @ x, H, np.diag(H), linear)
        function = _Penalised(model, norm, norm.dual(linear) / 30.0, 0.0, np.ones(60), 1e-3)
        x = 0.1 * rng.normal(size=60)
        found = []
        for bars in (1, 5):
            monkeypatch.setattr("skfw.engine.correctors._group_quadratics._MAX_BARS", bars)
            found.append(function.descend(x, H @ x))
        ends = [(x, H @ x) if each is None else (each.x, each.image) for each in found]
        falls = [value_of(function, x, H @ x) - value_of(function, *end) for end in ends]
        ratios.append(falls[1] / max(falls[0], 1e-9 * falls[1]))
    assert min(ratios) > 2.0
    assert np.median(ratios) > 100.0


def test_products_are_limited_and_nothing_worse_is_returned():
    rng = np.random.default_rng(0)
    model, norm = quadratic(rng, 40, by_products=True), NORMS["n-support"]
    arguments = model, norm, 0.3, np.zeros(12)
    lowest, _ = minimise_over_ball(*arguments, np.zeros(12), 1.0, 1e-4, 1e-3, np.inf)
    # From zero it does not get below that with a few products.
    model.n_products = 0
    best, _ = minimise_over_ball(*arguments, lowest, 1.0, 1e-9, 1e-3, 5)
    assert best is None
    assert model.n_products <= 5 + 40 + 8


# The corrector.


def classification(n_samples, n_features, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) + 0.5 * rng.normal(size=(n_samples, 1))
    scores = X @ rng.normal(size=(n_features, n_classes)) + rng.gumbel(size=(n_samples, n_classes))
    return X, scores.argmax(axis=1), np.full(n_samples, 1.0 / n_samples)


def logistic(constraint, shape, kind=DenseDesign, seed=0):
    X, labels, weights = classification(*shape, seed=seed)
    return Problem(LogisticLoss(2.0 * labels - 1.0, weights, True), kind(X), constraint)


@pytest.mark.parametrize("radius", [0.5, 5.0, 1e3])
@pytest.mark.parametrize("multiclass", [False, True], ids=["binary", "multiclass"])
def test_the_ends_are_the_l1_ball_and_the_l2_ball(radius, multiclass):
    X, labels, weights = classification(300, 12, 3)
    if multiclass:
        loss, design, size = MultinomialLoss(labels, 3, weights, True), design_matrix(X, 3), 36
    else:
        loss, design, size = LogisticLoss(2.0 * (labels == 1) - 1.0, weights, True), design_matrix(X), 12
    for ball, same in (
        (NSupportBall(radius, 1), L1Ball(radius)),
        (NSupportBall(radius, size), L2Ball(radius)),
        (GroupBall(radius, np.zeros(12, dtype=int)), L2Ball(radius)),
    ):
        result, expected = (solve(Problem(loss, design, each), tolerance=1e-9) for each in (ball, same))
        assert result.status == "converged"
        assert result.objective == pytest.approx(expected.objective, abs=2e-9)
        assert result.multiplier == pytest.approx(expected.multiplier, rel=1e-2, abs=1e-7)


@pytest.mark.parametrize("loss_name", LOSSES)
@pytest.mark.parametrize("support_size", [1, 3])
def test_the_same_as_atom_by_atom(loss_name, support_size):
    X, weights, signs, labels, targets = data()
    loss = {
        "logistic": LogisticLoss(signs, weights, True),
        "multinomial": MultinomialLoss(labels, 3, weights, True),
        "squared": SquaredLoss(targets, weights, True),
        "huber": HuberLoss(targets, weights, True, 0.8),
        "targets": SeveralTargets(
            tuple(SquaredLoss(column, weights, True) for column in several_targets().T)
        ),
    }[loss_name]
    design = design_matrix(X, 3 if loss_name in MATRIX_LOSSES else None)
    for ball in (NSupportBall(0.7, support_size), GroupBall(0.7, np.array([2, 0, 2, 2]))):
        p = Problem(loss, design, ball)
        result = solve(p)
        assert result.status == "converged"
        assert result.n_iter <= 12
        expected = solve(p, corrector=ActiveAtoms(p), tolerance=1e-6, max_iter=300)
        assert result.objective == pytest.approx(expected.objective, abs=1e-6)


@pytest.mark.parametrize(
    "ball", [NSupportBall(3.0, 4), GroupBall(3.0, np.arange(60) // 4)], ids=["n", "groups"]
)
@pytest.mark.parametrize("radius", [1.0, 30.0])
def test_both_ways_to_solve_the_model_agree(ball, radius, monkeypatch):
    ball.set_params(radius=radius)
    p = logistic(ball, (400, 60))
    found = []
    for cost in (0.0, np.inf):
        monkeypatch.setattr(ActiveGroups, "_matrix_products", lambda self, columns, cost=cost: cost)
        found.append(solve(p, tolerance=1e-10))
        assert found[-1].status == "converged"
        assert ball.norm(found[-1].x) <= radius * (1.0 + 1e-12)
    assert found[0].objective == pytest.approx(found[1].objective, abs=2e-10)
    np.testing.assert_allclose(found[0].x, found[1].x, atol=1e-3)


@pytest.mark.parametrize(
    "ball", [NSupportBall(1e4, 3), GroupBall(1e4, np.arange(20) % 7)], ids=["n", "groups"]
)
def test_inside_the_ball_the_gradient_vanishes(ball):
    p = logistic(ball, (500, 20))
    result = solve(p, tolerance=1e-9)
    assert result.status == "converged"
    assert result.n_iter <= 12
    assert ball.norm(result.x) < ball.radius
    assert np.abs(p.data.adjoint(p.at(result.x).evaluation.residual)).max() < 1e-8


@pytest.mark.parametrize("radius", [0.3, 3.0, 100.0])
@pytest.mark.parametrize("shape", [(200, 40), (30, 40)], ids=["tall", "separable"])
def test_columns_that_are_the_same_or_zero(radius, shape):
    """No warning (they are errors here), and a certificate."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    X[:, 1], X[:, 2], X[:, 3] = X[:, 0], -X[:, 0], 0.0
    X[:, 10:20] *= 10.0 ** np.linspace(-6.0, 3.0, 10)
    y = np.where(X[:, 0] + rng.logistic(size=len(X)) > 0.0, 1.0, -1.0)
    groups = np.sort(rng.geometric(0.1, 40))
    for ball in (NSupportBall(radius, 4), GroupBall(radius, groups), GroupBall(radius, np.arange(40))):
        p = Problem(LogisticLoss(y, np.full(len(X), 1 / len(X)), True), design_matrix(X), ball)
        result = solve(p, tolerance=1e-6, max_iter=100)
        assert result.status == "converged"
        assert ball.norm(result.x) <= radius * (1.0 + 1e-12)
        assert np.diff(result.trace["objective"]).max(initial=0.0) <= 1e-15


@pytest.mark.parametrize("radius", [1e-200, 1e200])
def test_no_step_where_squares_of_the_radius_are_no_numbers(radius):
    p = logistic(NSupportBall(1.0, 2), (30, 4))
    assert improve(ActiveGroups(p, radius, np.arange(4), 2), p.null) is p.null


def test_groups_enter_in_batches_the_steepest_first():
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(500, 400)))[0]
    slopes = np.repeat(np.linspace(1.0, 2.0, 200), 2)
    loss = SquaredLoss(X @ slopes, np.full(500, 1 / 500))
    p = Problem(loss, design_matrix(X), GroupBall(1e6, np.arange(400) // 2))
    corrector = ActiveGroups(p, 1e6, np.arange(400) // 2, 1)
    first = improve(corrector, p.null)
    # The atom has the steepest one, and there are fifty more.
    np.testing.assert_array_equal(np.flatnonzero(first.x), np.arange(2 * 149, 400))
    np.testing.assert_allclose(first.x[2 * 149 :], slopes[2 * 149 :], rtol=1e-3)
    assert np.count_nonzero(improve(corrector, first).x) == 2 * 101


def test_a_group_has_the_coefficients_of_all_outputs():
    """Of two features together, a class at a time would leave some of them zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 10))
    labels = (X[:, :2] @ rng.normal(size=(2, 3)) + rng.gumbel(size=(400, 3))).argmax(axis=1)
    ball = GroupBall(0.5, np.arange(10) // 2)
    p = Problem(MultinomialLoss(labels, 3, np.full(400, 1 / 400), True), design_matrix(X, 3), ball)
    result = solve(p)
    assert result.status == "converged"
    assert result.n_iter <= 6
    assert np.all(result.x[:2] != 0.0)
    assert np.all(result.x[2:] == 0.0)


class Counting(DenseDesign):
    """Counts matrices, which are said to cost as much as many products."""

    gram_cost = 1.0
    product_cost = 0.02
    grams = 0

    def gram(self, weights):
        Counting.grams += 1
        return super().gram(weights)

    def restrict(self, features):
        return self


def test_a_matrix_is_formed_once_products_have_cost_as_much(monkeypatch):
    monkeypatch.setattr(Counting, "grams", 0)
    p = logistic(NSupportBall(30.0, 3), (200, 80), Counting)
    corrector, products = ActiveGroups(p, 30.0, np.arange(80), 3), []
    point = p.null
    for _ in range(20):
        point = improve(corrector, point)
        products.append(corrector._n_products)
        if Counting.grams:
            break
    assert Counting.grams == 1
    assert len(products) > 1
    assert products[-1] == products[-2] >= 50 > products[0]


def test_a_model_without_a_unique_minimum_is_left_after_some_factorisations(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 600)) + 1e-3 * rng.normal(size=(40, 600))
    signs, n_factored = np.where(X @ rng.normal(size=600) > 0.0, 1.0, -1.0), []
    factor = _Piece.inverse_with
    monkeypatch.setattr(
        _Piece, "inverse_with", lambda self, *matrices: n_factored.append(1) or factor(self, *matrices)
    )
    loss = LogisticLoss(signs, np.full(40, 1 / 40))
    problem = Problem(loss, design_matrix(X), NSupportBall(100.0, 5))
    result = solve(problem, tolerance=1e-5)
    assert result.status == "converged"
    assert 0 < len(n_factored) < 30 * result.n_iter  # 14 of them, and 140 without a limit

import numpy as np
import pytest
from problems import (
    EPSILON,
    LOSSES,
    MATRIX_LOSSES,
    N_CLASSES,
    N_SAMPLES,
    counts,
    data,
    reference_loss,
    several_targets,
)

from skfw.engine import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    PoissonLoss,
    SeveralTargets,
    SquaredLoss,
)


def make_loss(name, intercept, keep=slice(None), weights=None):
    _, own_weights, signs, labels, targets = data()
    weights = own_weights[keep] if weights is None else weights
    if name == "logistic":
        return LogisticLoss(signs[keep], weights, intercept)
    if name == "multinomial":
        return MultinomialLoss(labels[keep], N_CLASSES, weights, intercept)
    if name == "huber":
        return HuberLoss(targets[keep], weights, intercept, EPSILON)
    if name == "poisson":
        return PoissonLoss(counts()[keep], weights, intercept)
    if name == "targets":
        columns = several_targets()[keep].T
        return SeveralTargets(tuple(SquaredLoss(column, weights, intercept) for column in columns))
    return SquaredLoss(targets[keep], weights, intercept)


def random_predictions(name, seed=0, scale=2.0):
    shape = (N_SAMPLES, N_CLASSES) if name in MATRIX_LOSSES else (N_SAMPLES,)
    return scale * np.random.default_rng(seed).normal(size=shape)


with_all_losses = pytest.mark.parametrize("name", [*LOSSES, "poisson"])
with_and_without_intercept = pytest.mark.parametrize("intercept", [False, True])


@with_all_losses
@with_and_without_intercept
def test_residual_and_curvature_match_finite_differences(name, intercept):
    loss, z = make_loss(name, intercept), random_predictions(name)
    change, h = random_predictions(name, seed=1), 1e-5
    ahead, behind, here = loss.evaluate(z + h * change), loss.evaluate(z - h * change), loss.evaluate(z)
    assert np.vdot(here.residual, change) == pytest.approx((ahead.value - behind.value) / (2 * h), rel=1e-6)
    slopes = [np.vdot(point.residual, change) for point in (ahead, behind)]
    curvature = loss.curvature_along(here, change)
    assert curvature == pytest.approx((slopes[0] - slopes[1]) / (2 * h), rel=1e-6)
    assert loss.curvature_bound(change) >= curvature * (1 - 1e-12)


@with_all_losses
@with_and_without_intercept
def test_offset_is_the_tangent_planes_height(name, intercept):
    loss, z = make_loss(name, intercept), random_predictions(name)
    point = loss.evaluate(z)
    assert np.abs(point.residual).sum() <= point.size * (1 + 1e-15)
    assert point.offset == pytest.approx(point.value - np.vdot(point.residual, z), abs=1e-14)
    for seed in range(1, 20):
        other = random_predictions(name, seed, scale=5.0)
        assert point.offset + np.vdot(point.residual, other) <= loss.evaluate(other).value + 1e-14


@with_all_losses
def test_intercept_is_profiled_out(name):
    """The profiled loss is the reference loss at the best intercept, where its slope vanishes."""
    X = data()[0]
    rng = np.random.default_rng(3)
    x = rng.normal(size=(X.shape[1], N_CLASSES) if name in MATRIX_LOSSES else X.shape[1])
    point = make_loss(name, True).evaluate(X @ x)
    value, _, slope = reference_loss(name, x, point.intercept)
    assert point.value == pytest.approx(value, rel=1e-14)
    np.testing.assert_allclose(slope, 0.0, atol=1e-15)
    np.testing.assert_allclose(point.residual.sum(axis=0), 0.0, atol=1e-15)
    for delta in (-1e-3, 1e-3):
        shift = delta * np.arange(N_CLASSES) if name in MATRIX_LOSSES else delta
        assert reference_loss(name, x, point.intercept + shift)[0] > value


@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])
def test_balancing_classes_keeps_the_plane_below_the_loss(shift):
    """Far from the best intercept of a rare class; checked where the moved plane touches the loss."""
    weights, labels = np.full(50, 1 / 50), np.append(np.zeros(48, dtype=int), [1, 2])
    z = shift + 0.1 * np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 2.0, 3.0]
    loss = MultinomialLoss(labels, 3, weights, fit_intercept=True)
    moved = loss._balance(MultinomialLoss(labels, 3, weights).evaluate(z))
    np.testing.assert_allclose(moved.residual.sum(axis=0), 0.0, atol=1e-15)
    touching = np.log(moved.residual / weights[:, np.newaxis] + np.eye(3)[labels])
    assert moved.offset + np.vdot(moved.residual, touching) <= loss.evaluate(touching).value + 1e-14


@pytest.mark.parametrize("intercept", [False, True])
def test_largest_curvature_is_attained(intercept):
    """Where two classes are equally likely and all others are out of the question, and where a label is."""
    # Two samples, mirror images: the best intercepts are zero, and stay there.
    binary = LogisticLoss(np.array([1.0, -1.0]), np.full(2, 0.5), intercept)
    change = np.array([1.0, -1.0])
    assert binary.curvature_along(binary.evaluate(np.zeros(2)), change) == pytest.approx(
        binary.curvature_bound(change), rel=1e-12
    )
    labels, z = np.array([0, 1, 2, 2]), np.array([[0.0, 0.0, -60.0]] * 2 + [[-60.0, -60.0, 0.0]] * 2)
    several = MultinomialLoss(labels, 3, np.full(4, 0.25), intercept)
    change = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    point = several.evaluate(z)
    assert several.curvature_along(point, change) == pytest.approx(several.curvature_bound(change), rel=1e-12)
    assert np.vdot(change, several.hessian(point).apply(change)) == pytest.approx(
        several.curvature_bound(change), rel=1e-12
    )


@with_all_losses
@with_and_without_intercept
def test_curvature_bound_holds_everywhere(name, intercept):
    loss = make_loss(name, intercept)
    for seed in range(30):
        z, change = random_predictions(name, seed, scale=seed / 5), random_predictions(name, seed + 100)
        bound = loss.curvature_bound(change)
        assert loss.curvature_along(loss.evaluate(z), change) <= bound * (1 + 1e-12)


@with_all_losses
@with_and_without_intercept
def test_weight_is_repetition(name, intercept):
    z = random_predictions(name)
    counts = np.random.default_rng(5).integers(1, 4, N_SAMPLES)
    weighted = make_loss(name, intercept, weights=counts / counts.sum()).evaluate(z)
    rows = np.repeat(np.arange(N_SAMPLES), counts)
    repeated = make_loss(name, intercept, rows, np.full(len(rows), 1 / len(rows))).evaluate(z[rows])
    assert weighted.value == pytest.approx(repeated.value, rel=1e-14)
    assert weighted.offset == pytest.approx(repeated.offset, rel=1e-13)
    np.testing.assert_allclose(
        np.atleast_1d(weighted.intercept), np.atleast_1d(repeated.intercept), atol=1e-13
    )


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
@with_and_without_intercept
@pytest.mark.parametrize("scale", [1e4, 1e150, 1e300])
def test_huge_margins(name, intercept, scale):
    loss, z = make_loss(name, intercept), random_predictions(name, scale=scale)
    point = loss.evaluate(z)
    assert np.isfinite([point.value, point.offset]).all()
    assert np.isfinite(point.residual).all()
    assert 0.0 <= point.offset <= np.log(N_CLASSES)
    # The plane stays below the loss where it is small: at zero.
    assert point.offset <= loss.evaluate(0.0 * z).value + 1e-15
    if intercept:
        np.testing.assert_allclose(point.residual.sum(axis=0), 0.0, atol=1e-15)


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_log_loss_is_exact_at_huge_margins(name):
    z = random_predictions(name, scale=1e4)
    _, weights, signs, labels, _ = data()
    exact = (
        np.maximum(-signs * z, 0) if name == "logistic" else z.max(axis=1) - z[np.arange(N_SAMPLES), labels]
    )
    assert make_loss(name, False).evaluate(z).value == pytest.approx(weights @ exact, rel=1e-12)


@pytest.mark.parametrize("margin", [5.0, 40.0, 200.0])
def test_tiny_losses_keep_their_digits(margin):
    """A separated sample has a loss and a residual of about exp(-margin), not zero."""
    binary = LogisticLoss(np.ones(1), np.ones(1)).evaluate(np.array([margin]))
    # Three classes, two of them equally far behind.
    ternary = MultinomialLoss(np.array([0]), 3, np.ones(1)).evaluate(np.array([[margin, 0.0, 0.0]]))
    for point, others in ((binary, np.exp(-margin)), (ternary, 2 * np.exp(-margin))):
        entropy = np.log1p(others) + margin * others / (1 + others)
        reached = [point.value, -point.residual.flat[0], point.offset]
        np.testing.assert_allclose(reached, [np.log1p(others), others / (1 + others), entropy], rtol=1e-14)


def test_multinomial_intercept_takes_few_evaluations(monkeypatch):
    calls = []
    inner = MultinomialLoss._evaluate_at
    monkeypatch.setattr(MultinomialLoss, "_evaluate_at", lambda *args: calls.append(1) or inner(*args))
    rng = np.random.default_rng(0)
    for n_samples in (10, 500):
        labels = np.append([0, 1, 2], rng.choice(3, n_samples - 3, p=[0.98, 0.01, 0.01]))
        loss = MultinomialLoss(labels, 3, np.full(n_samples, 1 / n_samples), True)
        for scale in (0.1, 1.0, 10.0):
            for _ in range(20):
                loss.evaluate(scale * rng.normal(size=(n_samples, 3)))
    assert len(calls) / 120 < 12


@with_all_losses
@with_and_without_intercept
def test_hessian_matches_finite_differences_of_the_residual(name, intercept):
    loss, z = make_loss(name, intercept), random_predictions(name)
    change, h = random_predictions(name, seed=1), 1e-5
    hessian = loss.hessian(loss.evaluate(z))
    ahead, behind = loss.evaluate(z + h * change), loss.evaluate(z - h * change)
    np.testing.assert_allclose(
        hessian.apply(change), (ahead.residual - behind.residual) / (2 * h), rtol=1e-5, atol=1e-9
    )
    fixed = make_loss(name, False).hessian(make_loss(name, False).evaluate(z + np.asarray(0.0)))
    unit = np.zeros_like(z)
    unit.flat[5] = 1.0
    assert fixed.diagonal.flat[5] == pytest.approx(fixed.apply(unit).flat[5])


@with_all_losses
@with_and_without_intercept
def test_subset_is_the_loss_of_those_samples(name, intercept):
    rows = np.arange(0, N_SAMPLES, 2)
    loss, z = make_loss(name, intercept), random_predictions(name)
    part = loss.subset(rows)
    weights = loss.weights[rows] / loss.weights[rows].sum()
    expected = make_loss(name, intercept, rows, weights)
    assert part.evaluate(z[rows]).value == pytest.approx(expected.evaluate(z[rows]).value, rel=1e-14)


def test_subset_without_all_classes_is_no_problem():
    _, weights, signs, labels, _ = data()
    assert LogisticLoss(signs, weights).subset(np.flatnonzero(signs > 0)) is None
    assert MultinomialLoss(labels, N_CLASSES, weights).subset(np.flatnonzero(labels != 1)) is None


def test_size_of_a_balanced_residual(monkeypatch):
    """Where the intercepts were not found, the residual that sums to zero is another one, and larger."""
    monkeypatch.setattr("skfw.engine.losses._multinomial._NEWTON_STEPS", 0)
    rng = np.random.default_rng(0)
    labels = np.arange(12) % 3
    loss, ratios = MultinomialLoss(labels, 3, np.full(12, 1 / 12), True), []
    for scale in (0.0, 1.0, 10.0, 30.0):
        for noise in (1e-3, 1.0, 5.0):
            found = loss.evaluate(scale * np.eye(3)[labels] + noise * rng.normal(size=(12, 3)))
            np.testing.assert_allclose(found.residual.sum(axis=0), np.zeros(3), atol=1e-15)
            ratios.append(np.abs(found.residual).sum() / found.size)
    assert max(ratios) <= 1 + 1e-12


@pytest.mark.parametrize("mean", [1e4, 1e8])
@pytest.mark.parametrize("name", ["logistic", "multinomial", "squared"])
def test_curvature_along_a_change_with_a_large_mean(name, mean):
    """The intercept takes the mean; nothing of the rest may be lost in it."""
    rng = np.random.default_rng(0)
    weights = np.full(30, 1 / 30)
    loss = {
        "logistic": LogisticLoss(np.where(np.arange(30) % 3, 1.0, -1.0), weights, True),
        "multinomial": MultinomialLoss(np.arange(30) % 3, 3, weights, True),
        "squared": SquaredLoss(rng.normal(size=30), weights, True),
    }[name]
    shape = (30, 3) if name == "multinomial" else 30
    point, change = loss.evaluate(rng.normal(size=shape)), rng.normal(size=shape)
    expected = loss.curvature_along(point, change)
    assert loss.curvature_along(point, change + mean) == pytest.approx(expected, rel=1e-12 * mean)
    bound = loss.curvature_bound(change)
    assert expected <= bound
    assert loss.curvature_bound(change + mean) == pytest.approx(bound, rel=1e-12 * mean)
    apply = loss.hessian(point).apply
    np.testing.assert_allclose(apply(change + mean), apply(change), rtol=1e-12 * mean, atol=1e-15 * mean)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e3, 1e6])
def test_intercepts_of_features_with_a_large_mean_are_found_soon(mean, monkeypatch):
    """Each class's predictions are far from those of the others, and close together."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5))
    labels = np.argmax(X @ rng.normal(size=(5, 3)) + rng.gumbel(size=(1000, 3)), axis=1)
    loss = MultinomialLoss(labels, 3, np.full(1000, 1e-3), True)
    evaluate, calls = MultinomialLoss._evaluate_at, []
    monkeypatch.setattr(MultinomialLoss, "_evaluate_at", lambda *args: calls.append(1) or evaluate(*args))
    guess = np.zeros(3)
    for _ in range(5):
        coef = rng.normal(size=(5, 3))
        calls.clear()
        found = loss.evaluate((X + mean) @ coef, guess)
        assert len(calls) <= 25
        guess = found.intercept
        # The best intercepts are those of centred features, up to the shift and a number for all of them.
        shift = found.intercept - loss.evaluate(X @ coef).intercept + mean * coef.sum(axis=0)
        assert np.ptp(shift) <= 1e-12 * max(mean, 1e3)

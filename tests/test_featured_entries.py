"""Entries of ``A x C^T`` against dense matrices, and what is known of their rounding errors."""

from dataclasses import replace

import numpy as np
import pytest
from problems import MOMENTA, STEPS, completion
from scipy import sparse

from skfw.engine import (
    BiasedSquaredLoss,
    Constraint,
    EntryMatrix,
    FactoredMatrix,
    FeaturedEntries,
    FeatureMap,
    Hint,
    LinearMinimum,
    MappedMatrix,
    NuclearBall,
    ObservedEntries,
    Problem,
    RankOne,
    SquaredLoss,
    WeightedNuclearBall,
    best_corrector,
    frank_wolfe,
)

EPSILON = np.finfo(np.float64).eps
SHAPE = (8, 6)
# The share of the entries that are observed: of few, and of most, directions are made of different kinds.
SHARES = {"few": (0.25, EntryMatrix), "most": (0.8, np.ndarray)}
# The number of features of rows and of columns.
COUNTS = [(0, 0), (2, 0), (0, 3), (2, 3)]

every_share = pytest.mark.parametrize("share", SHARES)
every_count = pytest.mark.parametrize("counts", COUNTS, ids=str)


def example(share="few", counts=(2, 3)):
    """Return entries, some of them twice, the dense maps, and random numbers."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.uniform(size=SHAPE) < SHARES[share][0])
    rows, columns = np.append(rows, rows[:3]), np.append(columns, columns[:3])
    features = [
        rng.normal(size=(length, count)) * (rng.uniform(size=(length, count)) < 0.7)
        for length, count in zip(SHAPE, counts, strict=True)
    ]
    maps = [FeatureMap(sparse.csr_matrix(each)) for each in features]
    dense = [np.hstack([np.eye(len(each)), each]) for each in features]
    return FeaturedEntries(ObservedEntries(rows, columns, SHAPE), *maps), dense, rng


def at_entries(entries, matrix):
    return matrix[entries.observed.row_indices, entries.observed.column_indices]


def spread_out(entries, residual):
    matrix = np.zeros(SHAPE)
    np.add.at(matrix, (entries.observed.row_indices, entries.observed.column_indices), residual)
    return matrix


def dense(direction):
    return direction @ np.eye(direction.shape[1])


@every_share
@every_count
def test_predictions(share, counts):
    entries, (A, C), rng = example(share, counts)
    assert entries.shape == (A.shape[1], C.shape[1])
    left, right = (rng.normal(size=(length, 2)) for length in entries.shape)
    x = FactoredMatrix(left, right, np.array([2.0, -1.0]))
    expected = at_entries(entries, A @ (left * x.weights) @ right.T @ C.T)
    np.testing.assert_allclose(entries.apply(x), expected, atol=1e-13)
    np.testing.assert_allclose(entries.products(left * x.weights, right), expected, atol=1e-13)
    single = at_entries(entries, np.outer(A @ left[:, 0], C @ right[:, 0]))
    np.testing.assert_allclose(entries.apply_rank_one(left[:, 0], right[:, 0]), single, atol=1e-13)
    assert entries.zeros().shape == entries.shape
    assert (entries.n_atoms(x), entries.n_atoms(entries.zeros())) == (2, 0)
    with pytest.raises(TypeError, match="rank-one"):
        entries.apply_sparse(np.array([0]), np.array([1.0]))


@every_share
@every_count
def test_adjoint(share, counts):
    entries, (A, C), rng = example(share, counts)
    residual = rng.normal(size=len(entries.observed.row_indices))
    direction = entries.adjoint(residual)
    assert isinstance(direction.matrix, SHARES[share][1])
    assert direction.shape == entries.shape
    np.testing.assert_allclose(dense(direction), A.T @ spread_out(entries, residual) @ C, atol=1e-13)
    left, right = (rng.normal(size=length) for length in entries.shape)
    product = residual @ entries.apply_rank_one(left, right)
    assert left @ (direction @ right) == pytest.approx(product, rel=1e-12)


@every_share
def test_arithmetic_of_directions_is_that_of_dense_matrices(share):
    entries, _, rng = example(share)
    first, second = (entries.adjoint(rng.normal(size=len(entries.observed.row_indices))) for _ in range(2))
    row, column = rng.uniform(0.5, 2.0, entries.shape[1]), rng.uniform(0.5, 2.0, (entries.shape[0], 1))
    a, b = dense(first), dense(second)
    results = {
        "sum": (first + second, a + b),
        "multiple": (3.0 * first, 3.0 * a),
        "numpy number": (np.float64(3.0) * first, 3.0 * a),
        "quotient": (first / 7.0, a / 7.0),
        "column": (column * first, column * a),
        "row": (first * row, a * row),
        "column and row, twice": (column * (column * first * row) * row, column**2 * a * row**2),
        "transpose": (first.T, a.T),
        "average": (0.25 * first + 0.75 * second, 0.25 * a + 0.75 * b),
    }
    for name, (found, expected) in results.items():
        assert isinstance(found, MappedMatrix)
        assert found.shape == expected.shape
        for vectors in (rng.normal(size=expected.shape[1]), rng.normal(size=(expected.shape[1], 3))):
            np.testing.assert_allclose(found @ vectors, expected @ vectors, atol=1e-12, err_msg=name)
            assert (found.astype(np.float32) @ vectors.astype(np.float32)).dtype == np.float32
    for matrix, array in ((first, a), (column * first * row, column * a * row)):
        gram = matrix.T @ matrix
        assert isinstance(gram, np.ndarray)
        np.testing.assert_allclose(gram, array.T @ array, atol=1e-12)
    np.testing.assert_array_equal(dense(first), a)  # which nothing has changed


@every_share
@every_count
def test_bounds_of_absolute_values(share, counts):
    """They hold for what the sizes of all terms add up to, not only for the matrix itself."""
    entries, (A, C), rng = example(share, counts)
    row, column = rng.uniform(0.5, 2.0, entries.shape[1]), rng.uniform(0.5, 2.0, (entries.shape[0], 1))
    for _ in range(20):
        residual = rng.normal(size=len(entries.observed.row_indices)) * rng.uniform(size=1) ** 3
        direction = entries.adjoint(residual)
        sizes = np.abs(A).T @ np.abs(spread_out(entries, residual)) @ np.abs(C)
        total = np.abs(residual).sum()
        for bound in (abs(direction), replace(entries.adjoint_size(), size=total)):
            scaled = column * bound * row
            assert bound.max() >= np.linalg.norm(sizes) * (1 - 1e-14)
            assert scaled.max() >= np.linalg.norm(column * sizes * row) * (1 - 1e-14)
            np.testing.assert_array_equal(bound.ravel(), [bound.max()])


def test_the_size_of_an_adjoint_is_attained():
    """By a residual at one entry, the one whose row and column have the longest features."""
    entries, (A, C), _ = example()
    row, column = (int(np.linalg.norm(each, axis=1).argmax()) for each in (A, C))
    entries = replace(entries, observed=ObservedEntries(np.array([row, 0]), np.array([column, 0]), SHAPE))
    largest = dense(entries.adjoint(np.array([1.0, 0.0])))
    assert entries.adjoint_size().max() == pytest.approx(np.linalg.norm(largest), rel=1e-12)


@every_count
def test_squared_norm_is_an_upper_bound(counts):
    entries, (A, C), rng = example(counts=counts)
    weights = rng.uniform(size=len(entries.observed.row_indices))
    rows, columns = entries.observed.row_indices, entries.observed.column_indices
    X = np.einsum("ij,ik->ijk", A[rows], C[columns]).reshape(len(rows), -1)
    largest = np.linalg.eigvalsh(X.T @ (weights[:, np.newaxis] * X))[-1]
    assert largest * (1 - 1e-12) <= entries.squared_norm(weights) <= 50 * largest
    if counts == (0, 0):
        assert entries.squared_norm(weights) == entries.observed.squared_norm(weights)


def test_products_take_longer_with_features():
    assert example()[0].product_cost > example(counts=(2, 0))[0].product_cost
    assert example()[0].product_cost > example()[0].observed.product_cost


@pytest.mark.parametrize("lengths", [(7, 6), (8, 5), (6, 8)])
def test_features_of_another_shape(lengths):
    maps = [FeatureMap.identity(length) for length in lengths]
    message = rf"shape \(8, 6\); got features of {lengths[0]} rows and of {lengths[1]} columns"
    with pytest.raises(ValueError, match=message):
        FeaturedEntries(example()[0].observed, *maps)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e71, -1e200])
@pytest.mark.parametrize("side", ["row_map", "column_map"])
def test_features_that_are_no_numbers_or_too_large(wrong, side):
    entries, _, _ = example()
    features = getattr(entries, side).features.copy()
    features.data[1] = wrong
    with pytest.raises(ValueError, match=rf"{side} must have features of up to 1e\+70; got features of up"):
        replace(entries, **{side: FeatureMap(features)})


# What rounding does.


def exact_direction(entries, residual):
    """Return ``A^T R C`` with more digits than a float has."""
    observed = entries.observed
    R = np.zeros(observed.shape, dtype=np.longdouble)
    np.add.at(R, (observed.row_indices, observed.column_indices), residual.astype(np.longdouble))
    A, C = (
        np.hstack([np.eye(each.shape[0]), each.features.toarray()]).astype(np.longdouble)
        for each in (entries.row_map, entries.column_map)
    )
    return A.T @ R @ C


def cancelling(seed, shape, mean, sides, repetitions=1):
    """Return entries whose features have a large mean, and a residual that sums to about zero in each row."""
    rng = np.random.default_rng(seed)
    rows, columns = (np.repeat(each, repetitions) for each in np.nonzero(rng.uniform(size=shape) < 0.5))
    observed = ObservedEntries(rows, columns, shape)
    features = [
        mean + rng.normal(size=(length, 2 if sides in (side, "both") else 0))
        for side, length in zip(("rows", "columns"), shape, strict=True)
    ]
    weights = np.full(len(rows), 1.0 / len(rows))
    loss = BiasedSquaredLoss(rng.normal(size=len(rows)), weights, observed, 1e-12, 1e-12)
    entries = FeaturedEntries(observed, *(FeatureMap(sparse.csr_matrix(each)) for each in features))
    return entries, loss.evaluate(np.zeros(len(rows))).residual


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e8, 1e12, 1e40])
@pytest.mark.parametrize("repetitions", [1, 30])
def test_rounding_of_products_with_vectors(mean, repetitions):
    rng = np.random.default_rng(0)
    for seed in range(20):
        entries, residual = cancelling(seed, (30, 20), mean, "rows", repetitions)
        direction, exact = entries.adjoint(residual), exact_direction(entries, residual)
        size = float(np.abs(residual).sum())
        allowed = entries.adjoint_error(size).max()
        for matrix, array in ((direction, exact), (direction.T, exact.T)):
            vector = rng.normal(size=matrix.shape[1])
            vector /= np.linalg.norm(vector)
            assert np.linalg.norm((matrix @ vector - array @ vector).astype(np.float64)) <= allowed
        assert allowed <= 150 * EPSILON * size * entries.adjoint_size().max()


def test_rounding_of_an_entry_that_is_repeated_often():
    """The errors of a long sum are in the matrix before it is multiplied by anything."""
    often = 100_000
    rows = np.append(np.zeros(often, dtype=np.intp), [1, 2])
    features = FeatureMap(sparse.csr_matrix(np.ones((3, 1))))
    entries = FeaturedEntries(ObservedEntries(rows, rows, (3, 3)), features, features)
    residual = np.full(len(rows), 0.1)
    off = np.linalg.norm(
        (dense(entries.adjoint(residual)) - exact_direction(entries, residual)).astype(float)
    )
    size = float(residual.sum())
    assert 100 * EPSILON * abs(entries.adjoint(residual)).max() < off <= entries.adjoint_error(size).max()


@pytest.mark.parametrize("sides", ["rows", "columns", "both"])
@pytest.mark.parametrize("shape", [(30, 20), (130, 150)], ids=["dense oracle", "lanczos"])
def test_bound_survives_cancellation(shape, sides):
    """Features with a large mean, such as years, and biases that leave nothing of it: all but rounding."""
    missed = []
    for mean in (0.0, 1e4, 1e8, 1e12, 1e40):
        for seed in range(6 if shape[0] < 100 else 2):
            entries, residual = cancelling(seed, shape, mean, sides)
            loss = SquaredLoss(residual, np.full(len(residual), 1.0 / len(residual)))
            ball = NuclearBall(1.0)
            minimum = ball.lmo(entries.adjoint(residual), Hint((seed,)))
            exact = np.linalg.svd(exact_direction(entries, residual).astype(np.float64), compute_uv=False)[0]
            errors = entries.adjoint_error(float(np.abs(residual).sum()))
            effect = ball.error_effect(errors, Problem(loss, entries, ball).null.x)
            missed.append((exact + minimum.value - minimum.slack) / effect)
    assert max(missed) <= 1.0


def test_effect_of_errors_in_a_weighted_ball():
    entries, (A, C), rng = example("most")
    weights = [rng.uniform(0.2, 5.0, length) for length in entries.shape]
    ball, zero = WeightedNuclearBall(3.0, *weights), entries.zeros()
    effect = ball.error_effect(entries.adjoint_size(), zero)
    n_entries = len(entries.observed.row_indices)
    for i in range(n_entries):  # errors of one residual, in any direction of the ball
        error = dense(entries.adjoint(np.eye(n_entries)[i]))
        assert -ball.lmo(error).value <= effect * (1 + 1e-12)
    longest = [
        np.linalg.norm(each / weight, axis=1).max() for each, weight in zip((A, C), weights, strict=True)
    ]
    assert effect == pytest.approx(3.0 * np.prod(longest), rel=1e-12)


# Whole runs, with features of all sizes.


@pytest.mark.parametrize("features", ["rows", "columns", "both", "constant", "zero"])
@pytest.mark.parametrize("scale", [1e-100, 1e3, 1e69])
@pytest.mark.parametrize("loss, ball", [("squared", "plain"), ("biased", "weighted")])
def test_certified_optimum_whatever_the_size_of_the_features(features, scale, loss, ball):
    p = completion(features, loss, ball, scale)
    null = p.problem.null.value
    for momentum in MOMENTA.values():
        for step_rule in STEPS.values():
            for corrected in (False, True):
                result = frank_wolfe(
                    p.problem,
                    momentum=momentum,
                    step_rule=step_rule,
                    corrector=best_corrector(p.problem) if corrected else None,
                    tolerance=1e-6 * null,
                    max_iter=20,
                )
                assert result.trace["lower_bound"].max() <= p.optimum + 1e-9 * null
                assert result.objective >= p.optimum - 1e-9 * null
                if corrected:
                    assert result.status == "converged"


@pytest.mark.parametrize("scale, feature_scale", [(1e-140, 1.0), (1e100, 1.0), (1e60, 1e69)])
def test_targets_of_any_size(scale, feature_scale):
    """Neither the oracle nor the corrector forms squares that overflow or underflow."""
    p = completion("both", "squared", "plain", feature_scale).problem
    loss = SquaredLoss(scale * p.loss.targets, p.loss.weights)
    scaled = Problem(loss, p.data, NuclearBall(scale * p.constraint.radius))
    results = [
        frank_wolfe(each, corrector=best_corrector(each), tolerance=1e-6 * each.null.value, max_iter=30)
        for each in (p, scaled)
    ]
    assert [result.status for result in results] == ["converged"] * 2
    assert results[1].objective / scale / scale == pytest.approx(results[0].objective, rel=1e-6)


def test_features_times_radius_are_too_large():
    """It is said so before anything overflows."""
    p = completion("both", "squared", "plain", 1e69).problem
    with pytest.raises(ValueError, match="too large for floating-point numbers"):
        frank_wolfe(p.within(NuclearBall(1e20)), max_iter=3)


def test_a_low_rank_set_of_ones_own():
    """Its directions are not formed, and the bound of their errors is the default one."""

    class OwnBall(Constraint):
        contains_zero = low_rank = True

        def lmo(self, direction, hint=None):
            left, values, right = np.linalg.svd(direction @ np.eye(direction.shape[1]))
            return LinearMinimum(RankOne(left[:, 0], right[0], -2.0), -2.0 * float(values[0]))

        def diameter(self, shape):
            return 4.0

    p = completion("both", "squared", "plain")
    assert p.problem.constraint.radius == 2.0
    problem = p.problem.within(OwnBall())
    result = frank_wolfe(problem, corrector=best_corrector(problem), tolerance=1e-4, max_iter=100)
    assert result.status == "converged"
    assert result.lower_bound <= p.optimum <= result.objective + 1e-12

from itertools import combinations

import numpy as np
import pytest
from problems import CONSTRAINTS, GROUPS
from scipy import sparse
from scipy.optimize import minimize

from skfw.engine import (
    Constraint,
    FactoredMatrix,
    GroupBall,
    Hint,
    L1Ball,
    L2Ball,
    LinearMinimum,
    LInfBall,
    NSupportBall,
    NuclearBall,
    Simplex,
    SparseVector,
    WeightedNuclearBall,
)

RNG = np.random.default_rng(0)
SHAPES = {"vector": (4,), "matrix": (4, 3)}
CASES = [(name, shape) for name in CONSTRAINTS for shape in SHAPES if (name, shape) != ("nuclear", "vector")]


def as_array(atom, shape):
    return np.zeros(shape) + atom


def random_points(name, constraint, shape, count=300):
    """Points of the set, most of them on its boundary, made without its oracle."""
    for _ in range(count):
        x = RNG.normal(size=shape)
        if name == "simplex":
            yield constraint.radius * RNG.dirichlet(np.full(x.size, 0.3)).reshape(shape)
        elif name == "n_support":  # a mixture of points of the balls on two coordinates
            point = np.zeros(x.size)
            for share in RNG.dirichlet(np.full(3, 0.3)):
                pair = RNG.choice(x.size, 2, replace=False)
                point[pair] += share * constraint.radius * x.flat[pair] / np.linalg.norm(x.flat[pair])
            yield point.reshape(shape)
        else:
            yield constraint.radius / reference_norm(name, x) * x


def reference_norm(name, x):
    if name == "group":
        return sum(np.linalg.norm(x[group == GROUPS]) for group in np.unique(GROUPS))
    if name == "n_support":
        return n_support_norm_by_duality(x.ravel(), 2)
    if name == "nuclear":
        return np.linalg.svd(x, compute_uv=False).sum()
    return np.linalg.norm(x.ravel(), {"l1": 1, "l2": 2, "linf": np.inf}[name])


def n_support_norm_by_duality(x, k):
    """The largest <x, g> over all g whose entries on any k coordinates have a norm of at most one."""
    supports = [list(support) for support in combinations(range(len(x)), k)]
    result = minimize(
        lambda g: -x @ g,
        x / np.linalg.norm(x),
        jac=lambda g: -x,
        constraints=[{"type": "ineq", "fun": lambda g, s=s: 1 - g[s] @ g[s]} for s in supports],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return -result.fun


@pytest.mark.parametrize("name, shape", CASES)
def test_oracle_minimises_over_the_set(name, shape):
    constraint, shape = CONSTRAINTS[name], SHAPES[shape]
    points = list(random_points(name, constraint, shape))
    for _ in range(20):
        direction = RNG.normal(size=shape)
        minimum = constraint.lmo(direction)
        atom = as_array(minimum.atom, shape)
        assert np.vdot(direction, atom) == pytest.approx(minimum.value)
        assert minimum.slack <= 1e-12
        assert min(np.vdot(direction, point) for point in points) >= minimum.value - 1e-6
        if name != "simplex":
            assert constraint.norm(atom) == pytest.approx(constraint.radius)
        # The value is the support function, which for these sets has a formula of its own.
        assert minimum.value == pytest.approx(-constraint.radius * dual_norm(name, direction))


def dual_norm(name, g):
    if name == "simplex":
        return -g.min()
    if name == "group":
        return max(np.linalg.norm(g[group == GROUPS]) for group in np.unique(GROUPS))
    if name == "n_support":
        return np.linalg.norm(np.sort(np.abs(g).ravel())[-2:])
    if name == "nuclear":
        return np.linalg.norm(g, 2)
    return np.linalg.norm(g.ravel(), {"l1": np.inf, "l2": 2, "linf": 1}[name])


@pytest.mark.parametrize("name, shape", CASES)
@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200])
def test_oracle_on_zero_and_extreme_directions(name, shape, scale):
    constraint, shape = CONSTRAINTS[name], SHAPES[shape]
    direction = RNG.normal(size=shape)
    minimum = constraint.lmo(scale * direction)
    atom = as_array(minimum.atom, shape)
    assert np.isfinite(atom).all()
    assert minimum.value == pytest.approx(scale * constraint.lmo(direction).value, rel=1e-12)
    if name == "simplex":
        assert atom.sum() == pytest.approx(constraint.radius)
    else:
        assert constraint.norm(atom) <= constraint.radius * (1 + 1e-12)


@pytest.mark.parametrize("name, shape", CASES)
def test_diameter_is_reached_but_not_exceeded(name, shape):
    constraint, shape = CONSTRAINTS[name], SHAPES[shape]
    diameter = constraint.diameter(shape)
    points = list(random_points(name, constraint, shape, 20))
    assert max(np.linalg.norm(a - b) for a in points for b in points) <= diameter * (1 + 1e-6)
    direction = np.linspace(1, 2, int(np.prod(shape))).reshape(shape)
    ends = [as_array(constraint.lmo(sign * direction).atom, shape) for sign in (1, -1)]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(diameter)


@pytest.mark.parametrize("name, shape", [case for case in CASES if case[0] != "simplex"])
def test_norms(name, shape):
    for _ in range(5):
        x = RNG.normal(size=SHAPES[shape])
        assert CONSTRAINTS[name].norm(x) == pytest.approx(reference_norm(name, x), rel=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_n_support_norm_and_oracle_between_l1_and_l2(k):
    x = np.array([3.0, -2.0, 2.0, 0.5, 0.0])
    ball = NSupportBall(1.0, k)
    assert ball.norm(x) == pytest.approx(n_support_norm_by_duality(x, k), rel=1e-6)
    minimum = ball.lmo(x)
    kept = np.flatnonzero(as_array(minimum.atom, 5))
    assert 0 in kept  # the largest coordinate, which the authors' public oracle drops
    assert len(kept) <= k
    if k == 1:
        assert ball.norm(x) == pytest.approx(np.abs(x).sum())
    if k == 5:
        assert ball.norm(x) == pytest.approx(np.linalg.norm(x))


def test_n_support_norm_with_ties():
    for k in range(1, 7):
        for x in (np.ones(6), np.array([1.4929497050817915] * 2 + [0.9952998033878611] * 4), np.eye(6)[0]):
            assert NSupportBall(1.0, k).norm(x) == pytest.approx(n_support_norm_by_duality(x, k), rel=1e-6)


@pytest.mark.parametrize("shape", [(300, 200), (150, 400), (120, 120)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("accuracy", [1.0, 1e-2, 1e-8])
def test_nuclear_oracle_encloses_the_minimum(shape, kind, accuracy):
    rng = np.random.default_rng(3)
    dense = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.1)
    direction = sparse.csr_matrix(dense) if kind == "sparse" else dense
    ball, atom = NuclearBall(2.0), None
    exact = -2.0 * np.linalg.norm(dense, 2)
    for iteration in range(5):  # warm from call to call
        minimum = ball.lmo(direction, Hint(iteration, atom, accuracy))
        atom = minimum.atom
        assert minimum.value - minimum.slack - 1e-12 <= exact <= minimum.value + 1e-12
        assert minimum.slack <= accuracy + 1e-12
        assert atom.left @ (direction @ atom.right) * atom.scale == pytest.approx(minimum.value)
        assert [np.linalg.norm(atom.left), np.linalg.norm(atom.right)] == pytest.approx([1.0, 1.0])


def test_nuclear_oracle_owns_up_to_what_it_has_not_found():
    """Singular values so close together that Lanczos' method ends before it has the largest."""
    rng = np.random.default_rng(5)
    left, right = (np.linalg.qr(rng.normal(size=(length, 200)))[0] for length in (300, 200))
    direction = (left * np.linspace(1.0, 0.8, 200)) @ right.T
    for seed in range(10):
        minimum = NuclearBall(2.0, seed).lmo(direction, Hint(accuracy=0.2))
        assert minimum.value > -2.0 + 1e-6
        assert minimum.value - minimum.slack <= -2.0


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (130, 110)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_weighted_nuclear_ball(shape, kind):
    rng = np.random.default_rng(4)
    rows, columns = rng.uniform(0.3, 3.0, shape[0]), rng.uniform(0.3, 3.0, shape[1])
    ball = WeightedNuclearBall(2.0, rows, columns)
    ball.check(shape)
    dense = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.5)
    direction = sparse.csr_matrix(dense) if kind == "sparse" else dense
    minimum = ball.lmo(direction, Hint(accuracy=1e-9))
    exact = -2.0 * np.linalg.norm(dense / np.outer(rows, columns), 2)
    assert minimum.value - minimum.slack <= exact + 1e-12
    assert minimum.value == pytest.approx(exact, abs=1e-8)
    assert minimum.atom.inner(direction) == pytest.approx(minimum.value)
    again = ball.lmo(direction, Hint(1, minimum.atom, 1e-9))
    assert again.value == pytest.approx(exact, abs=1e-8)
    point = as_array(minimum.atom, shape)
    assert ball.norm(point) == pytest.approx(2.0)
    assert np.linalg.norm(point) <= ball.diameter(shape) / 2
    x = rng.normal(size=shape)
    assert ball.norm(x) == pytest.approx(np.linalg.svd(x * np.outer(rows, columns), compute_uv=False).sum())
    left, right = rng.normal(size=(shape[0], 2)), rng.normal(size=(shape[1], 2))
    factored = FactoredMatrix(left, right, np.array([1.0, -2.0]))
    assert ball.norm(factored) == pytest.approx(ball.norm((left * [1.0, -2.0]) @ right.T))


@pytest.mark.parametrize(
    "weights", [np.ones(3), np.array([1.0, 0.0]), np.array([1.0, np.inf]), np.ones((2, 1))]
)
def test_bad_matrix_weights(weights):
    with pytest.raises(ValueError, match="row_weights must be 2 positive, finite numbers"):
        WeightedNuclearBall(1.0, weights, np.ones(3)).check((2, 3))
    with pytest.raises(ValueError, match="column_weights must be 2 positive, finite numbers"):
        WeightedNuclearBall(1.0, np.ones(3), weights).check((3, 2))


def test_scale_into():
    x = np.array([3.0, -4.0])
    np.testing.assert_allclose(L2Ball(1.0).scale_into(x), [0.6, -0.8])
    assert L2Ball(10.0).scale_into(x) is x
    assert Simplex(1.0).scale_into(x) is None
    np.testing.assert_allclose(Simplex(1.0).scale_into(np.array([1.0, 3.0])), [0.25, 0.75])
    factored = FactoredMatrix(np.eye(2)[:, :1], np.eye(2)[:, 1:], np.array([4.0]))
    assert NuclearBall(1.0).norm(NuclearBall(1.0).scale_into(factored)) == pytest.approx(1.0)


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf, None, "1.5", 1j, [1.0]])
def test_bad_radius(radius):
    for constraint in (L1Ball(radius), Simplex(radius), NuclearBall(radius)):
        with pytest.raises(ValueError, match="radius must be a positive, finite number; got radius="):
            constraint.check((4, 3))


@pytest.mark.parametrize("size", [0, -1, 5, 1.5, "2"])
def test_bad_support_size(size):
    with pytest.raises(
        ValueError, match=r"support_size must be an integer .*n_features=4.*; got support_size="
    ):
        NSupportBall(1.0, size).check((4,))


@pytest.mark.parametrize("groups", [[0, 1], [0, 0, 1, -1], [0.0, 0.0, 1.0, 1.0], [[0, 0, 1, 1]]])
def test_bad_groups(groups):
    with pytest.raises(ValueError, match="groups must hold one non-negative integer"):
        GroupBall(1.0, np.array(groups)).check((4,))


def test_nuclear_ball_wants_a_matrix():
    with pytest.raises(ValueError, match="needs a matrix"):
        NuclearBall(1.0).check((4,))


def test_parameters_can_be_read_and_set():
    ball = GroupBall(1.0, GROUPS)
    assert set(ball.get_params()) == {"radius", "groups"}
    assert ball.set_params(radius=3.0) is ball
    assert ball.lmo(np.ones(4)).value == pytest.approx(-3.0 * np.sqrt(2.0))
    assert ball != GroupBall(1.0, GROUPS)
    with pytest.raises(ValueError, match="L1Ball has no parameter 'colour'"):
        L1Ball(1.0).set_params(colour="red")


def test_a_constraint_of_ones_own_starts_at_an_atom_and_cold():
    class UnitVectors(Constraint):
        def lmo(self, direction, hint=None):
            index = int(direction.argmin())
            return LinearMinimum(SparseVector(np.array([index]), np.ones(1)), float(direction[index]))

        def diameter(self, shape):
            return np.sqrt(2.0)

    assert UnitVectors().contains_zero is False
    assert UnitVectors().scale_into(np.ones(3)) is None
    assert LInfBall(1.0).contains_zero

from itertools import combinations, product

import numpy as np
import pytest
from problems import GROUPS, SETS_WITH_RADIUS, dense_completion
from scipy import sparse
from scipy.optimize import minimize

from skfw.engine import (
    ActiveAtoms,
    Constraint,
    DenseVector,
    EntryMatrix,
    FactoredMatrix,
    GroupBall,
    Hint,
    L1Ball,
    L2Ball,
    LinearMinimum,
    LInfBall,
    NSupportBall,
    NuclearBall,
    ObservedEntries,
    Problem,
    RankOne,
    Simplex,
    SparseVector,
    SquaredLoss,
    WeightedNuclearBall,
    best_corrector,
    frank_wolfe,
)

RNG = np.random.default_rng(0)
SHAPES = {"vector": (4,), "matrix": (4, 3)}
CASES = [
    (name, shape) for name in SETS_WITH_RADIUS for shape in SHAPES if (name, shape) != ("nuclear", "vector")
]


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
    constraint, shape = SETS_WITH_RADIUS[name], SHAPES[shape]
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
    constraint, shape = SETS_WITH_RADIUS[name], SHAPES[shape]
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
    constraint, shape = SETS_WITH_RADIUS[name], SHAPES[shape]
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
        assert SETS_WITH_RADIUS[name].norm(x) == pytest.approx(reference_norm(name, x), rel=1e-6)


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


def as_direction(dense, kind):
    return EntryMatrix(sparse.csr_matrix(dense)) if kind == "sparse" else dense


@pytest.mark.parametrize("shape", [(300, 200), (150, 400), (120, 120)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("accuracy", [1.0, 1e-2, 1e-8])
def test_nuclear_oracle_encloses_the_minimum(shape, kind, accuracy):
    rng = np.random.default_rng(3)
    dense = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.1)
    direction = as_direction(dense, kind)
    ball, memory = NuclearBall(2.0), None
    exact = -2.0 * np.linalg.norm(dense, 2)
    for iteration in range(5):  # warm from call to call
        minimum = ball.lmo(direction, Hint((iteration,), memory, accuracy))
        memory, atom = minimum.memory, minimum.atom
        assert minimum.value - minimum.slack - 1e-12 <= exact <= minimum.value + 1e-12
        assert minimum.slack <= accuracy + 1e-12
        assert atom.inner(direction) == pytest.approx(minimum.value)
        assert [np.linalg.norm(atom.left), np.linalg.norm(atom.right)] == pytest.approx([1.0, 1.0])


def test_nuclear_oracle_owns_up_to_what_it_has_not_found():
    """Singular values so close together that Lanczos' method ends before it has the largest."""
    rng = np.random.default_rng(5)
    left, right = (np.linalg.qr(rng.normal(size=(length, 200)))[0] for length in (300, 200))
    direction = (left * np.linspace(1.0, 0.8, 200)) @ right.T
    for seed in range(10):
        for accuracy, found in ((10.0, False), (0.2, False), (0.01, True)):  # from few steps to many
            minimum = NuclearBall(2.0, seed).lmo(direction, Hint(accuracy=accuracy))
            assert (minimum.value <= -2.0 + 1e-6) == found
            assert minimum.value - minimum.slack <= -2.0
            assert minimum.slack <= accuracy


@pytest.fixture
def count_products(monkeypatch):
    """Return the start vectors of calls of Lanczos' method, and how many products each made."""
    from skfw.engine.constraints import _nuclear

    starts, counts, method = [], [], _nuclear.largest_eigenvalue

    def spy(apply, *args, **kwargs):
        counts.append(0)

        def counted(vector):
            if not counts[-1]:
                starts.append(vector.copy())
            counts[-1] += 1
            return apply(vector)

        return method(counted, *args, **kwargs)

    monkeypatch.setattr(_nuclear, "largest_eigenvalue", spy)
    return starts, counts


def test_nuclear_oracle_starts_with_fresh_noise_for_each_key_and_seed(count_products):
    starts, _ = count_products
    direction = np.random.default_rng(0).normal(size=(150, 120))
    for seed, key in product((0, 1), ((0, 0), (1, 0), (0, 1), (0, 2**63), (0, 2**63 + 1))):
        NuclearBall(1.0, seed).lmo(direction, Hint(key, None, 1.0))
    NuclearBall(1.0).lmo(direction, Hint((0, 1), None, 1.0))
    assert len(starts) == 11
    similarities = np.abs(np.array(starts) @ np.array(starts).T)
    assert similarities[2, 10] == pytest.approx(1.0)  # the same seed and key
    others = similarities - np.diag(np.diag(similarities))
    others[[2, 10], [10, 2]] = 0.0
    assert others.max() < 0.5
    # Even beside the same memory the noise is another one.
    starts.clear()
    memory = np.eye(120)[0]
    for key in ((0,), (1,)):
        NuclearBall(1.0).lmo(direction, Hint(key, memory, 1.0))
    noises = [start / start[0] - memory for start in starts]
    assert abs(noises[0] @ noises[1]) < 0.5 * np.linalg.norm(noises[0]) * np.linalg.norm(noises[1])


@pytest.mark.parametrize("shape", [(300, 200), (150, 400)])
def test_nuclear_oracle_makes_use_of_its_memory(shape, count_products):
    """Where little accuracy is asked for, a few products find much more from a vector that is near."""
    starts, counts = count_products
    rng = np.random.default_rng(0)
    direction = rng.normal(size=shape)
    exact = np.linalg.norm(direction, 2)
    ball = NuclearBall(1.0)
    good = ball.lmo(direction, Hint((0,), None, 1e-3)).memory
    cold, warm = (ball.lmo(direction, Hint((1,), memory, 1e3)) for memory in (None, good))
    assert counts[1] == counts[2] < 10
    assert abs(starts[2] @ good) > 0.99
    assert exact + warm.value < 0.01 * (exact + cold.value)
    assert warm.memory.shape == (min(shape),)
    for minimum in (cold, warm):
        assert minimum.value - minimum.slack <= -exact <= minimum.value + 1e-12


@pytest.mark.parametrize("shape", [(100, 100), (400, 60), (60, 400), (3, 5000)])
@pytest.mark.parametrize("spectrum", ["flat", "steep", "one"])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_dense_branch_of_the_nuclear_oracle_is_exact_to_within_its_slack(shape, spectrum, scale):
    """With a largest singular value known by construction, to within the rounding of the matrix itself."""
    rng = np.random.default_rng(7)
    size = min(shape)
    left, right = (np.linalg.qr(rng.normal(size=(length, size)))[0] for length in shape)
    values = {"flat": np.ones(size), "steep": 0.1 ** np.arange(size), "one": np.eye(size)[0]}[spectrum]
    direction = scale * ((left * values) @ right.T)
    minimum = NuclearBall(2.0).lmo(direction)
    # The matrix was rounded when it was made: its singular values are off by as much.
    rounding = 4e-16 * size
    assert (minimum.value - minimum.slack) / scale <= -2.0 * (1.0 - rounding)
    assert minimum.value / scale == pytest.approx(-2.0, rel=1e-13 * size)
    assert 0.0 < minimum.slack / scale <= 1e-12 * sum(shape)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (130, 110), (110, 130)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_weighted_nuclear_ball(shape, kind):
    rng = np.random.default_rng(4)
    rows, columns = rng.uniform(0.3, 3.0, shape[0]), rng.uniform(0.3, 3.0, shape[1])
    ball = WeightedNuclearBall(2.0, rows, columns)
    ball.check(shape)
    dense = rng.normal(size=shape) * (rng.uniform(size=shape) < 0.5)
    direction = as_direction(dense, kind)
    minimum = ball.lmo(direction, Hint(accuracy=1e-9))
    exact = -2.0 * np.linalg.norm(dense / np.outer(rows, columns), 2)
    assert minimum.value - minimum.slack <= exact + 1e-12
    assert minimum.value == pytest.approx(exact, abs=1e-8)
    assert minimum.atom.inner(direction) == pytest.approx(minimum.value)
    again = ball.lmo(direction, Hint((1,), minimum.memory, 1e-9))
    assert again.value == pytest.approx(exact, abs=1e-8)
    point = as_array(minimum.atom, shape)
    assert ball.norm(point) == pytest.approx(2.0)
    assert np.linalg.norm(point) <= ball.diameter(shape) / 2
    x = rng.normal(size=shape)
    assert ball.norm(x) == pytest.approx(np.linalg.svd(x * np.outer(rows, columns), compute_uv=False).sum())
    left, right = rng.normal(size=(shape[0], 2)), rng.normal(size=(shape[1], 2))
    factored = FactoredMatrix(left, right, np.array([1.0, -2.0]))
    assert ball.norm(factored) == pytest.approx(ball.norm((left * [1.0, -2.0]) @ right.T))


def test_balls_with_arrays_can_be_compared():
    """Without an error, and never taken to be equal by their radius alone."""
    weighted = WeightedNuclearBall(1.0, np.ones(2), np.ones(3))
    assert weighted in [weighted]
    assert weighted != WeightedNuclearBall(1.0, np.array([1.0, 2.0]), np.ones(3))
    assert GroupBall(1.0, GROUPS) != GroupBall(1.0, GROUPS[::-1])
    assert L1Ball(1.0) == L1Ball(1.0) != L1Ball(2.0)
    assert NSupportBall(1.0, 2) != NSupportBall(1.0, 3)


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
    for outside in (x, np.array([3.0, -1.0]), np.zeros(2)):  # whatever the sign of the sum
        assert Simplex(1.0).scale_into(outside) is None
    np.testing.assert_allclose(Simplex(1.0).scale_into(np.array([1.0, 3.0])), [0.25, 0.75])
    factored = FactoredMatrix(np.eye(2)[:, :1], np.eye(2)[:, 1:], np.array([4.0]))
    assert NuclearBall(1.0).norm(NuclearBall(1.0).scale_into(factored)) == pytest.approx(1.0)


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf, None, "1.5", 1j, [1.0], True])
def test_bad_radius(radius):
    for constraint in (L1Ball(radius), Simplex(radius), NuclearBall(radius)):
        with pytest.raises(ValueError, match="radius must be a positive, finite number; got radius="):
            constraint.check((4, 3))


@pytest.mark.parametrize("size", [0, -1, 5, 1.5, "2", True])
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


def vertices(name, constraint, shape):
    """Points of the set, among them those where a sum of sizes with any weights is largest."""
    size = int(np.prod(shape))
    if name in ("l1", "simplex"):
        points = constraint.radius * np.eye(size)
    elif name == "linf":
        points = np.full((1, size), constraint.radius)
    else:
        return list(random_points(name, constraint, shape, 2000))
    return [point.reshape(shape) for point in points]


@pytest.mark.parametrize("name, shape", CASES)
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
def test_error_effect_is_a_bound_and_no_more(name, shape, spread):
    constraint, shape = SETS_WITH_RADIUS[name], SHAPES[shape]
    rng = np.random.default_rng(11)
    points = vertices(name, constraint, shape)
    for _ in range(3):
        error = 10.0 ** -rng.uniform(0.0, spread + 1e-9, size=shape)
        effect = constraint.error_effect(error, np.zeros(shape))
        reached = max(float((error * np.abs(point)).sum()) for point in points)
        assert reached <= effect * (1 + 1e-12)
        # That of the nuclear ball is Cauchy and Schwarz's; all others are attained.
        assert effect <= (30.0 if name == "nuclear" else 1.5) * reached
        # What it is for: the minimum moves by no more than this.
        direction = rng.normal(size=shape)
        moved = direction + error * rng.choice([-1.0, 1.0], size=shape)
        change = abs(constraint.lmo(moved).value - constraint.lmo(direction).value)
        assert change <= effect * (1 + 1e-12)


def test_error_effect_of_a_weighted_nuclear_ball_on_entries():
    rng = np.random.default_rng(12)
    rows, columns = rng.uniform(0.3, 3.0, 6), rng.uniform(0.3, 3.0, 5)
    ball = WeightedNuclearBall(2.0, rows, columns)
    dense = rng.uniform(size=(6, 5)) * (rng.uniform(size=(6, 5)) < 0.5)
    effect = ball.error_effect(EntryMatrix(sparse.csr_matrix(dense)), FactoredMatrix.zeros((6, 5)))
    for _ in range(500):
        x = np.outer(rng.normal(size=6), rng.normal(size=5))
        assert (dense * np.abs(ball.radius / ball.norm(x) * x)).sum() <= effect


class Vertices(Constraint):
    """The hull of some points, which may be anywhere."""

    def __init__(self, points):
        self.points = points

    def lmo(self, direction, hint=None):
        best = min(self.points, key=lambda point: float(np.vdot(direction, point)))
        return LinearMinimum(DenseVector(best), float(np.vdot(direction, best)))

    def diameter(self, shape):
        return max(float(np.linalg.norm(a - b)) for a in self.points for b in self.points)


@pytest.mark.parametrize("distance", [0.0, 1.0, 100.0])
def test_error_effect_of_a_set_without_zero(distance):
    """The default knows the diameter alone, and must not take the set to be around zero."""
    rng = np.random.default_rng(13)
    hull = Vertices([distance + rng.normal(size=4) for _ in range(5)])
    for _ in range(20):
        error = rng.uniform(size=4)
        effect = hull.error_effect(error, np.zeros(4))
        reached = max(float(error @ np.abs(point)) for point in hull.points)
        assert reached <= effect
        assert effect <= np.linalg.norm(error) * 3.0 * (distance * 2.0 + hull.diameter((4,)))
    # Attained to within the diameter, for errors that point where the set is.
    far = Vertices([np.full(4, 7.0)])
    assert far.error_effect(np.ones(4), np.zeros(4)) == pytest.approx(28.0)


@pytest.mark.parametrize("name", SETS_WITH_RADIUS)
def test_multiplier(name):
    """How fast the optimum falls as the radius grows, from the slope at the solution of a linear problem."""
    constraint = SETS_WITH_RADIUS[name]
    # Where the loss is <g, x>, the optimum is radius times its value at a radius of one.
    direction = np.random.default_rng(14).normal(size=(4, 3))
    slope = constraint.lmo(direction).value
    assert constraint.multiplier(slope) == pytest.approx(-slope / constraint.radius)
    assert constraint.multiplier(slope) > 0.0
    if name == "simplex":  # a larger sum may cost
        assert constraint.multiplier(constraint.lmo(direction + 10.0).value) < 0.0
    else:
        assert constraint.multiplier(1e-9) == 0.0
    assert np.isnan(Vertices([np.zeros(2)]).multiplier(-1.0))


@pytest.mark.parametrize("outputs", [1, 3])
def test_group_ball_takes_whole_rows_of_a_matrix(outputs):
    groups = np.array([1, 0, 1, 2])
    ball = GroupBall(5.0, groups)
    ball.check((4, outputs))
    direction = np.zeros((4, outputs))
    direction[0, 0], direction[2, -1], direction[1, 0] = 3.0, -4.0, 4.9
    minimum = ball.lmo(direction)
    assert minimum.value == pytest.approx(-25.0)
    atom = as_array(minimum.atom, (4, outputs))
    np.testing.assert_allclose(atom, np.where(groups[:, np.newaxis] == 1, -direction, 0.0))
    assert ball.norm(direction) == pytest.approx(5.0 + 4.9)


class OwnNuclearBall(Constraint):
    """A set of low-rank matrices of which the package knows no more than its oracle."""

    contains_zero = low_rank = True

    def __init__(self, radius):
        self.radius = radius

    def lmo(self, direction, hint=None):
        return NuclearBall(self.radius).lmo(direction, hint)

    def diameter(self, shape):
        return 2.0 * self.radius


def test_a_low_rank_set_of_ones_own_is_corrected_atom_by_atom():
    """Its atoms are averaged with iterates, which are sums of rank-one terms themselves."""
    rng = np.random.default_rng(15)
    rows, columns = np.nonzero(rng.uniform(size=(12, 9)) < 0.5)
    y = (rng.normal(size=(12, 2)) @ rng.normal(size=(2, 9)))[rows, columns]
    weights = np.full(len(rows), 1 / len(rows))
    entries, radius = ObservedEntries(rows, columns, (12, 9)), 0.5 * np.linalg.norm(y)
    optimum = dense_completion((12, 9), rows, columns, y, weights, radius)
    problem = Problem(SquaredLoss(y, weights), entries, OwnNuclearBall(radius))
    corrector = best_corrector(problem)
    assert isinstance(corrector, ActiveAtoms)
    # From an iterate of several terms, which becomes one of the pieces.
    start = FactoredMatrix.zeros((12, 9))
    for _ in range(3):
        left, right = rng.normal(size=12), rng.normal(size=9)
        start = start + RankOne(left / np.linalg.norm(left), right / np.linalg.norm(right), radius / 3.0)
    null = problem.null.value
    result = frank_wolfe(
        problem, corrector=corrector, start=problem.at(start), tolerance=1e-4 * null, max_iter=300
    )
    assert result.status == "converged"
    assert result.lower_bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= result.objective <= optimum + 1e-4 * null
    assert NuclearBall(radius).norm(result.x) <= radius * (1 + 1e-12)


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


def test_a_group_with_many_features_is_found_up_to_its_slack():
    """Squares are added up in sequence: a group of one feature, a little smaller, may win against many."""
    n = 100_000
    groups = np.append(np.zeros(n, dtype=np.intp), 1)
    missed = 0
    for value in (0.1, 0.3, 0.37, 0.7):
        many = np.full(n, value)
        exact = float(np.sqrt((many.astype(np.longdouble) ** 2).sum()))
        minimum = GroupBall(1.0, groups).lmo(np.append(many, exact * (1 - 1e-13)))
        assert minimum.value - minimum.slack <= -exact
        assert minimum.slack <= 1e-9 * exact
        missed += len(minimum.atom.indices) == 1
    assert missed > 0  # else the slack has not been needed


@pytest.mark.parametrize("exponent", [-60, 0, 60])
@pytest.mark.parametrize("form", ["array", "entries"])
def test_weights_of_a_wide_range(exponent, form):
    """Rows and columns whose weights differ by 120 powers of ten: nothing overflows, nothing is lost."""
    rng = np.random.default_rng(0)
    row_weights = 10.0 ** np.linspace(-60, 60, 6)
    column_weights = 10.0 ** np.linspace(exponent, 0, 5)
    entries = ObservedEntries(np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6), (6, 5))
    # Entries that are all of one size once they are weighted, and the largest of them at the heaviest row.
    dense = rng.normal(size=(6, 5)) * np.outer(row_weights, column_weights)
    expected = -2.0 * np.linalg.svd(dense / np.outer(row_weights, column_weights), compute_uv=False)[0]
    direction = dense if form == "array" else entries.adjoint(dense.ravel())
    minimum = WeightedNuclearBall(2.0, row_weights, column_weights).lmo(direction)
    assert minimum.value - minimum.slack <= expected * (1 - 1e-15)
    assert minimum.value == pytest.approx(expected, rel=1e-9)
    weighted = np.outer(minimum.atom.left * row_weights, minimum.atom.right * column_weights)
    assert np.linalg.norm(minimum.atom.scale * weighted) == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("wrong", [1e-80, 1e80])
def test_weights_that_are_out_of_range(wrong):
    ball = WeightedNuclearBall(1.0, np.array([1.0, wrong]), np.ones(3))
    with pytest.raises(ValueError, match=r"row_weights must be from 1e-70 to 1e\+70"):
        ball.check((2, 3))


@pytest.mark.parametrize("scale", [1e-200, 1e-310, 0.0])
def test_the_nuclear_oracle_of_hardly_anything(scale):
    direction = scale * np.ones((4, 3))
    minimum = NuclearBall(5.0).lmo(direction)
    assert minimum.value - minimum.slack <= -5.0 * np.sqrt(12.0) * scale * (1 - 1e-12)
    assert minimum.slack <= max(1e-300, 1e-12 * -minimum.value)


def test_multipliers():
    """How fast the optimum falls as the radius grows: never less than nothing in a ball, which has zero."""
    for ball in (L1Ball(2.0), L2Ball(2.0), NuclearBall(2.0)):
        assert (ball.multiplier(-3.0), ball.multiplier(3.0)) == (1.5, 0.0)
    assert (Simplex(2.0).multiplier(-3.0), Simplex(2.0).multiplier(3.0)) == (1.5, -1.5)

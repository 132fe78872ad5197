"""The scripts that rerun the paper's experiments, on made data."""

import bz2
import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from skfw import HFWMatrixCompletion
from skfw.engine import L1Ball

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "paper"
sys.path.insert(0, str(FOLDER))

import binary_classification  # noqa: E402
import claims  # noqa: E402
import common  # noqa: E402
import directional_steps  # noqa: E402
import gap_bounds  # noqa: E402
import matrix_completion  # noqa: E402
import other_momenta  # noqa: E402

ITERATIONS = 20


def make_data_set(seed):
    rng = np.random.default_rng(seed)
    X = sparse.random(200, 10, density=0.3, format="csr", random_state=rng)
    signs = np.where(X @ rng.normal(size=10) + 0.3 * rng.normal(size=200) > 0.0, 1.0, -1.0)
    return common.DataSet(X, signs)


@pytest.fixture(scope="module")
def data_sets():
    return {name: make_data_set(seed) for seed, name in enumerate(("mushrooms", "w7a", "ijcnn1"))}


@pytest.fixture(scope="module")
def ratings():
    rng = np.random.default_rng(0)
    users, movies = np.nonzero(rng.uniform(size=(30, 20)) < 0.5)
    truth = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    return users, movies, truth[users, movies] + 0.1 * rng.normal(size=len(users))


@pytest.fixture(scope="module")
def results(data_sets, ratings):
    scripts = (binary_classification, directional_steps, other_momenta, gap_bounds)
    results = {script: script.run(data_sets, ITERATIONS) for script in scripts}
    return results | {matrix_completion: matrix_completion.run(ratings, ITERATIONS)}


@pytest.mark.parametrize("variant", ["FW", "UFW-s", "WFW-ds"])
def test_a_run_starts_at_zero_and_approaches_the_optimum(data_sets, variant):
    problem = data_sets["w7a"].problems["l1"]
    trace = problem.trace(variant, ITERATIONS)
    assert trace["objective"][0] == pytest.approx(np.log(2.0))
    assert len(trace["objective"]) == ITERATIONS + 1
    errors = problem.error(trace)
    assert errors.min() > 0.0
    assert errors[-1] < errors[0]
    assert problem.trace(variant, ITERATIONS) is trace


def test_optima_are_certified(data_sets):
    for problem in data_sets["mushrooms"].problems.values():
        assert problem.optimum.gap <= 1e-10 * np.log(2.0)


@pytest.mark.parametrize("constraint", ["l1", "n-support"])
def test_solutions_are_as_sparse_as_the_data(data_sets, constraint):
    for data in data_sets.values():
        share = common.nonzero_share(data.problems[constraint].optimum.x)
        assert abs(share - data.share) <= 1.5 / data.X.shape[1]


def test_a_smaller_share_has_a_smaller_radius(data_sets):
    problem = data_sets["w7a"].problems["l1"].problem
    radii = [common.sparse_radius(problem, L1Ball, share) for share in (0.1, 0.9)]
    assert radii[0] < radii[1]


def test_l2_radius_is_the_norm_of_the_l1_solution(data_sets):
    problems = data_sets["ijcnn1"].problems
    radius = problems["l2"].problem.constraint.radius
    assert radius == pytest.approx(np.linalg.norm(problems["l1"].optimum.x))


def test_tail_mean_is_geometric_and_of_the_last_tenth():
    errors = np.append(np.full(18, 100.0), [1.0, 4.0])
    assert common.tail_mean(errors) == pytest.approx(2.0)


def test_load_finds_the_labels_and_needs_no_real_sim(tmp_path):
    (tmp_path / "w7a.bz2").write_bytes(bz2.compress(b"1 1:0.5\n2 2:1\n1 1:2\n"))
    (data,) = common.load(tmp_path, ("w7a", "real-sim")).values()
    assert data.signs.tolist() == [-1.0, 1.0, -1.0]
    assert data.share == 0.5


def test_variants_and_panels_are_all_there(results):
    assert list(results[binary_classification]) == ["l2", "l1", "n-support"]
    for by_data in results[binary_classification].values():
        assert list(by_data) == ["mushrooms", "w7a", "ijcnn1"]
        assert all(tuple(errors) == binary_classification.VARIANTS for errors in by_data.values())


def test_the_gap_of_a_run_is_that_of_the_engine(data_sets):
    problem = data_sets["mushrooms"].problems["l1"]
    momentum, step_rule = problem.parts("WFW-s")
    gaps = gap_bounds.measure(problem, ITERATIONS, momentum=momentum, step_rule=step_rule)
    trace = problem.trace("WFW-s", ITERATIONS)
    bounds = trace["objective"] - gaps.generalised
    # The engine's bound is the best so far, and includes the plane of the iterate itself.
    np.testing.assert_allclose(
        np.maximum.accumulate(np.maximum(bounds, 0.0))[1:], trace["lower_bound"][:-1], atol=1e-12
    )
    assert np.all(gaps.generalised[1:] <= gap_bounds.weighted_bound(gaps))


def test_restarts_are_seen_in_the_trace(results):
    assert other_momenta.restarts({"weight": np.array([1.0, 0.5, 1.0, 0.1])}) == [2]
    errors, restarted = results[other_momenta]
    assert errors.keys() == restarted.keys()


def test_completion_prepares_ratings_as_the_estimator_does(ratings, results):
    users, movies, values = ratings
    model = HFWMatrixCompletion(
        matrix_completion.RADIUS,
        constraint="nuclear",
        bias_penalty=None,
        corrective=False,
        momentum="weighted",
        step_size="directional",
        tol=1.0,
        max_iter=1,
    ).fit(np.column_stack([users, movies]), values)
    problem = matrix_completion.prepare(users, movies, values)
    loss = problem.loss
    assert problem.data.shape == (30, 20)
    assert np.linalg.norm(loss.targets) == pytest.approx(1.0)
    model_errors = values - model.mean_ - model.row_biases_[users] - model.column_biases_[movies]
    np.testing.assert_allclose(loss.targets, model_errors / np.linalg.norm(model_errors), atol=1e-12)
    for curve in results[matrix_completion].values():
        assert np.all(np.diff(curve.ranks, axis=1) <= 0)
        assert curve.ranks[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    "cases, verdict",
    [
        ({"a": 0.5, "b": 1.0}, "holds"),
        ({"a": 0.5, "b": 1.1}, "holds partly"),
        ({"a": 2.0, "b": 1.1}, "does not hold"),
        ({"a": np.nan}, "does not hold"),
    ],
)
def test_verdicts(cases, verdict):
    claim = claims.Claim("smaller than one", 1.0, cases)
    assert claim.verdict == verdict
    assert claim.measured.count("**") == 2 * sum(not value <= 1.0 for value in cases.values())


def test_claims_follow_the_measurements():
    made = {
        constraint: {
            name: {variant: np.full(20, 1.0) for variant in binary_classification.VARIANTS}
            for name in ("mushrooms", "w7a", "ijcnn1")
        }
        for constraint in ("l2", "l1", "n-support")
    }
    made["l2"]["w7a"]["WFW"] = np.full(20, 5.0)
    made["l1"]["ijcnn1"]["FW-s"] = np.linspace(1.0, 9.0, 20)
    verdicts = {claim.text[:30]: claim for claim in claims.classification_claims(made)}
    assert verdicts["l2: with parameter-free steps "].failures == ["w7a"]
    assert verdicts["smooth steps never increase th"].failures == ["ijcnn1 l1"]
    assert verdicts["l1: with parameter-free steps "].verdict == "holds"


def test_all_claims_and_tables_can_be_written(results, capsys, tmp_path):
    lists = [
        claims.gap_claims(results[gap_bounds]),
        claims.classification_claims(results[binary_classification]),
        claims.directional_claims(results[directional_steps]),
        claims.momentum_claims(results[other_momenta]),
        claims.completion_claims(results[matrix_completion]),
    ]
    rows = claims.table([claim for part in lists for claim in part])
    assert {len(row) for row in rows} == {3}
    assert {len(row) for row in gap_bounds.table(results[gap_bounds])} == {6}
    common.print_table(rows)
    assert {line.count(" | ") for line in capsys.readouterr().out.splitlines()} == {2}
    common.save_table(rows, tmp_path / "claims.csv")
    with (tmp_path / "claims.csv").open(encoding="utf-8") as file:
        assert list(csv.reader(file)) == rows


def test_figures(results, tmp_path):
    pytest.importorskip("matplotlib")
    for script, result in results.items():
        path = tmp_path / f"{script.__name__}.png"
        script.draw(result, path)
        assert path.stat().st_size > 0


def test_command_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["script", "--data", str(tmp_path)])
    options = common.parse("what it does")
    assert (options.data, options.figures) == (tmp_path, Path())

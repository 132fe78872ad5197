import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skfw import HFWLogisticRegression, HFWLogisticRegressionCV, hfw_logistic_path
from skfw._logistic_cv import _mean_log_likelihood
from skfw._radius_path import _straight_start
from skfw.engine import GroupBall, L1Ball, LogisticLoss, Problem, design_matrix

X2, y2 = load_breast_cancer(return_X_y=True)
X2 = StandardScaler().fit_transform(X2)[:, :8]
X3, y3 = load_iris(return_X_y=True)
X3 = StandardScaler().fit_transform(X3)


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "n_support"])
@pytest.mark.parametrize("X, y", [(X2, y2), (X3, y3)], ids=["binary", "multiclass"])
def test_path_is_a_fit_at_each_radius(constraint, X, y):
    radii = [8.0, 0.5, 2.0]
    found, coefs, intercepts, gaps = hfw_logistic_path(X, y, radii, constraint=constraint, tol=1e-8)
    np.testing.assert_array_equal(found, [0.5, 2.0, 8.0])
    for radius, coef, intercept, gap in zip(found, coefs, intercepts, gaps, strict=True):
        model = HFWLogisticRegression(constraint, radius, tol=1e-8).fit(X, y)
        assert 0.0 <= gap <= 1e-8 * np.log(len(np.unique(y)))
        fitted = clone(model).fit(X, y)
        fitted.coef_, fitted.intercept_ = coef, intercept
        np.testing.assert_allclose(fitted.predict_proba(X), model.predict_proba(X), atol=1e-2)
        assert log_loss(y, fitted.predict_proba(X)) == pytest.approx(model.objective_, abs=3e-8)


def test_path_goes_on_straight(monkeypatch):
    starts = []
    solve = HFWLogisticRegression._solve

    def spy(self, problem, model, start=None, **options):
        starts.append(start and start.x)
        return solve(self, problem, model, start, **options)

    monkeypatch.setattr(HFWLogisticRegression, "_solve", spy)
    _, coefs, _, _ = hfw_logistic_path(X2, y2, [1.0, 2.0, 4.0], constraint="l1")
    assert starts[0] is None
    np.testing.assert_allclose(starts[1], 2.0 * coefs[0, 0])
    ahead = coefs[1, 0] + 2.0 * (coefs[1, 0] - coefs[0, 0])
    np.testing.assert_allclose(starts[2], ahead * min(1.0, 4.0 / np.abs(ahead).sum()))


def test_path_does_not_go_on_straight_where_that_is_uphill():
    """One class outweighs the others by far, so that the loss soon hardly falls."""
    X, y = make_blobs(centers=3, random_state=0, cluster_std=20)
    weights = {0: 1000, 1: 0.0001, 2: 0.0001}
    hfw_logistic_path(
        X[::2], y[::2], 3, class_weight=weights, max_iter=50
    )  # no warning that it stopped early


@pytest.mark.parametrize("constraint", ["l1", "l2"])
def test_scores_are_those_of_a_grid_search(constraint):
    radii = np.array([0.3, 1.0, 3.0, 10.0])
    model = HFWLogisticRegressionCV(constraint, radii, cv=4, tol=1e-7).fit(X2, y2)
    search = GridSearchCV(
        HFWLogisticRegression(constraint, tol=1e-7), {"radius": radii}, cv=4, scoring="neg_log_loss"
    ).fit(X2, y2)
    expected = [search.cv_results_[f"split{k}_test_score"] for k in range(4)]
    np.testing.assert_allclose(model.scores_, expected, atol=1e-4)
    assert model.radius_ == search.best_params_["radius"]
    np.testing.assert_array_equal(model.radii_, radii)
    # What is left is the fit to all data.
    np.testing.assert_allclose(model.coef_, search.best_estimator_.coef_, atol=1e-3)
    assert model.objective_ == pytest.approx(search.best_estimator_.objective_, abs=1e-7)
    np.testing.assert_array_equal(model.predict(X2), search.predict(X2))


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "n_support", "simplex"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_automatic_grid_follows_the_scale_and_contains_the_best(constraint, scale):
    """From hardly any model to one that is too free, in the units of the data."""
    model = HFWLogisticRegressionCV(constraint, tol=1e-3).fit(scale * X2, y2)
    np.testing.assert_allclose(np.diff(np.log(model.radii_)), np.log(100.0) / 9)
    reference = HFWLogisticRegressionCV(constraint, tol=1e-3).fit(X2, y2)
    np.testing.assert_allclose(model.radii_ * scale, reference.radii_, rtol=1e-9)
    if constraint != "simplex":
        assert model.radii_[0] < model.radius_ < model.radii_[-1]


def test_sample_weight_is_repetition():
    counts = np.random.default_rng(0).integers(1, 3, len(y2))
    fold = np.arange(len(y2)) % 3
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    many = np.repeat(fold, counts)
    many_splits = [(np.flatnonzero(many != k), np.flatnonzero(many == k)) for k in range(3)]
    weighted = HFWLogisticRegressionCV("l1", radii=4, cv=splits, tol=1e-7).fit(X2, y2, counts)
    repeated = HFWLogisticRegressionCV("l1", radii=4, cv=many_splits, tol=1e-7).fit(
        np.repeat(X2, counts, axis=0), np.repeat(y2, counts)
    )
    np.testing.assert_allclose(weighted.radii_, repeated.radii_)
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, atol=1e-4)
    assert weighted.radius_ == pytest.approx(repeated.radius_)


@pytest.mark.parametrize("X, y", [(X2, y2), (X3, y3)], ids=["binary", "multiclass"])
@pytest.mark.parametrize("weighted", [False, True])
def test_default_score_is_neg_log_loss(X, y, weighted):
    weights = np.linspace(0.5, 2.0, len(y)) if weighted else None
    radii = [0.1, 10.0, 1e4]
    default = HFWLogisticRegressionCV("l1", radii=radii, cv=3).fit(X, y, weights)
    named = HFWLogisticRegressionCV("l1", radii=radii, cv=3, scoring="neg_log_loss").fit(X, y, weights)
    np.testing.assert_allclose(default.scores_, named.scores_, rtol=1e-12)


def test_a_class_that_was_not_trained_on_cannot_be_scored():
    split = [(np.arange(100), np.arange(100, 150))]  # iris is sorted by class
    with pytest.raises(ValueError, match="a class that its training part has not"):
        HFWLogisticRegressionCV("l1", radii=[1.0], cv=split).fit(X3, y3)


def test_weights_reach_all_fits():
    weights = np.where(y2 == 1, 20.0, 1.0)
    model = HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3, tol=1e-8).fit(X2, y2, weights)
    plain = HFWLogisticRegression("l1", model.radius_, tol=1e-8).fit(X2, y2, weights)
    assert model.objective_ == pytest.approx(plain.objective_, abs=1e-7)
    _, coefs, _, _ = hfw_logistic_path(
        X2, y2, [1.0, model.radius_], sample_weight=weights, tol=1e-8, constraint="l1"
    )
    np.testing.assert_allclose(coefs[-1], plain.coef_, atol=1e-2)


def test_equal_scores_choose_the_smallest_radius():
    model = HFWLogisticRegressionCV("l1", radii=[3.0, 1.0, 2.0], scoring=lambda *_: 0.5).fit(X2, y2)
    assert model.radius_ == 1.0


def test_the_mean_over_the_folds_chooses():
    """Each fold is known by the size of its test part."""
    scores = {1.0: [0.0, 0.0, 9.0], 2.0: [2.0, 2.0, 2.0], 4.0: [0.0, 8.9, 0.0], 8.0: [9.0, 0.0, 0.0]}
    sizes = {40: 0, 50: 1, 60: 2}
    splits = [(np.arange(size, len(y2)), np.arange(size)) for size in sizes]

    def scoring(model, X, y):
        return scores[model.radius][sizes[len(y)]]

    model = HFWLogisticRegressionCV("l1", radii=list(scores), cv=splits, scoring=scoring, tol=0.1).fit(X2, y2)
    np.testing.assert_array_equal(model.scores_, np.array(list(scores.values())).T)
    assert np.median(model.scores_, axis=0).argmax() == 1
    assert model.radius_ == 1.0  # as good as 8.0, and smaller


@pytest.mark.parametrize("X, y", [(X2, y2), (X3, y3)], ids=["binary", "multiclass"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_scores_of_float32_are_those_of_float64(X, y, kind):
    X = X.astype(np.float32)
    single, double = (
        HFWLogisticRegressionCV("l1", radii=[0.5, 5.0, 20.0], cv=3, tol=1e-5).fit(kind(data), y)
        for data in (X, X.astype(np.float64))
    )
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.scores_, double.scores_, atol=1e-5)
    assert single.radius_ == double.radius_


def test_a_certain_error_has_a_finite_score():
    X, y = np.repeat([[1.0], [-1.0]], 30, axis=0), np.repeat([1, 0], 30)
    y[[0, -1]] = 1 - y[[0, -1]]  # wrong, in the test part only
    test = np.r_[0:5, 55:60]
    split = [(np.setdiff1d(np.arange(60), test), test)]
    model = HFWLogisticRegressionCV("l1", radii=[1e4], cv=split, tol=1e-12, max_iter=100)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert -10.0 < model.scores_[0, 0] < -1.0


@pytest.mark.parametrize("data", [(X2, y2), (X3, y3)], ids=["binary", "multiclass"])
def test_simplex_path_starts_anew_where_straight_leads_out(data):
    radii, coefs, _, _ = hfw_logistic_path(*data, 10, constraint="simplex", tol=1e-2)
    assert coefs.min() >= 0.0
    np.testing.assert_allclose(coefs.sum(axis=(1, 2)), radii)


@pytest.mark.parametrize("how", ["class", "sample"])
def test_what_has_no_weight_is_not_scored(how):
    options = {"class_weight": {0: 1.0, 1: 1.0, 2: 0.0}} if how == "class" else {}
    weights = None if how == "class" else (y3 != 2) * 1.0
    model = HFWLogisticRegressionCV("l1", radii=[0.5, 1.0], cv=3, **options).fit(X3, y3, weights)
    assert model.classes_.tolist() == [0, 1]
    split = [(np.arange(100), np.arange(100, 150))]
    with pytest.raises(ValueError, match="no sample with a positive weight"):
        clone(model).set_params(cv=split).fit(X3, y3, weights)


def test_options():
    scorer = get_scorer("accuracy")
    model = HFWLogisticRegressionCV(
        "l1", radii=[1, 5], scoring=scorer, cv=StratifiedKFold(3, shuffle=True, random_state=0), n_jobs=2
    )
    sparse_fit = clone(model).fit(sparse.csr_matrix(X2), y2)
    dense_fit = clone(model).fit(X2, y2)
    np.testing.assert_array_equal(sparse_fit.scores_, dense_fit.scores_)
    assert 0.8 < dense_fit.scores_.min() <= dense_fit.scores_.max() <= 1.0
    ball = GroupBall(1.0, np.arange(8) // 2)
    grouped = HFWLogisticRegressionCV(ball, radii=[0.5, 4.0]).fit(X2, y2)
    assert grouped.radius_ == 4.0
    assert ball.radius == 1.0  # the caller's object is left alone
    assert ball.norm(grouped.coef_[0]) == pytest.approx(4.0, rel=0.01)
    assert make_pipeline(StandardScaler(), HFWLogisticRegressionCV()).fit(X3, y3).score(X3, y3) > 0.9


@pytest.mark.parametrize("radii", [0, -1, [], [[1.0]], [1.0, -1.0], [np.nan], "many", 2.5, True, [True]])
def test_bad_radii(radii):
    with pytest.raises(ValueError, match=r"radii(\[\d\])? must be"):
        HFWLogisticRegressionCV("l1", radii=radii).fit(X2, y2)


def test_path_takes_no_single_radius():
    with pytest.raises(TypeError, match="takes radii, not radius"):
        hfw_logistic_path(X2, y2, 3, radius=1.0)


def test_bad_parameters_are_refused_before_any_work():
    with pytest.raises(ValueError, match="corrective must be"):
        HFWLogisticRegressionCV("l1", corrective="yes").fit(X2, y2)
    with pytest.raises(ValueError, match="constraint must be"):
        HFWLogisticRegressionCV("l3").fit(X2, y2)
    with pytest.raises(ValueError, match=r"scoring must be .* got scoring=\['accuracy', 'roc_auc'\]"):
        HFWLogisticRegressionCV("l1", scoring=["accuracy", "roc_auc"]).fit("nonsense", None)


def test_a_score_that_is_nan_chooses_no_radius():
    def scoring(model, X, y):
        return np.nan if model.radius == 2.0 else 1.0

    with pytest.raises(ValueError, match=r"score of fold 1 at radius 2 is NaN.* got scoring=<function"):
        HFWLogisticRegressionCV("l1", radii=[1.0, 2.0], cv=3, scoring=scoring).fit(X2, y2)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("intercept", [False, True])
def test_multiplier_converts_between_radius_and_penalty(norm, intercept):
    """There and back: radius to C by the multiplier, C to radius by the norm."""
    n = len(y2)
    model = HFWLogisticRegression(norm, 3.0, tol=1e-10, fit_intercept=intercept).fit(X2, y2)
    C = (1.0 if norm == "l1" else model.radius) / (n * model.multiplier_)
    solver = "saga" if norm == "l1" else "lbfgs"
    penalty = penalty_of(norm)
    penalised = LogisticRegression(
        C=C, solver=solver, tol=1e-10, max_iter=100_000, fit_intercept=intercept, **penalty
    ).fit(X2, y2)
    np.testing.assert_allclose(penalised.coef_, model.coef_, atol=1e-3)
    size = np.linalg.norm(penalised.coef_.ravel(), 1 if norm == "l1" else 2)
    assert size == pytest.approx(model.radius, rel=1e-4)


def penalty_of(norm):
    import sklearn
    from sklearn.utils.fixes import parse_version

    if parse_version(sklearn.__version__) >= parse_version("1.8"):
        return {"l1_ratio": {"l1": 1.0, "l2": 0.0}[norm]}
    return {"penalty": norm}


def test_multiplier_is_the_slope_of_the_optimum_and_zero_inside():
    low, middle, high = (
        HFWLogisticRegression("l1", radius, tol=1e-10).fit(X2, y2) for radius in (2.99, 3.0, 3.01)
    )
    assert middle.multiplier_ == pytest.approx((low.objective_ - high.objective_) / 0.02, rel=1e-3)
    free = HFWLogisticRegression("l2", 1e4, tol=1e-8).fit(X2, y2)
    assert np.linalg.norm(free.coef_) < 1e4
    assert abs(free.multiplier_) < 1e-9


def test_a_start_on_the_line_through_two_solutions_is_taken_only_where_it_is_better():
    rng = np.random.default_rng(0)
    design = design_matrix(rng.normal(size=(50, 3)))
    x = np.array([1.0, 0.0, 0.0])
    loss = LogisticLoss(np.sign(design.apply(x) + 0.1), np.full(50, 1 / 50))
    problem = Problem(loss, design, L1Ball(2.0))
    value = problem.at(x).value
    here = (1.0, x, value)
    ahead = _straight_start(problem, (0.5, 0.5 * x, np.inf), here, 2.0)
    np.testing.assert_allclose(ahead.x, 2.0 * x)
    assert ahead.value < value
    # The line comes from far away, and leads far away.
    stays = _straight_start(problem, (0.5, np.array([0.5, 9.0, 0.0]), np.inf), here, 2.0)
    np.testing.assert_array_equal(stays.x, x)


def test_the_default_score_where_probabilities_are_zero():
    """It is scikit-learn's: a certain error costs a finite amount."""

    class Certain:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])

    y, weights = np.array([0, 0, 1]), np.array([3.0, 1.0, 2.0])
    found = _mean_log_likelihood(Certain(), None, y, weights)
    expected = -log_loss(y, Certain().predict_proba(None), sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-9)
    assert np.isfinite(found)


class ByRadius:
    """A score that depends on the radius alone, and counts how often it is asked for."""

    def __init__(self, score):
        self.score, self.n_calls = score, 0

    def __call__(self, model, X, y):
        self.n_calls += 1
        return self.score(model.radius_)


def test_the_grid_goes_on_while_scores_rise():
    rises = HFWLogisticRegressionCV(radii=5, cv=2, tol=1e-2, scoring=ByRadius(lambda radius: radius))
    with pytest.warns(UserWarning, match="chose the largest radius it tried, .*; scores still rise there"):
        rises.fit(X2, y2)
    assert len(rises.radii_) == 10
    assert rises.scores_.shape == (2, 10)
    np.testing.assert_allclose(np.diff(np.log(rises.radii_)), np.log(100.0) / 4)
    assert rises.radius_ == rises.radii_[-1]
    # The best one lies just beyond the first five.
    best = rises.radii_[5]
    peak = ByRadius(lambda radius: -abs(np.log(radius / best)))
    model = HFWLogisticRegressionCV(radii=5, cv=2, tol=1e-2, scoring=peak).fit(X2, y2)
    assert model.radius_ == pytest.approx(best)
    assert len(model.radii_) == 7  # one beyond the best shows that it is the best
    assert peak.n_calls == 2 * 7  # no radius twice
    falls = HFWLogisticRegressionCV(radii=5, cv=2, tol=1e-2, scoring=ByRadius(lambda radius: -radius))
    assert len(falls.fit(X2, y2).radii_) == 5


def test_given_radii_are_all():
    scoring = ByRadius(lambda radius: radius)
    model = HFWLogisticRegressionCV(radii=[1.0, 2.0], cv=2, tol=1e-2, scoring=scoring).fit(X2, y2)
    np.testing.assert_array_equal(model.radii_, [1.0, 2.0])
    assert model.radius_ == 2.0


def test_a_rise_within_the_accuracy_of_the_fits_is_none():
    scoring = ByRadius(lambda radius: 1.0 + 1e-5 * radius / (1.0 + radius))
    model = HFWLogisticRegressionCV(radii=5, cv=2, tol=1e-4, scoring=scoring).fit(X2, y2)
    assert len(model.radii_) == 5


@pytest.mark.parametrize("constraint", ["l1", "l2"])
def test_a_path_that_goes_on_is_the_same_path(constraint):
    """The folds are prepared anew, but go on from their solutions."""
    best = HFWLogisticRegressionCV(constraint, radii=4, cv=3, scoring=lambda *_: 1.0).fit(X2, y2).radii_[-1]
    scores = {}

    def scoring(model, X, y):
        scores.setdefault(model.radius_, []).append(-log_loss(y, model.predict_proba(X)))
        return -abs(np.log(model.radius_ / best))

    went_on = HFWLogisticRegressionCV(constraint, radii=4, cv=3, tol=1e-7, scoring=scoring).fit(X2, y2)
    assert len(went_on.radii_) == 5
    at_once = HFWLogisticRegressionCV(constraint, radii=went_on.radii_, cv=3, tol=1e-7).fit(X2, y2)
    np.testing.assert_allclose([scores[radius] for radius in went_on.radii_], at_once.scores_.T, rtol=1e-12)


def test_the_last_fit_starts_from_the_folds():
    model = HFWLogisticRegressionCV("l2", radii=[1.0, 3.0], cv=5, tol=1e-3).fit(X2, y2)
    cold = HFWLogisticRegression("l2", model.radius_, tol=1e-3).fit(X2, y2)
    assert model.trace_["gap"][0] < 0.1 * cold.trace_["gap"][0]


def test_progress_names_fold_and_radius(capsys):
    model = HFWLogisticRegressionCV(radii=[1.0, 3.0], cv=2, verbose=1).fit(X2, y2)
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if "radius" in line]
    folds = [f"fold {fold} of 2, radius {radius}" for fold in (1, 2) for radius in (1, 3)]
    assert headings == [*folds, f"all data, radius {model.radius_:g}"]


def test_splits_may_be_lists_or_masks():
    even = np.arange(len(y2)) % 2 == 0
    masks = [(even, ~even), (~even, even)]
    lists = [(np.flatnonzero(train).tolist(), np.flatnonzero(test).tolist()) for train, test in masks]
    scores = [HFWLogisticRegressionCV(radii=[1.0], cv=cv).fit(X2, y2).scores_ for cv in (masks, lists)]
    np.testing.assert_array_equal(*scores)

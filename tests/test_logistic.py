import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from problems import CONSTRAINTS, PROBLEMS, data, problem
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.fixes import parse_version

from skfw import HFWLogisticRegression
from skfw.engine import GroupBall, L1Ball, L2Ball

CANCER = load_breast_cancer()
# Columns that are not nearly copies of each other, so that coefficients can be compared.
X2, y2 = StandardScaler().fit_transform(CANCER.data)[:, [0, 1, 4, 8, 9, 11, 14, 18]], CANCER.target
IRIS = load_iris()
X3, y3 = StandardScaler().fit_transform(IRIS.data), IRIS.target


def penalised(norm, X, y, intercept, weights):
    """scikit-learn's penalised model: the constrained one at the norm its coefficients have."""
    # scikit-learn 1.8 deprecated `penalty`; before, `l1_ratio` meant nothing without it.
    new = parse_version(sklearn.__version__) >= parse_version("1.8")
    penalty = {"l1_ratio": {"l1": 1.0, "l2": 0.0}[norm]} if new else {"penalty": norm}
    model = LogisticRegression(
        C=20.0 / len(y),
        solver={"l1": "saga", "l2": "lbfgs"}[norm],
        fit_intercept=intercept,
        tol=1e-10,
        max_iter=200_000,
        random_state=0,
        **penalty,
    )
    return model.fit(X, y, weights)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_the_penalised_model_of_the_same_radius(norm, n_classes, intercept, weighted):
    X, y = (X2, y2) if n_classes == 2 else (X3, y3)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, len(y)) if weighted else np.ones(len(y))
    weights *= len(y) / weights.sum()
    reference = penalised(norm, X, y, intercept, weights)
    radius = np.linalg.norm(reference.coef_.ravel(), {"l1": 1, "l2": 2}[norm])
    model = HFWLogisticRegression(
        norm, radius, fit_intercept=intercept, momentum="none", tol=1e-5, max_iter=30_000
    ).fit(X, y, weights)
    optimum = log_loss(y, reference.predict_proba(X), sample_weight=weights)
    # The certificate first: it encloses the optimum, and the model is in the ball.
    assert model.lower_bound_ <= optimum + 1e-9
    assert optimum <= model.objective_ + 1e-7
    assert model.converged_
    assert np.linalg.norm(model.coef_.ravel(), {"l1": 1, "l2": 2}[norm]) <= radius * (1 + 1e-12)
    assert log_loss(y, model.predict_proba(X), sample_weight=weights) == pytest.approx(model.objective_)
    # Then the model.
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=0.02)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=0.05 * max(radius, 1.0))


@pytest.mark.parametrize(
    "names", [names for names in PROBLEMS if names[0] in ("logistic", "multinomial")], ids=str
)
def test_agrees_with_slsqp_on_every_set(names):
    """Optima of the shared problems, from another formulation and another solver."""
    loss_name, constraint_name, intercept = names
    X, weights, signs, labels, _ = data()
    model = HFWLogisticRegression(
        CONSTRAINTS[constraint_name], fit_intercept=intercept, momentum="none", tol=1e-3, max_iter=20_000
    ).fit(X, labels if loss_name == "multinomial" else signs, weights)
    optimum = problem(*names).optimum
    assert model.converged_
    assert model.lower_bound_ <= optimum + 1e-9
    assert optimum - 1e-9 <= model.objective_ <= optimum + 1.1e-3


def test_defaults_converge_and_predict_well_on_real_data():
    for X, y in ((CANCER.data, y2), (IRIS.data, y3)):
        model = make_pipeline(StandardScaler(), HFWLogisticRegression())
        assert cross_val_score(model, X, y, error_score="raise").mean() > 0.93


@pytest.mark.parametrize(
    "kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array]
)
def test_kinds_of_data_agree(kind):
    reference = HFWLogisticRegression("l1", radius=5).fit(X2, y2)
    model = HFWLogisticRegression("l1", radius=5).fit(kind(X2), y2)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(kind(X2)), reference.predict_proba(X2), atol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_float32_stays_float32(kind):
    X = X2.astype(np.float32)
    single = HFWLogisticRegression("l1", radius=5).fit(kind(X), y2)
    double = HFWLogisticRegression("l1", radius=5).fit(kind(X.astype(np.float64)), y2)
    assert single.coef_.dtype == single.intercept_.dtype == np.float32
    assert single.decision_function(kind(X)).dtype == np.float32
    # Sums are in float64, so the certificate is the same to many more digits than float32 has.
    assert single.gap_ == pytest.approx(double.gap_, rel=1e-9)
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=1e-6)


def test_weight_is_repetition_and_zero_is_absence():
    counts = np.random.default_rng(0).integers(0, 3, len(y3))
    weighted = HFWLogisticRegression("l1", radius=5).fit(X3, y3, counts)
    repeated = HFWLogisticRegression("l1", radius=5).fit(np.repeat(X3, counts, axis=0), np.repeat(y3, counts))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-9)
    assert weighted.objective_ == pytest.approx(repeated.objective_)
    without = HFWLogisticRegression().fit(X3, y3, y3 != 1)
    np.testing.assert_array_equal(without.classes_, [0, 2])


def test_class_weight():
    plain, heavy = (
        HFWLogisticRegression("l1", 10.0, class_weight=w).fit(X2, y2) for w in (None, {0: 20.0, 1: 1.0})
    )
    assert (heavy.predict(X2) == 0).sum() > (plain.predict(X2) == 0).sum()
    balanced = HFWLogisticRegression("l1", 10.0, class_weight="balanced").fit(X2, y2)
    by_hand = HFWLogisticRegression("l1", 10.0).fit(
        X2, y2, np.where(y2 == 1, 1 / (y2 == 1).mean(), 1 / (y2 == 0).mean())
    )
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, atol=1e-9)


def test_balanced_counts_samples_with_their_weights():
    counts = np.where(y2 == 1, 3, 1)
    weighted = HFWLogisticRegression("l1", class_weight="balanced").fit(X2, y2, counts)
    rows = np.repeat(np.arange(len(y2)), counts)
    repeated = HFWLogisticRegression("l1", class_weight="balanced").fit(X2[rows], y2[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-9)
    keep = np.arange(len(y2)) % 3 > 0
    absent = HFWLogisticRegression("l1", class_weight="balanced").fit(X2[keep], y2[keep])
    zero = HFWLogisticRegression("l1", class_weight="balanced").fit(X2, y2, keep)
    np.testing.assert_allclose(zero.coef_, absent.coef_, atol=1e-9)


def test_strings_frames_pickle_clone_and_names():
    frame = pd.DataFrame(X3, columns=list("abcd"))
    labels = np.array(["red", "green", "blue"])[y3]
    model = HFWLogisticRegression("l1", radius=8).fit(frame, labels)
    assert list(model.feature_names_in_) == list("abcd")
    assert list(model.classes_) == ["blue", "green", "red"]
    assert model.score(frame, labels) > 0.9
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))
    with pytest.raises(NotFittedError):
        clone(model).predict(frame)
    table = pd.DataFrame(model.trace_)
    assert len(table) == model.n_iter_ + 1
    assert table["gap"].iloc[-1] == model.gap_ == model.objective_ - model.lower_bound_


def test_probabilities():
    for X, y in ((X2, y2), (X3, y3)):
        model = HFWLogisticRegression("l1", radius=20).fit(X, y)
        probability = model.predict_proba(X)
        np.testing.assert_allclose(probability.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.log(probability), model.predict_log_proba(X), atol=1e-9)
        np.testing.assert_array_equal(model.predict(X), model.classes_[probability.argmax(axis=1)])
        far = model.predict_log_proba(X * 1e4)
        assert np.isfinite(far).all()
    assert model.intercept_.sum() == pytest.approx(0.0, abs=1e-12)


def test_grid_search_over_flat_and_nested_parameters():
    pipeline = make_pipeline(StandardScaler(), HFWLogisticRegression())
    grid = {
        "hfwlogisticregression__constraint": ["l1", "l2", "n_support"],
        "hfwlogisticregression__radius": [1.0, 10.0],
        "hfwlogisticregression__momentum": ["weighted", 0.5],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X3, y3)
    assert search.best_score_ > 0.9

    ball = L1Ball(1.0)
    nested = GridSearchCV(
        HFWLogisticRegression(ball), {"constraint__radius": [0.1, 5.0]}, cv=2, error_score="raise"
    ).fit(X3, y3)
    assert nested.best_params_ == {"constraint__radius": 5.0}
    assert ball.radius == 1.0  # the object given was not touched
    np.testing.assert_allclose(
        nested.best_estimator_.coef_, HFWLogisticRegression("l1", 5.0).fit(X3, y3).coef_, atol=1e-12
    )


def test_group_ball_selects_features_for_all_classes_at_once():
    rng = np.random.default_rng(0)
    X = np.hstack([X3, rng.normal(size=(len(X3), 6))])
    model = HFWLogisticRegression(GroupBall(2.0, np.arange(10))).fit(X, y3)
    used = np.abs(model.coef_).max(axis=0) > 0
    assert used[2:4].all()
    assert not used[4:].any()
    assert model.converged_


def test_nuclear_ball_shares_directions_between_classes():
    model = HFWLogisticRegression("nuclear", 3.0, tol=1e-3).fit(X3, y3)
    values = np.linalg.svd(model.coef_, compute_uv=False)
    assert values.sum() <= 3.0 * (1 + 1e-12)
    assert model.score(X3, y3) > 0.9


def test_sparsify_and_densify():
    model = HFWLogisticRegression("l1", radius=2).fit(X2, y2)
    dense = model.predict_proba(X2)
    assert sparse.issparse(model.sparsify().coef_)
    np.testing.assert_allclose(model.predict_proba(X2), dense)
    np.testing.assert_allclose(model.predict_proba(sparse.csr_matrix(X2)), dense)
    assert isinstance(model.densify().coef_, np.ndarray)


@pytest.mark.parametrize("X, y", [(X2, y2), (X3, y3)])
def test_warm_start_goes_on_from_the_last_coefficients(X, y):
    model = HFWLogisticRegression("l2", 5.0, warm_start=True, tol=1e-3).fit(X, y)
    cold = model.objective_
    model.fit(X, y)
    assert model.trace_["objective"][0] == pytest.approx(cold)
    for radius in (8.0, 1.0):  # stays where it is, is shrunk
        model.set_params(radius=radius).fit(X, y)
        assert np.linalg.norm(model.coef_) <= radius * (1 + 1e-12)
        assert model.converged_
    last = model.objective_
    model.sparsify().fit(X, y)
    assert model.trace_["objective"][0] == pytest.approx(last)
    assert isinstance(model.coef_, np.ndarray)


@pytest.mark.parametrize("X, y", [(X2, y2), (X3, y3)])
def test_a_warm_start_from_what_does_not_fit_is_a_cold_one(X, y):
    other = np.where(y == y.max(), y.max() + 1, y)  # as many classes, but not the same
    for features, labels, params in (
        (X[:, :2], y, {}),
        (X, other, {}),
        (X, y, {"constraint": "simplex", "tol": 0.1}),
    ):
        model = HFWLogisticRegression("l2", 2.0, warm_start=True, tol=1e-3).fit(X, y)
        assert model.coef_.min() < 0.0
        model.set_params(**params).fit(features, labels)
        cold = clone(model).fit(features, labels)
        np.testing.assert_array_equal(model.trace_["objective"], cold.trace_["objective"])
        np.testing.assert_array_equal(model.coef_, cold.coef_)
        assert model.n_features_in_ == features.shape[1]
        assert model.predict(features).shape == labels.shape


def test_not_converged_says_so():
    with pytest.warns(
        ConvergenceWarning, match=r"3 steps \(max_iter=3\) with a certified gap of .*; tol=0.0001"
    ):
        model = HFWLogisticRegression("l1", max_iter=3).fit(X2, y2)
    assert not model.converged_
    assert model.n_iter_ == 3
    assert model.gap_ > 0


def test_inputs_are_not_modified():
    for kind in (np.asarray, sparse.csr_matrix, sparse.csc_matrix):
        X, y, w = kind(X2.copy()), y2.copy(), np.ones(len(y2))
        before = X.copy()
        HFWLogisticRegression("l2").fit(X, y, w)
        assert abs(X - before).max() == 0
        assert (w == 1).all()


def test_an_objects_own_radius_counts():
    model = HFWLogisticRegression(L2Ball(0.5), radius=2.0).fit(X2, y2)
    assert np.linalg.norm(model.coef_) == pytest.approx(0.5, rel=0.05)
    assert model.radius_ == 0.5


def test_a_warm_start_with_other_features_or_classes_is_a_cold_one():
    X, y = make_classification(120, 6, random_state=0)
    model = HFWLogisticRegression("l1", radius=2.0, warm_start=True).fit(X, y)
    for other, labels in ((X[:, :4], y), (X, y + (X[:, 0] > 0))):
        warm = clone(model).fit(X, y).fit(other, labels)
        cold = clone(model).fit(other, labels)
        np.testing.assert_array_equal(warm.coef_, cold.coef_)


def test_names_of_features_belong_to_the_last_fit():
    frame = pd.DataFrame(load_iris().data, columns=list("abcd"))
    model = HFWLogisticRegression("l1", radius=2.0).fit(frame, load_iris().target)
    assert list(model.feature_names_in_) == list("abcd")
    model.fit(frame.to_numpy(), load_iris().target)
    assert not hasattr(model, "feature_names_in_")


def test_intercepts_of_several_classes_sum_to_zero():
    """A number added to all of them would change no probability; features with a large mean add one."""
    X, y = load_iris(return_X_y=True)
    X = X + 1e3
    for weights in (None, np.arange(1.0, 151.0)):
        intercept = HFWLogisticRegression("l1", radius=2.0).fit(X, y, weights).intercept_
        assert abs(intercept.sum()) <= 1e-12 * np.abs(intercept).max() > 0.0


@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "n_support", "simplex", "nuclear"])
def test_the_default_radius_follows_the_units(constraint):
    X, y = (X3, y3) if constraint == "nuclear" else (X2, y2)
    reference = HFWLogisticRegression(constraint).fit(X, y)
    assert 0.0 < reference.radius_ < np.inf
    for scale in (1e-6, 1e6):
        other = HFWLogisticRegression(constraint).fit(scale * X, y)
        assert other.radius_ * scale == pytest.approx(reference.radius_, rel=1e-9)
        assert other.objective_ == pytest.approx(reference.objective_, abs=1e-3)
    given = HFWLogisticRegression(constraint, reference.radius_).fit(X, y)
    assert given.radius_ == reference.radius_
    np.testing.assert_allclose(given.coef_, reference.coef_, rtol=1e-6, atol=1e-9)


def test_the_default_radius_by_hand():
    """The gradient of the features divided by their largest values is steepest in one of them."""
    X = np.array([[1.0, 0.0], [2.0, 30.0], [-1.0, 10.0], [-2.0, 0.0]])
    y = np.array([1, 1, 0, 0])
    gradient = -0.5 * np.array([6.0, 20.0]) / 4  # minus half of the mean of X times 1 or -1
    model = HFWLogisticRegression("l1", fit_intercept=False).fit(X, y)
    assert abs(gradient / [2.0, 30.0]).argmax() == 0  # although its unit is the smaller one
    assert abs(gradient / [2.0**2, 30.0**2]).argmax() == 0
    expected = np.log(2.0) / abs(gradient[0]) * 2.5 * 4**0.125
    assert model.radius_ == pytest.approx(expected)


def test_the_default_radius_counts_samples_with_their_weights():
    counts = np.random.default_rng(0).integers(0, 3, len(y2))
    weighted = HFWLogisticRegression().fit(X2, y2, counts)
    repeated = HFWLogisticRegression().fit(np.repeat(X2, counts, axis=0), np.repeat(y2, counts))
    assert weighted.radius_ == pytest.approx(repeated.radius_)


def test_the_default_radius_of_hopeless_data():
    for X in (np.zeros((20, 3)), np.ones((20, 3)), np.full((20, 3), 1e-300), np.full((20, 2), 1e250)):
        y = np.arange(20) % 2
        model = HFWLogisticRegression().fit(X, y)
        assert 0.0 < model.radius_ < np.inf
        assert model.objective_ == pytest.approx(np.log(2.0))


@pytest.mark.parametrize("name", ["breast cancer", "wine", "digits"])
@pytest.mark.parametrize("standardised", [False, True])
def test_the_default_predicts_as_scikit_learns_does(name, standardised):
    load = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}[name]
    X, y = load(return_X_y=True)
    scaler = StandardScaler() if standardised else FunctionTransformer()
    splits = ShuffleSplit(5, test_size=0.3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn, without scaling
        theirs = cross_val_score(make_pipeline(scaler, LogisticRegression()), X, y, cv=splits).mean()
        ours = cross_val_score(make_pipeline(scaler, HFWLogisticRegression()), X, y, cv=splits).mean()
    assert ours > theirs - 0.01


@pytest.mark.parametrize("constraint", ["l1", "l2"])
def test_a_small_unit_does_not_set_the_default_radius(constraint):
    reference = HFWLogisticRegression(constraint).fit(X2, y2)
    noise = np.random.default_rng(0).normal(size=(len(y2), 1))
    for unit in (1e-2, 1e-6, 1e-100):
        model = HFWLogisticRegression(constraint).fit(np.hstack([X2, unit * noise]), y2)
        assert model.radius_ == pytest.approx(reference.radius_, rel=0.02)


@pytest.mark.parametrize("size", [1e-140, 1e163, 1e250])
def test_the_default_of_immense_and_tiny_features(size):
    model = HFWLogisticRegression(tol=1e-2).fit(size * X2, y2)
    assert model.objective_ < 0.5 * np.log(2.0)


def test_the_default_radius_of_a_simplex_with_a_flat_side():
    """All slopes are positive, and one is next to nothing: there is nothing to win by going there."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = np.column_stack([1.0 - y + 0.1 * rng.normal(size=200), 1e-9 * (1.0 - y) + rng.permutation(y)])
    model = HFWLogisticRegression("simplex", fit_intercept=False).fit(X - X.mean(axis=0), y)
    assert model.radius_ < 100.0


@pytest.mark.parametrize("weight", [1e-300, 1e307])
def test_the_default_radius_with_absurd_weights(weight):
    model = HFWLogisticRegression().fit(X2, y2, np.full(len(y2), weight))
    assert 0.1 < model.radius_ / HFWLogisticRegression().fit(X2, y2).radius_ < 1e2

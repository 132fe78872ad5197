"""Wrong input gets an error that names the parameter and the value, before any work."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skfw import HFWLogisticRegression, HFWMatrixCompletion, HFWMatrixCompletionCV
from skfw.engine import Constraint, L1Ball, L2Ball, LInfBall, NSupportBall, NuclearBall

RNG = np.random.default_rng(0)
X, y = RNG.normal(size=(30, 4)), RNG.integers(0, 2, 30)
ENTRIES, VALUES = np.argwhere(np.ones((6, 5))), RNG.normal(size=30)

SOLVER_ERRORS = [
    ({"radius": 0}, "radius must be a finite number above 0; got radius=0"),
    ({"radius": -1.0}, "got radius=-1.0"),
    ({"radius": np.nan}, "got radius=nan"),
    ({"radius": np.inf}, "got radius=inf"),
    ({"radius": "large"}, "got radius='large'"),
    ({"constraint": np.ones(3)}, "constraint must be one of"),
    ({"constraint": "l3"}, "constraint must be one of .* got constraint='l3'"),
    ({"momentum": "heavy"}, "momentum must be one of .* got momentum='heavy'"),
    ({"momentum": 1.0}, "momentum must be one of .* got momentum=1.0"),
    ({"momentum": None}, "got momentum=None"),
    ({"step_size": "big"}, "step_size must be one of .* got step_size='big'"),
    ({"step_size": 0.1}, "got step_size=0.1"),
    ({"restart": True}, "restart=True needs a momentum with fixed weights, .* got momentum='adaptive'"),
    ({"restart": True, "momentum": "none"}, "restart=True needs .* got momentum='none'"),
    ({"restart": "yes"}, "restart must be True or False; got restart='yes'"),
    ({"tol": -1e-3}, "tol must be a finite number of at least 0; got tol=-0.001"),
    ({"tol": np.nan}, "got tol=nan"),
    ({"max_iter": 0}, "max_iter must be an integer of at least 1; got max_iter=0"),
    ({"max_iter": 10.5}, "got max_iter=10.5"),
    ({"radius": True}, "radius must be a finite number above 0; got radius=True"),
    ({"max_iter": True}, "max_iter must be an integer of at least 1; got max_iter=True"),
    ({"tol": False}, "got tol=False"),
    ({"lipschitz": 0.0}, "lipschitz must be a finite number above 0; got lipschitz=0.0"),
    ({"warm_start": 1}, "warm_start must be True or False; got warm_start=1"),
    ({"verbose": -1}, "got verbose=-1"),
]
LOGISTIC_ERRORS = [
    *SOLVER_ERRORS,
    ({"constraint": "n_support", "support_size": 0}, "support_size must be .* got support_size=0"),
    (
        {"constraint": "n_support", "support_size": 5},
        r"support_size must be .*n_features=4.* got support_size=5",
    ),
    ({"constraint": "nuclear"}, "needs a matrix of coefficients"),
    ({"constraint": NuclearBall(1.0)}, "needs a matrix of coefficients"),
    ({"class_weight": "unbalanced"}, "class_weight must be .* got class_weight='unbalanced'"),
    ({"class_weight": {0: -1.0, 1: 1.0}}, "class_weight must be finite and non-negative"),
    ({"class_weight": {0: np.nan, 1: 1.0}}, "class_weight must be finite and non-negative"),
    ({"class_weight": {0: 0.0, 1: 1.0}}, "only one class, 1"),
    ({"fit_intercept": None}, "fit_intercept must be True or False; got fit_intercept=None"),
]
COMPLETION_ERRORS = [
    *SOLVER_ERRORS,
    ({"constraint": "l1"}, "constraint must be one of 'weighted_nuclear', 'nuclear' .* got constraint='l1'"),
    ({"biases": "some"}, "biases must be one of .* got biases='some'"),
    ({"normalize": "yes"}, "normalize must be True or False; got normalize='yes'"),
    ({"clip": 3}, "clip must be None or a pair in ascending order, each end a number or None; got clip=3"),
    ({"clip": (5, 1)}, r"got clip=\(5, 1\)"),
    ({"clip": (np.nan, 1)}, r"got clip=\(nan, 1\)"),
    ({"clip": ("a", "b")}, r"got clip=\('a', 'b'\)"),
    ({"clip": (None, "5")}, r"got clip=\(None, '5'\)"),
    ({"clip": (0, None, 5)}, r"got clip=\(0, None, 5\)"),
    ({"clip": (False, True)}, r"got clip=\(False, True\)"),
    ({"constraint": L1Ball(1.0)}, r"rank-one atoms, .* got constraint=L1Ball\(radius=1.0\)"),
    ({"constraint": NuclearBall(-1.0)}, "got radius=-1.0 for NuclearBall"),
    ({"implicit": "row"}, "implicit must be one of .* got implicit='row'; did you mean 'rows'?"),
    ({"implicit": None}, "got implicit=None"),
    ({"max_rank": 0}, "max_rank must be an integer of at least 1; got max_rank=0"),
    ({"radius": "auto"}, "radius must be 'scale' or a finite number above 0; got radius='auto'"),
]
# It sets the radius itself, also that of an object.
COMPLETION_CV_ERRORS = [
    (params, message)
    for params, message in COMPLETION_ERRORS
    if not params.keys() & {"radius", "warm_start"} and not isinstance(params.get("constraint"), Constraint)
]


@pytest.mark.parametrize("params, message", LOGISTIC_ERRORS)
def test_logistic_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        HFWLogisticRegression(**params).fit(X, y)


@pytest.mark.parametrize("params, message", COMPLETION_ERRORS)
def test_completion_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        HFWMatrixCompletion(**params).fit(ENTRIES, VALUES)


@pytest.mark.parametrize("params, message", COMPLETION_CV_ERRORS)
def test_completion_cv_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        HFWMatrixCompletionCV(**params).fit(ENTRIES, VALUES)


@pytest.mark.parametrize(
    "estimator, data",
    [
        (HFWLogisticRegression(), (X, y)),
        (HFWMatrixCompletion(), (ENTRIES, VALUES)),
        (HFWMatrixCompletionCV(), (ENTRIES, VALUES)),
    ],
)
@pytest.mark.parametrize(
    "weights, message",
    [
        (-np.ones(30), "sample_weight must be finite and non-negative; got weights from -1.0"),
        (np.full(30, np.nan), "sample_weight must be finite"),
        (np.full(30, np.inf), "sample_weight must be finite"),
        (np.zeros(30), "weights that are all zero"),
        (np.ones(29), r"sample_weight must have shape \(30,\), .* got shape \(29,\)"),
        (np.ones((30, 1)), r"got shape \(30, 1\)"),
    ],
)
def test_weights(estimator, data, weights, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(*data, weights)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_data(bad):
    broken = X.copy()
    broken[3, 1] = bad
    for data in (broken, sparse.csr_matrix(broken)):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            HFWLogisticRegression().fit(data, y)
    values = VALUES.copy()
    values[0] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        HFWMatrixCompletion().fit(ENTRIES, values)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        HFWMatrixCompletion().fit(np.where(ENTRIES == 1, bad, ENTRIES), VALUES)


def test_shapes_and_classes():
    with pytest.raises(ValueError, match="only one class, 1"):
        HFWLogisticRegression().fit(X, np.ones(30, dtype=int))
    with pytest.raises(ValueError, match="Unknown label type"):
        HFWLogisticRegression().fit(X, VALUES)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        HFWLogisticRegression().fit(X, y[:-1])
    with pytest.raises(ValueError, match="X has 3 features, but HFWLogisticRegression is expecting 4"):
        HFWLogisticRegression().fit(X, y).predict(X[:, :3])
    with pytest.raises(ValueError, match="1 feature"):
        HFWMatrixCompletion().fit(ENTRIES[:, :1], VALUES)
    with pytest.raises(ValueError, match="X has 3 features, but HFWMatrixCompletion is expecting 2"):
        HFWMatrixCompletion().fit(ENTRIES, VALUES).predict(np.ones((2, 3)))


EXTREMES = [(scale, radius) for scale in (1e-150, 1.0, 1e150) for radius in (1e-12, 1.0, 1e12)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale, radius", EXTREMES)
@pytest.mark.parametrize("constraint", ["l1", "l2", "linf", "n_support", "simplex", "nuclear"])
@pytest.mark.parametrize("step_size", ["parameter_free", "smooth", "directional", "line_search"])
@pytest.mark.parametrize("intercept", [False, True])
def test_extreme_scales(scale, radius, constraint, step_size, intercept):
    for labels in (y, RNG.integers(0, 3, 30)):
        if constraint == "nuclear" and labels is y:
            continue
        model = HFWLogisticRegression(
            constraint, radius, step_size=step_size, fit_intercept=intercept, max_iter=8
        ).fit(scale * X, labels)
        assert np.isfinite(model.trace_["objective"]).all()
        assert_certified(model, scale * X, labels)


def assert_certified(model, data, labels):
    """The objective is the log-loss of the model, which lies in its set, and the bound is not above it."""
    classes = np.searchsorted(model.classes_, labels)
    own = -model.predict_log_proba(data)[np.arange(len(labels)), classes].mean()
    # Coefficients times features are sums of such numbers, which are rounded.
    rounding = 64.0 * np.finfo(np.float64).eps * np.abs(np.abs(data) @ np.abs(model.coef_.T)).max()
    assert model.objective_ == pytest.approx(own, rel=1e-12, abs=rounding)
    assert 0.0 <= model.gap_ < np.inf
    assert model.lower_bound_ <= model.objective_
    if model.constraint != "simplex":
        assert _BALLS[model.constraint](model.radius).norm(model.coef_.T) <= model.radius * (1 + 1e-12)
    else:
        assert model.coef_.min() >= 0.0
        assert model.coef_.sum() == pytest.approx(model.radius, rel=1e-12)


_BALLS = {
    "l1": L1Ball,
    "l2": L2Ball,
    "linf": LInfBall,
    "n_support": lambda radius: NSupportBall(radius, 2),
    "nuclear": NuclearBall,
}


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
@pytest.mark.parametrize("step_size", ["parameter_free", "smooth", "directional", "line_search"])
def test_degenerate_data(kind, step_size):
    odd = X.copy()
    odd[:, 0] = 1.0  # a constant column
    odd[:, 1] = 0.0  # an empty one
    odd[5] = 0.0  # an empty row
    odd[7] = odd[8]  # a repeated one
    for data, labels in (
        (odd, y),
        (0.0 * X, y),
        (X[:, :1], RNG.integers(0, 3, 30)),
        (X[:2], np.array(["a", "b"])),
        (X[:3], np.arange(3)),
    ):
        model = HFWLogisticRegression("l2", 1.0, momentum="weighted", step_size=step_size, restart=True)
        model.fit(kind(data), labels)
        assert_certified(model, data, labels)
        assert model.gap_ <= 1e-4 * np.log(len(model.classes_))


def test_values_too_large_to_square():
    with pytest.raises(ValueError, match="y is too large"):
        HFWMatrixCompletion().fit(ENTRIES, 1e160 * VALUES)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("step_size", ["parameter_free", "smooth", "directional", "line_search"])
@pytest.mark.parametrize("scale, radius", [(1e-200, 1.0), (1e-300, 1e-100), (1.0, 1e150), (1e-200, 1e150)])
def test_more_extreme_scales(scale, radius, step_size):
    for constraint, labels in (("l1", y), ("nuclear", RNG.integers(0, 3, 30))):
        options = {"momentum": "weighted", "step_size": step_size, "restart": True, "max_iter": 5}
        model = HFWLogisticRegression(constraint, radius, **options).fit(scale * X, labels)
        assert_certified(model, scale * X, labels)


def test_verbose_may_be_a_boolean(capsys):
    HFWLogisticRegression("l1", verbose=False).fit(X, y)
    assert capsys.readouterr().out == ""
    HFWLogisticRegression("l1", verbose=True).fit(X, y)
    assert "certified gap" in capsys.readouterr().out


def test_bad_parameters_come_before_bad_data():
    with pytest.raises(ValueError, match="radius"):
        HFWLogisticRegression("l1", radius=-1).fit("nonsense", None)


def test_convergence_warning_is_the_only_one():
    with pytest.warns(ConvergenceWarning) as record:
        HFWLogisticRegression("l1", max_iter=1, tol=0).fit(X, y)
    assert len(record) == 1
    assert record[0].filename == __file__

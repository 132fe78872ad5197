"""Wrong uses of the public names, and what their errors say.

Parameters of the estimators are in `test_params.py`; these are the other ways to go wrong.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from skfw import (
    HFWImputer,
    HFWLogisticRegression,
    HFWLogisticRegressionCV,
    HFWMatrixCompletion,
    HFWMatrixCompletionCV,
    entries_to_matrix,
    hfw_logistic_path,
    matrix_to_entries,
)
from skfw.engine import GroupBall, L1Ball, NSupportBall, Simplex

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), RNG.integers(0, 2, 30)
ENTRIES, VALUES = np.argwhere(np.ones((6, 5))), RNG.normal(size=30)
HOLES = np.where(X > 1.0, np.nan, X)
NO_ID = "neither missing (NaN, None) nor infinite; entry"


def classify(constraint="l1", X=X, y=Y, sample_weight=None, **params):
    return lambda: HFWLogisticRegression(constraint, **params).fit(X, y, sample_weight)


def search(radii, **params):
    return lambda: HFWLogisticRegressionCV("l1", radii=radii, **params).fit(X, Y)


def complete(X=ENTRIES, y=VALUES, sample_weight=None, **params):
    return lambda: HFWMatrixCompletion(**params).fit(X, y, sample_weight)


def search_completion(*args, X=ENTRIES, y=VALUES, sample_weight=None, **params):
    return lambda: HFWMatrixCompletionCV(*args, **params).fit(X, y, sample_weight)


def recommend(*args, **params):
    return lambda: HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES).recommend(*args, **params)


def predict(X):
    return lambda: HFWMatrixCompletion(random_state=0).fit(ENTRIES, VALUES).predict(X)


def impute(X=HOLES, **params):
    return lambda: HFWImputer(**params).fit(X)


def to_entries(matrix):
    return lambda: matrix_to_entries(matrix)


def to_matrix(entries, values, *shape):
    return lambda: entries_to_matrix(entries, values, *shape)


def with_id(value):
    """Return the ids of entries, with this one for the column of the fourth."""
    ids = ENTRIES.astype(object)
    ids[3, 1] = value
    return ids


WRONG_USES = [
    # Names that are nearly right.
    (classify("L1"), "or a Constraint object; got constraint='L1'; did you mean 'l1'?"),
    (classify("n-support"), "got constraint='n-support'; did you mean 'n_support'?"),
    (classify("lasso"), "got constraint='lasso'."),
    (classify(L1Ball), "or a Constraint object; got constraint=<class"),
    (classify(momentum="Weighted"), "got momentum='Weighted'; did you mean 'weighted'?"),
    (classify(step_size="linesearch"), "got step_size='linesearch'; did you mean 'line_search'?"),
    (classify(class_weight="balance"), "class_weight must be None, 'balanced' or a dict; got"),
    (complete(biases="row"), "got biases='row'; did you mean 'rows'?"),
    (complete(biases=np.array(["rows", "columns"])), "biases must be one of"),
    (complete(constraint="Nuclear"), "got constraint='Nuclear'; did you mean 'nuclear'?"),
    (lambda: hfw_logistic_path(X, Y, constraint="L2"), "did you mean 'l2'?"),
    # Numbers.
    (classify(L1Ball(True)), "radius must be a positive, finite number; got radius=True for L1Ball."),
    (classify(Simplex("5")), "got radius='5' for Simplex."),
    (classify(radius="5"), "radius must be 'scale' or a finite number above 0; got radius='5'."),
    (classify(NSupportBall(1.0, True)), "got support_size=True."),
    (
        classify(GroupBall(1.0, [0, 1])),
        "one non-negative integer for each of the 4 features; got groups=[0, 1]",
    ),
    (complete(weight_exponent=-1), "weight_exponent must be a finite number of at least 0; got"),
    (complete(bias_penalty=0), "bias_penalty must be a finite number above 0; got bias_penalty=0."),
    (search([2, -1]), "radii[1] must be a finite number above 0; got radii[1]=-1."),
    (search(["1"]), "radii[0] must be a finite number above 0; got radii[0]='1'."),
    (search("auto"), "radii must be a number of radii or a sequence of them; got radii='auto'."),
    (search(0), "radii must be an integer of at least 1; got radii=0."),
    (search(3, cv=100), "n_splits=100 greater than the number of samples"),
    (lambda: hfw_logistic_path(X, Y, [0, 1]), "radii[0] must be a finite number above 0; got radii[0]=0."),
    (search_completion([2, -1]), "radii[1] must be a finite number above 0; got radii[1]=-1."),
    (search_completion(0), "radii must be an integer of at least 1; got radii=0."),
    (search_completion(cv=100), "n_splits=100 greater than the number of samples"),
    (search_completion(scoring=3), "scoring must be None, one name or one callable"),
    (impute(radius=0), "radius must be a finite number above 0; got radius=0."),
    (impute(bias_penalty=None), "bias_penalty must be a finite number above 0; got bias_penalty=None."),
    # Weights.
    (classify(sample_weight="balanced"), "sample_weight must have numbers; got sample_weight='balanced'."),
    (complete(sample_weight=["a"] * 30), "sample_weight must have numbers; got sample_weight=['a',"),
    (complete(sample_weight=np.ones((5, 6))), "sample_weight must have shape (30,), one weight for each"),
    (search_completion(sample_weight=["a"] * 30), "sample_weight must have numbers; got sample_weight=['a',"),
    (search_completion(sample_weight=np.ones((5, 6))), "sample_weight must have shape (30,), one weight for"),
    # Data.
    (classify(X=X[:, 0]), "Expected 2D array, got 1D array"),
    (classify(X=HOLES), "Input X contains NaN"),
    (classify(y=None), "requires y to be passed"),
    (classify(y=np.column_stack([Y, Y])), "y should be a 1d array"),
    (complete(X=ENTRIES[:, 0]), "Expected 2D array, got 1D array"),
    (complete(X=sparse.csr_matrix(ENTRIES)), "got a sparse matrix. matrix_to_entries returns the ids"),
    (complete(y=VALUES[:5]), "inconsistent numbers of samples: [30, 5]"),
    (complete(y=["a"] * 30), "y must have numbers, the values of the entries; got an array of <U1."),
    (complete(y=VALUES.astype(str)), "y must have numbers, the values of the entries; got an array of <U"),
    (complete(y=None), "requires y to be passed"),
    (search_completion(y=None), "requires y to be passed"),
    (search_completion(y=["a"] * 30), "y must have numbers, the values of the entries; got an array of <U1."),
    (search_completion(X=sparse.csr_matrix(ENTRIES)), "got a sparse matrix. matrix_to_entries returns the"),
    (impute(np.full((3, 2), np.nan)), "X has no observed value"),
    (impute(X=np.where(X > 1.0, np.inf, X)), "infinity"),
    # Ids.
    (complete(np.where(ENTRIES == 3, np.nan, ENTRIES)), f"{NO_ID} 15 has nan as its row id."),
    (complete(np.where(ENTRIES == 3, np.inf, ENTRIES)), f"{NO_ID} 15 has inf as its row id."),
    (complete(with_id(None)), f"{NO_ID} 3 has None as its column id."),
    (complete(with_id(pd.NA)), f"{NO_ID} 3 has <NA> as its column id."),
    (complete(with_id([1, 2])), f"other hashable values, and {NO_ID} 3 has [1, 2] as its column id."),
    (predict(with_id(None)), f"{NO_ID} 3 has None as its column id."),
    (predict(ENTRIES[:, :1]), "X has 1 features, but HFWMatrixCompletion is expecting 2"),
    (predict(sparse.csr_matrix(ENTRIES)), "got a sparse matrix. matrix_to_entries returns the ids"),
    (recommend(["1"]), "Row '1' was not seen in fit: it is of type str, in fit of type int."),
    (recommend([1.5]), "Row 1.5 was not seen in fit."),
    (recommend([1], n=2.5), "n must be an integer of at least 1; got n=2.5."),
    # Matrices and their entries.
    (to_entries([1.0, 2.0]), "matrix must have two dimensions; got an array of shape (2,)."),
    (to_entries(np.ones((2, 2, 2))), "matrix must have two dimensions; got an array of shape (2, 2, 2)."),
    (to_entries([["a", "b"]]), "matrix must have numbers, and NaN where one is missing; got dtype <U1."),
    (to_entries([[1.0, None]]), "matrix must have numbers, and NaN where one is missing; got dtype object."),
    (to_entries(pd.DataFrame({"x": [1.0], "y": ["a"]})), "and NaN where one is missing; got dtype"),
    (to_entries(pd.DataFrame([[1.0, 2.0]], columns=["x", "x"])), "for each of its columns; 'x' repeats."),
    (to_entries(pd.DataFrame([[1.0], [2.0]], index=["a", "a"])), "for each of its rows; 'a' repeats."),
    (to_matrix([[0, 0.5]], [1.0]), "entries must be indices of rows and columns; got 0.5."),
    (to_matrix([[0, np.inf]], [1.0]), "entries must be indices of rows and columns; got inf."),
    (to_matrix([["a", "b"]], [1.0]), "entries must be indices of rows and columns; got an array of <U1."),
    (to_matrix([[0, 0, 1, 1]], [1.0]), "entries must have shape (n_entries, 2); got shape (1, 4)."),
    (to_matrix([[0, 0]], [1.0, 2.0]), "values must have shape (1,), one for each entry; got shape (2,)."),
    (to_matrix([[0, 0]], ["a"]), "values must be numbers; got an array of <U1."),
    (to_matrix([[0, 5]], [1.0], (2, 2)), "count from zero; got row 0, column 5 for shape (2, 2)."),
    (to_matrix([[5, 0]], [1.0], (2, 2)), "count from zero; got row 5, column 0 for shape (2, 2)."),
    (to_matrix([[0, 0]], [1.0], 3), "shape must be a pair of integers; got shape=3."),
    (to_matrix([[0, 0]], [1.0], (2.5, 3)), "shape must be a pair of integers; got shape=(2.5, 3)."),
]


@pytest.mark.parametrize("use, message", WRONG_USES, ids=[message[:40] for _, message in WRONG_USES])
def test_the_message_says_what_is_wrong(use, message):
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        use()
    assert message in str(caught.value)

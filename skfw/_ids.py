"""Names of rows and columns: from ids of any kind to indices."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import OrdinalEncoder


def keep_ids(X):
    """Return a data frame whose columns have different types with exact ids.

    As one array it would have their common type, in which large integers lose digits.
    """
    mixed = hasattr(X, "dtypes") and hasattr(X, "astype") and len(set(X.dtypes)) > 1
    return X.astype(object) if mixed else X


class IdEncoder:
    """Numbers the distinct rows of an array of ids, which may be numbers or strings.

    Attributes
    ----------
    ids : ndarray of shape (n_ids, n_columns)
        The distinct rows, in the order of their indices.
    """

    def fit(self, ids):
        """Learn the ids and return their indices."""
        self._encoder = OrdinalEncoder(dtype=np.intp, handle_unknown="use_encoded_value", unknown_value=-1)
        codes = self._encoder.fit_transform(ids)
        self._codes, indices = np.unique(codes, axis=0, return_inverse=True)
        self.ids = self._encoder.inverse_transform(self._codes)
        return indices.ravel()

    def transform(self, ids):
        """Return the indices of ids, -1 for those not learned."""
        n_known = len(self._codes)
        both = np.vstack([self._codes, self._code(ids)])
        _, group = np.unique(both, axis=0, return_inverse=True)
        group = group.ravel()
        index_of_group = np.full(len(both), -1)
        index_of_group[group[:n_known]] = np.arange(n_known)
        return index_of_group[group[n_known:]]

    def _code(self, ids):
        try:
            return self._encoder.transform(ids)
        except (TypeError, ValueError):  # numbers among strings, or the reverse: compare one by one
            lookups = [{value: code for code, value in enumerate(c)} for c in self._encoder.categories_]
            columns = zip(lookups, ids.T, strict=True)
            return np.array([[lookup.get(value, -1) for value in column] for lookup, column in columns]).T

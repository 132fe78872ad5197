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
        numbers = codes[:, 0]
        self._pairs = []  # from a number for the columns so far and a code of the next one, to a number
        for column, categories in zip(codes.T[1:], self._encoder.categories_[1:], strict=True):
            pairs, numbers = np.unique(numbers * len(categories) + column, return_inverse=True)
            self._pairs.append(pairs)
        _, first = np.unique(numbers, return_index=True)
        self.ids = self._encoder.inverse_transform(codes[first])
        return numbers

    def transform(self, ids):
        """Return the indices of ids, -1 for those not learned."""
        codes = self._code(ids)
        numbers = codes[:, 0]
        columns = zip(codes.T[1:], self._encoder.categories_[1:], self._pairs, strict=True)
        for column, categories, pairs in columns:
            wanted = numbers * len(categories) + column
            found = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
            learned = (numbers >= 0) & (column >= 0) & (pairs[found] == wanted)
            numbers = np.where(learned, found, -1)
        return numbers

    def _code(self, ids):
        try:
            return self._encoder.transform(ids)
        except (TypeError, ValueError):  # numbers among strings, or the reverse: compare one by one
            lookups = [{value: code for code, value in enumerate(c)} for c in self._encoder.categories_]
            columns = zip(lookups, ids.T, strict=True)
            return np.array([[lookup.get(value, -1) for value in column] for lookup, column in columns]).T

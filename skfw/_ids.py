"""Names of rows and columns: from ids of any kind to indices."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import OrdinalEncoder


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
        both = np.vstack([self._codes, self._encoder.transform(ids)])
        _, group = np.unique(both, axis=0, return_inverse=True)
        group = group.ravel()
        index_of_group = np.full(len(both), -1)
        index_of_group[group[:n_known]] = np.arange(n_known)
        return index_of_group[group[n_known:]]

"""What a completed matrix is asked for: the best columns of a row, and what is similar to what."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._ids import keep_ids, other_types
from ._params import check_flag, check_integer
from .engine import thread_pool

# Scores that are computed at once. More of them take more memory, and no less time.
_BLOCK = 1 << 20


class RecommenderMixin:
    """Ranks the columns for each row, and the neighbours of rows and columns, by what `fit` has learned."""

    def recommend(self, row_ids=None, n=10, *, candidates=None, exclude_known=True):
        """Return the columns with the largest predictions for each row.

        Beyond what it returns, the memory it takes does not depend on the number of rows.

        Parameters
        ----------
        row_ids : array of shape (n_rows,), optional
            Ids of rows seen in `fit`; by default all, in the order of `row_ids_`.
        n : int, default=10
            How many columns for each row.
        candidates : array of shape (n_candidates,), optional
            Ids of the columns among which to choose; by default all. Where several features name a column,
            they are the second axis. An id that is repeated counts once.
        exclude_known : bool, default=True
            Whether to leave out the columns of which the row has an entry in the data of `fit`.

        Returns
        -------
        column_ids : ndarray of shape (n_rows, n), with one axis more if several features name a column
            The best first, equal ones in the order of `column_ids_`. A masked array if fewer than `n` columns
            are left for some row: the places without a column are masked, whatever the type of the ids.
        predictions : ndarray of shape (n_rows, n)
            NaN at the places without a column.

        Examples
        --------
        >>> from skfw import HFWMatrixCompletion
        >>> X = [["Ann", "tea"], ["Ann", "milk"], ["Bob", "tea"], ["Bob", "soup"], ["Eve", "milk"]]
        >>> model = HFWMatrixCompletion(radius=2, tol=1e-3, random_state=0).fit(X, [5, 3, 4, 1, 3])
        >>> names, predictions = model.recommend(["Eve", "Bob"], n=2)
        >>> names.tolist()
        [['tea', 'soup'], ['milk', None]]
        >>> predictions.round(1)
        array([[3.4, 3.1],
               [3.1, nan]])
        """
        check_is_fitted(self)
        check_flag("exclude_known", exclude_known)
        rows = known_indices("Row", row_ids, self._row_encoder)
        columns = slice(None)  # for which nothing is copied
        if candidates is not None:
            columns = np.unique(known_indices("Column", candidates, self._column_encoder))
        factors, biases = self.column_factors_[columns], self.column_biases_[columns]

        def predictions(block):
            some = rows[block]
            result = np.dot(self.row_factors_[some], factors.T)
            result += self.mean_ + self.row_biases_[some, np.newaxis] + biases
            if exclude_known:
                result[self._observed[some][:, columns].nonzero()] = -np.inf
            return result

        return _ranking(predictions, len(rows), self.column_ids_[columns], n, self._clipped)

    def similar_columns(self, column_ids=None, n=10):
        """Return the columns that are most similar to each of some columns, without itself.

        The similarity is the cosine of two columns of the low-rank part, which have a number for each row: it
        tells how much the rows agree on both, apart from the biases. It is zero if one of them is zero.

        Parameters
        ----------
        column_ids : array of shape (n_columns,), optional
            Ids of columns seen in `fit`; by default all, in the order of `column_ids_`. Where several
            features name a column, they are the second axis.
        n : int, default=10
            How many similar columns for each.

        Returns
        -------
        similar_ids : ndarray of shape (n_columns, n), with one axis more if several features name a column
            The most similar first, equal ones in the order of `column_ids_`. A masked array if there are
            fewer than `n` other columns: the places without a column are masked.
        similarities : ndarray of shape (n_columns, n)
            From -1 to 1; NaN at the places without a column.
        """
        check_is_fitted(self)
        columns = known_indices("Column", column_ids, self._column_encoder)
        return _neighbours(columns, self.column_factors_, self.singular_values_, self.column_ids_, n)

    def similar_rows(self, row_ids=None, n=10):
        """Return the rows that are most similar to each of some rows, without itself.

        The similarity is the cosine of two rows of the low-rank part, as of columns in `similar_columns`.

        Parameters
        ----------
        row_ids : array of shape (n_rows,), optional
            Ids of rows seen in `fit`; by default all, in the order of `row_ids_`.
        n : int, default=10
            How many similar rows for each.

        Returns
        -------
        similar_ids : ndarray of shape (n_rows, n)
            The most similar first, equal ones in the order of `row_ids_`. A masked array if there are fewer
            than `n` other rows: the places without a row are masked.
        similarities : ndarray of shape (n_rows, n)
            From -1 to 1; NaN at the places without a row.
        """
        check_is_fitted(self)
        rows = known_indices("Row", row_ids, self._row_encoder)
        return _neighbours(rows, self.row_factors_, self.singular_values_, self.row_ids_, n)


def known_indices(axis, ids, encoder):
    """Return the indices of the ids of rows or columns; None stands for all."""
    if ids is None:
        return np.arange(len(encoder.ids))
    if np.ma.is_masked(ids):  # as what is returned may be
        raise ValueError(f"Ids of {axis.lower()}s must not be masked; ids.compressed() leaves those out.")
    ids, n_features = np.asarray(keep_ids(ids)), encoder.ids.shape[1]
    if n_features == 1:
        ids = ids.reshape(-1, 1)
    elif ids.ndim != 2 or ids.shape[1] != n_features:
        raise ValueError(
            f"Ids of {axis.lower()}s must have shape (n_{axis.lower()}s, {n_features}), as many features as "
            f"in fit; got shape {ids.shape}."
        )
    indices = encoder.transform(ids)
    if indices.min(initial=0) < 0:
        new = ids[[np.argmin(indices)]]
        types = other_types(new, encoder.ids)
        reason = f": it is of type {types[0]}, in fit of type {types[1]}" if types else ""
        name = new.item() if n_features == 1 else tuple(new[0].tolist())
        raise ValueError(f"{axis} {name!r} was not seen in fit{reason}.")
    return indices


def _neighbours(indices, factors, singular_values, ids, n):
    """Return the ids of the rows, or columns, of the low-rank part with the largest cosines, and these."""
    # Those in the low-rank part have the same cosines, because the factors on its other side have orthogonal
    # columns with the singular values as squared norms. Divided by the largest one, no square is too small.
    vectors = factors * (np.sqrt(singular_values) / singular_values[:1])
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, np.newaxis]  # without another copy
    vectors /= np.where(norms > 0.0, norms, 1.0)

    def cosines(block):
        some = indices[block]
        result = np.dot(vectors[some], vectors.T)
        result[np.arange(len(some)), some] = -np.inf
        return result

    return _ranking(cosines, len(indices), ids, n, lambda values: np.clip(values, -1.0, 1.0))


@thread_pool()
def _ranking(scores_of, n_rows, ids, n, clipped):
    """Return the ids with the `n` largest scores in each row, and these scores, the largest first.

    `scores_of` computes the scores of a slice of the rows, one for each of the `ids`, and -inf for those to
    leave out. What is returned of the scores is `clipped`, which does not change the order.
    """
    check_integer("n", n, at_least=1)
    best = np.zeros((n_rows, n, *ids.shape[1:]), dtype=ids.dtype)
    best_scores = np.full((n_rows, n), np.nan)
    size = max(1, _BLOCK // max(1, len(ids)))
    for start in range(0, n_rows, size):
        rows, places, found, scores = _largest(scores_of(slice(start, start + size)), n)
        best[start + rows, places] = ids[found]
        best_scores[start + rows, places] = clipped(scores)
    if np.isnan(best_scores[:, -1]).any():
        best = np.ma.array(best)
        best[np.isnan(best_scores)] = np.ma.masked
    return best, best_scores


def _largest(scores, n):
    """Return the row, the place in it, the column and the value of the `n` largest scores of each row.

    They are finite, and equal ones are in the order of columns.
    """
    candidates = scores > -np.inf
    if n < scores.shape[1]:
        candidates &= scores >= np.partition(scores, -n, axis=1)[:, [-n]]
    rows, columns = np.nonzero(candidates)
    values = scores[rows, columns]
    order = np.lexsort((-values, rows))  # which leaves equal ones in the order of columns
    rows, columns, values = rows[order], columns[order], values[order]
    places = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = places < n  # all but those that equal the last one
    return rows[kept], places[kept], columns[kept], values[kept]

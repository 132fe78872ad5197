"""Rows of collections, frames and arrays as blocks, checked and aligned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dask
import dask.array
import numpy as np
from scipy import sparse

from ..engine import Here, Pieces
from ._cluster import OnCluster


class InProcess(Here):
    """Blocks in this process, computed by Dask's local scheduler."""

    n_parts = 1

    def load(self, delayed):
        """Return what delayed objects stand for."""
        return dask.compute(*delayed)


@dataclass(frozen=True)
class Look:
    """What is known of a block after one look at it.

    Attributes
    ----------
    n_features : int
    dtype : dtype of the features
    finite : tuple of two booleans
        Whether features and targets are finite.
    weights : tuple of three floats
        The smallest and the largest sample weight, NaN if one is; and their sum, divided by the largest.
    targets : whatever the estimator has asked for
    """

    n_features: int
    dtype: np.dtype
    finite: tuple
    weights: tuple
    targets: Any


@dataclass(frozen=True)
class Rows:
    """The rows of a fit in blocks.

    Attributes
    ----------
    runner : Runner
    X, y, weights : Pieces
        Features, targets and sample weights of the same blocks; none of them is empty.
    looks : list of Look
    seen : dict
        The attributes that tell of the features.
    """

    runner: Any
    X: Pieces
    y: Pieces
    weights: Pieces
    looks: list
    seen: dict

    @property
    def dtype(self):
        """Single precision if all blocks have that."""
        return np.result_type(*(look.dtype for look in self.looks))

    @property
    def largest_weight(self):
        """The largest sample weight."""
        return max(look.weights[1] for look in self.looks)


def read_rows(name, client, X, y, sample_weight, look_at):
    """Return the rows of a fit; `look_at` is what to find out of targets and weights of a block.

    `name` is that of the estimator.
    """
    runner = InProcess() if client is None else OnCluster(client)
    features, names = _blocks(runner, X)
    features = runner.map(_as_matrix, features)
    lengths = runner.parts(runner.map(_length, features))
    if not sum(lengths):
        raise ValueError(f"{name} needs at least one sample; X has none.")
    parts = [features, _aligned(runner, "y", y, lengths)]
    if sample_weight is None:
        parts.append(runner.map(_ones, features))
    else:
        parts.append(runner.map(_as_weights, _aligned(runner, "sample_weight", sample_weight, lengths)))
    # Empty blocks, as filters leave them, have nothing to say.
    filled = [k for k, length in enumerate(lengths) if length]
    parts = [part.of_blocks(filled) for part in parts]
    looks = runner.parts(runner.map(_look, *parts, look_at))
    ends = np.cumsum(lengths)[filled]
    for number, (look, end) in enumerate(zip(looks, ends, strict=True)):
        _check(look, looks[0], f"block {filled[number]} (rows up to {end - 1})")
    if max(look.weights[1] for look in looks) == 0.0:
        raise ValueError("sample_weight must have a positive weight; got weights that are all zero.")
    seen = {"n_features_in_": looks[0].n_features}
    if names is not None:
        seen["feature_names_in_"] = np.array(names, dtype=object)
    return Rows(runner, *parts, looks, seen)


def _blocks(runner, data):
    """Return the blocks of rows of anything that has rows, and the names of its columns."""
    names = getattr(data, "columns", None)
    names = None if names is None or not all(isinstance(each, str) for each in names) else list(names)
    if isinstance(data, dask.array.Array):
        grid = data.to_delayed().reshape(data.numblocks[0], -1)
        delayed = [row[0] if len(row) == 1 else dask.delayed(_side_by_side)(list(row)) for row in grid]
        return Pieces(runner.load(delayed)), names
    if dask.is_dask_collection(data):
        return Pieces(runner.load(data.to_delayed())), names
    part = _as_array(data)
    cuts = np.linspace(0, part.shape[0], runner.n_parts + 1).astype(int)
    return Pieces(runner.spread([part[a:b] for a, b in pairwise(cuts)])), names


def _aligned(runner, name, data, lengths):
    """Return the blocks of data with the lengths of other blocks."""
    blocks, _ = _blocks(runner, data)
    blocks = runner.map(_as_array, blocks)
    own = runner.parts(runner.map(_length, blocks))
    if sum(own) != sum(lengths):
        raise ValueError(
            f"X and {name} must have the same number of rows; got {sum(lengths)} and {sum(own)}."
        )
    if own == lengths:
        return blocks
    starts, handles = np.cumsum([0, *own]), []
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        first = end - length
        used = [k for k in range(len(own)) if own[k] and starts[k] < end and starts[k + 1] > first]
        cuts = [(max(first - starts[k], 0), min(end - starts[k], own[k])) for k in used]
        used = used or [0]
        cuts = cuts or [(0, 0)]
        handles.append(runner.submit(_Cut(tuple(cuts)), [blocks.handles[k] for k in used]))
    return Pieces(tuple(handles))


def _check(look, first, where):
    """Raise a ValueError if something is wrong with a block."""
    for name, finite in zip(("X", "y"), look.finite, strict=True):
        if not finite:
            raise ValueError(f"{name} contains NaN or infinity, in {where}.")
    if look.n_features != first.n_features:
        raise ValueError(
            f"X must have the same features in all blocks; got {first.n_features} in the first and "
            f"{look.n_features} in {where}."
        )
    if not (np.isfinite(look.weights[:2]).all() and look.weights[0] >= 0.0):
        raise ValueError(
            f"sample_weight must be finite and non-negative; got weights from {look.weights[0]} to "
            f"{look.weights[1]} in {where}."
        )


# What is done with a block.


@dataclass(frozen=True)
class _Cut:
    """Puts some rows of some blocks together."""

    cuts: tuple

    def __call__(self, parts):
        return np.concatenate([part[a:b] for (a, b), part in zip(self.cuts, parts, strict=True)])


def _side_by_side(parts):
    return sparse.hstack(parts, format="csr") if sparse.issparse(parts[0]) else np.hstack(parts)


def _as_array(part):
    if sparse.issparse(part):
        return part.tocsr()
    return part.to_numpy() if hasattr(part, "to_numpy") else np.asarray(part)


def _as_matrix(part):
    """Return features as an array or a CSR matrix of floats."""
    part = _as_array(part)
    if part.ndim != 2:
        raise ValueError(f"X must have two dimensions; got a block of shape {part.shape}.")
    if part.dtype.kind == "c":
        raise ValueError("X must have real numbers; got complex ones.")
    if not sparse.issparse(part):
        part = np.ascontiguousarray(part)
    return part if part.dtype in (np.float32, np.float64) else part.astype(np.float64)


def _as_weights(part):
    if part.ndim != 1:
        raise ValueError(f"sample_weight must have one dimension; got a block of shape {part.shape}.")
    return part.astype(np.float64)


def _ones(X):
    return np.ones(X.shape[0])


def _length(part):
    return part.shape[0]


def _look(X, y, weights, look_at):
    stored = X.data if sparse.issparse(X) else X
    largest = float(weights.max())
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        total = float((weights / largest).sum()) if largest > 0.0 else 0.0
    finite = bool(np.isfinite(stored).all()), y.dtype.kind != "f" or bool(np.isfinite(y).all())
    summary = (float(weights.min()), largest, total)
    return Look(X.shape[1], X.dtype, finite, summary, look_at(y, weights) if all(finite) else None)

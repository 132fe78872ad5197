"""
A film that nobody has rated yet
================================

A new film has no ratings, then one, then a few, while its genres are known from the start. On made ratings
one sees what each of them is worth.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skfw import HFWMatrixCompletion

rng = np.random.default_rng(0)
n_people, n_films = 500, 300
films = pd.DataFrame(
    rng.uniform(size=(n_films, 6)) < 0.3,
    index=[f"film {i:03d}" for i in range(n_films)],
    columns=["action", "comedy", "drama", "horror", "romance", "thriller"],
)

# %%
# People differ in which genres they like, and in what else they like about a film, which no genre tells.

by_genre = rng.normal(size=(n_people, 6)) @ films.to_numpy().T
by_the_rest = rng.normal(size=(n_people, 2)) @ rng.normal(size=(2, n_films))
mildness, quality = rng.normal(size=(n_people, 1)), rng.normal(size=n_films)
noise = rng.normal(size=(n_people, n_films))
liking = 3.5 + 0.3 * mildness + 0.4 * quality + 0.6 * by_genre + 0.3 * by_the_rest + 0.5 * noise
rows, columns = np.nonzero(rng.uniform(size=liking.shape) < 0.2)
ratings = pd.DataFrame({"person": rows, "film": films.index[columns], "rating": liking[rows, columns]})
ratings = ratings.sample(frac=1.0, random_state=0)
print(ratings.head())

# %%
# A fifth of the films is new: no rating of theirs is in ``fit``. Where their genres are given, they are known
# all the same. A radius of next to nothing leaves the biases alone.

ids = ["person", "film"]
is_new = ratings["film"].isin(films.index[::5])
old = ratings[~is_new]
models = {
    "biases alone": HFWMatrixCompletion(radius=1e-6, implicit="none").fit(old[ids], old["rating"]),
    "ratings": HFWMatrixCompletion(random_state=0).fit(old[ids], old["rating"]),
    "genres and ratings": HFWMatrixCompletion(random_state=0).fit(
        old[ids], old["rating"], column_features=films
    ),
}

# %%
# Then ratings come in. ``fold_in`` is given all that the new films have so far; the rest of a model stays as
# it is. The error is that on ratings that are never folded in.

counts = [0, 1, 2, 5, 10, 20]
number = ratings.groupby("film").cumcount()
is_test = is_new & (number >= max(counts))
errors = pd.DataFrame(index=counts, columns=list(models), dtype=float)
for count in counts:
    arrived = ratings[is_new & (number < count)]
    for name, model in models.items():
        if count:
            model.fold_in(arrived[ids], arrived["rating"], axis="columns")
        error = (model.predict(ratings[ids]) - ratings["rating"])[is_test]
        errors.loc[count, name] = np.sqrt(np.mean(error**2))
print(errors.round(2))

# %%
# Genres alone are worth more here than twenty ratings without them. Ratings then add what genres do not tell,
# for which a single one is too little.

figure, ax = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
places = range(len(counts))
for name, color in zip(errors, ("0.5", "C0", "C1"), strict=True):
    ax.plot(places, errors[name], "o-", color=color)
    ax.text(5.15, errors[name].iloc[-1], name, color=color, va="center")
ax.annotate("genres alone", (0, errors.iloc[0, 2]), (0, -18), textcoords="offset points", color="C1")
ax.axhline(0.5, color="0.7", linestyle=":")
ax.text(0, 0.51, "the noise: nobody can be better", color="0.5")
ax.set_xticks(places, counts)
ax.set(xlim=(-0.3, 6.8), xlabel="ratings that a new film has", ylabel="error (RMSE)")
ax.set_title("How well the other ratings of a new film are predicted")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

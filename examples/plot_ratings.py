"""
Ratings completed, and films recommended
========================================

Made ratings with a few hidden tastes. Films and people have names, some people rate much and some little, and
the radius is chosen by cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from skfw import HFWMatrixCompletionCV, RadiusPathDisplay

rng = np.random.default_rng(0)
people = np.array([f"person {i:03d}" for i in range(400)])
films = np.array([f"film {j:03d}" for j in range(200)])
tastes = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 200)) / np.sqrt(3)
liking = 3.5 + 0.4 * rng.normal(size=(400, 1)) + 0.4 * rng.normal(size=200) + 0.6 * tastes
ratings = np.clip(np.round(liking + 0.4 * rng.normal(size=liking.shape)), 1, 5)
activity, fame = rng.pareto(2.0, 400) + 0.3, rng.pareto(2.0, 200) + 0.3
rated = rng.uniform(size=ratings.shape) < np.minimum(0.07 * np.outer(activity, fame), 0.9)
rows, columns = np.nonzero(rated)
table = pd.DataFrame({"person": people[rows], "film": films[columns], "rating": ratings[rated]})
print(table.head())

# %%
# Two columns of names, one of values. The radii follow from the data, and end once larger ones are worse.

train, test = train_test_split(table, random_state=0)
model = HFWMatrixCompletionCV(clip=(1, 5), scoring="neg_root_mean_squared_error", random_state=0)
model.fit(train[["person", "film"]], train["rating"])
error = np.sqrt(np.mean((model.predict(test[["person", "film"]]) - test["rating"]) ** 2))
print(f"radius {model.radius_:.2f}, rank {model.rank_}, implicit features: {model.implicit_}")
print(f"error {error:.3f}; the ratings vary by {test['rating'].std():.3f}")
print(f"objective {model.objective_:.4f}, by at most {model.gap_:.4f} above the smallest one in the ball")
RadiusPathDisplay.from_estimator(model)
plt.show()

# %%
# The best films someone has not rated:

names, predictions = model.recommend(["person 007", "person 042"], n=3)
for person, best, expected in zip(("person 007", "person 042"), names, predictions, strict=True):
    print(person, [f"{film} ({rating:.1f})" for film, rating in zip(best, expected, strict=True)])

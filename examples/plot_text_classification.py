"""
Sparse text classification
==========================

Which part of scikit-learn does a docstring come from? The texts come with the library, so this runs offline.
In an l1 ball few words decide, and the certificate says that no other coefficients in it would do better.
"""

import inspect
from importlib import import_module

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skfw import HFWLogisticRegression

texts, labels = [], []
for topic in ("metrics", "linear_model", "preprocessing"):
    module = import_module(f"sklearn.{topic}")
    for name in module.__all__:
        documented = [getattr(module, name)]
        if inspect.isclass(documented[0]):
            documented += [method for _, method in inspect.getmembers(documented[0], inspect.isfunction)]
        for paragraph in "\n\n".join(inspect.getdoc(item) or "" for item in documented).split("\n\n"):
            if len(paragraph) > 80:
                texts.append(paragraph)
                labels.append(topic)
texts, keep = np.unique(texts, return_index=True)
labels = np.array(labels)[keep]
print(len(texts), "paragraphs")

# %%
# The ball holds the coefficients of all three classes together.

train, test, y_train, y_test = train_test_split(texts, labels, random_state=0, stratify=labels)
vectorizer = TfidfVectorizer(min_df=3, token_pattern=r"[a-z]{3,}", stop_words="english")
model = make_pipeline(vectorizer, HFWLogisticRegression("l1", radius=400, tol=1e-3)).fit(train, y_train)
fitted = model[-1]
print(f"accuracy {model.score(test, y_test):.3f}")
print(f"{np.count_nonzero(fitted.coef_)} of {fitted.coef_.size} coefficients are used")
print(f"log-loss {fitted.objective_:.4f}, certified to {fitted.gap_:.1e}")

# %%
# The words that speak most for each part:

words = vectorizer.get_feature_names_out()
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for ax, topic, coefficients in zip(axes, fitted.classes_, fitted.coef_, strict=True):
    top = np.argsort(coefficients)[-10:]
    ax.barh(words[top], coefficients[top])
    ax.set(title=topic)

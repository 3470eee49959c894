"""`sartor.SartorClassifier` as scikit-learn uses classifiers; its own checks where they apply to images."""

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest
import tiny
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks as checks

import sartor
from sartor.api import estimator
from sartor.core.errors import BadInput
from sartor.runs.directory import Run
from sartor.runs.schema import SplitsFile

SHORT = {
    "params": "150K", "method": "random", "space": "plain", "train": {"epochs": 3, "batch": 16, "augment": "light"},
}  # fmt: skip
WORDS = np.array(["links", "mitte", "rechts"])


@pytest.fixture(scope="module")
def fitted():
    """Grey images with names as labels."""
    x, y = tiny.arrays(90)
    return sartor.SartorClassifier(**SHORT).fit(x, WORDS[y])


def test_its_options_are_those_of_fit():
    own, given = (inspect.signature(c).parameters for c in (sartor.SartorClassifier, sartor.fit))
    assert set(own) == set(given) - {"data"}
    assert all(p.default is None for name, p in own.items() if name != "quiet")


@pytest.mark.parametrize(
    "check",
    ["no_attributes_set_in_init", "parameters_default_constructible", "get_params_invariance", "set_params",
     "mixin_order", "estimator_repr", "estimators_unfitted",
     "estimator_tags_renamed", "valid_tag_types", "estimator_cloneable"],
)  # fmt: skip
def test_checks_of_scikit_learn_that_need_no_rows_of_features(check):
    getattr(checks, f"check_{check}")("SartorClassifier", sartor.SartorClassifier())


def test_it_answers_with_the_classes_that_it_was_given(fitted):
    x, y = tiny.arrays(30, seed=1)
    chances = fitted.predict_proba(x)
    assert fitted.classes_.tolist() == sorted(WORDS)
    assert chances.shape == (30, 3)
    assert chances.sum(1) == pytest.approx(np.ones(30), abs=1e-5)
    assert (fitted.predict(x) == fitted.classes_[chances.argmax(1)]).all()
    assert fitted.score(x, WORDS[y]) == np.mean(fitted.predict(x) == WORDS[y]) > 0.5
    assert fitted.certificate_["budgets"]["params"]["holds"]
    assert fitted.result_.labels == tuple(sorted(WORDS))


def test_every_layout_of_the_same_image_gives_the_same(fitted):
    x = tiny.arrays(6)[0]
    expected = fitted.predict_proba(x)
    for same in (
        x[:, None],
        x[..., None],
        x.reshape(6, -1),
        [row.tolist() for row in x.reshape(6, -1).astype(np.uint8)],
    ):
        given = np.asarray(same, np.uint8) if isinstance(same, list) else same
        assert np.array_equal(fitted.predict_proba(given), expected)
    assert fitted.predict_proba(x[::-1])[::-1] == pytest.approx(expected, abs=1e-6)  # each image by itself


def test_what_is_fitted_can_be_stored_and_a_clone_is_not_fitted(fitted):
    x = tiny.arrays(6)[0]
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(x), fitted.predict_proba(x))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(x)
    folder = Path(fitted.result_.path)
    assert folder.is_dir()


def test_in_a_pipeline_under_cross_validation_on_numbers_of_any_range(tmp_path, capfd):
    """Every fold has a folder of its own beside `out`, and nothing is printed."""
    x, y = tiny.arrays(60)
    model = sartor.SartorClassifier(**SHORT, out=tmp_path / "run")
    made = make_pipeline(FunctionTransformer(lambda rows: rows / 50.0 - 2.0), model)
    found = cross_val_score(made, x.reshape(60, -1), y, cv=2, error_score="raise")
    assert found.shape == (2,)
    assert (found > 0.4).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run-2"]
    assert len({Run(p).load(SplitsFile).digest for p in tmp_path.iterdir()}) == 2
    assert capfd.readouterr() == ("", "")


def test_a_folder_is_taken_by_one_fit_and_goes_on_where_that_was_interrupted(finished, tmp_path):
    digest = Run(finished.run).load(SplitsFile).digest
    folder = finished.copy(tmp_path / "run")
    assert not estimator._free(folder, digest)  # it is finished
    (folder / "stages.json").unlink()
    (folder / ".stages.json").unlink()
    assert not estimator._free(folder, "of other images")
    assert estimator._free(folder, digest)
    with Run(folder).locked():
        assert not estimator._free(folder, digest)  # somebody is at it
    assert estimator._free(tmp_path / "new", digest)
    assert not estimator._free(tmp_path / "new", digest)


def test_values_of_another_scale_are_refused(fitted):
    x = tiny.arrays(6)[0]
    assert np.array_equal(fitted.predict_proba(x.astype(float)), fitted.predict_proba(x))
    for scaled in (x / 255.0, x * 300.0 + 256, x - 500.0):
        with pytest.raises(BadInput, match="must have values like those of the training images, 0 to 255, but they"):
            fitted.predict(scaled)
    assert fitted.predict(np.zeros((2, 8, 8))).shape == (2,)  # black is black


def test_a_folder_that_nobody_asked_for_goes_with_the_classifier():
    made = sartor.SartorClassifier(**SHORT | {"train": {"epochs": 1}})
    folder = made._folder("").parent
    assert folder.is_dir()
    del made
    assert not folder.exists()


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [(np.zeros((9, 17)), np.arange(9) % 3, "square images"), (np.zeros((9, 8, 8)), np.linspace(0, 1, 9), "continuous"),
     (np.full((9, 8, 8), np.nan), np.arange(9) % 3, "NaN"), (np.zeros((9, 8, 8)), np.arange(8) % 3, "inconsistent")],
)  # fmt: skip
def test_what_cannot_be_learnt_from_is_refused(x, y, words):
    with pytest.raises(ValueError, match=words):
        sartor.SartorClassifier(**SHORT).fit(x, y)


def test_images_of_another_size_are_refused(fitted):
    with pytest.raises(BadInput, match="expecting 64 features"):
        fitted.predict(np.zeros((2, 9, 9), np.uint8))


def test_results_show_themselves_in_a_notebook(finished):
    shown = sartor.load(finished.run)._repr_html_()
    assert shown.startswith("<iframe sandbox srcdoc=")
    for words in ("Fits: ", "Every optimal trade-off", "What is taken for what", "右"):
        assert words in shown
    assert "<script" not in shown
    assert shown.count("<iframe") == 1

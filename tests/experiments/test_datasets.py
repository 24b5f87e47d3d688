"""The loaders read what their sources publish, notice what is not that, and say how to get what is absent."""

import hashlib
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets.files import DatasetError, File, locate

pd = pytest.importorskip("pandas")

EXPECTED = {  # rows, features, mean of the target, sizes of the protected groups as the sources state them
    "acs": (6514, 19, 0.44197, {"sex": {"female": 3484, "male": 3030}}),
    "adult": (48842, 13, 0.23928, {"sex": {"Male": 32650, "Female": 16192}}),
    "credit_card": (30000, 23, 0.2212, {"sex": {"female": 18112, "male": 11888}}),
    "employee": (1200, 26, 65.98167, {"manager": {"no": 979, "yes": 221}, "married": {"no": 652, "yes": 548}}),
    "fairface": (12000, 1, 0.45475, {"gender": {"Male": 6316, "Female": 5684}}),
    "german": (1000, 20, 0.7, {"sex": {"male": 690, "female": 310}}),
    "sba": (
        2102,
        20,
        0.32636,
        {"new": {"existing": 1778, "new": 324}, "urban": {"urban": 1742, "rural or undefined": 360}},
    ),
}


def load_or_skip(name: str) -> datasets.Dataset:
    try:
        return datasets.load(name, fetch=False)
    except DatasetError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_table_has_the_rows_and_groups_of_its_source(name: str) -> None:
    data = load_or_skip(name)
    rows, features, mean, groups = EXPECTED[name]
    assert (len(data), data.features.shape) == (rows, (rows, features))
    assert data.target.mean() == pytest.approx(mean, abs=1e-5)
    assert len(data.protected) == rows
    assert not data.protected.isna().any(axis=None)
    for attribute, sizes in groups.items():
        assert data.protected[attribute].value_counts().to_dict() == sizes
    assert data.licence
    assert data.source
    assert data.target.name not in data.features.columns


def test_parts_of_a_split_are_the_published_ones() -> None:
    adult = load_or_skip("adult")
    train, test = adult.part("train"), adult.part("test")
    assert (len(train), len(test)) == (32561, 16281)
    assert test.target.mean() == pytest.approx(0.23623, abs=1e-5)
    assert test.features.index.tolist()[:2] == [0, 1]
    assert test.features["age"].iloc[0] == 25
    with pytest.raises(KeyError, match="it has \\['test', 'train'\\]"):
        adult.part("validation")


def test_both_forms_of_adult_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adult = load_or_skip("adult")
    source = datasets.data_folder() / "adult"
    (tmp_path / "adult").mkdir()
    for part, first_line in (("data", ""), ("test", "|1x3 Cross validator\n")):
        text = (source / f"adult.{part}.csv").read_text()
        (tmp_path / "adult" / f"adult.{part}").write_text(first_line + text.split("\n", 1)[1])
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path))
    original = datasets.adult(fetch=False)  # the checksums are those of the archive's own files
    pd.testing.assert_frame_equal(original.table, adult.table)
    assert original.target.equals(adult.target)


def test_pictures_of_fairface_are_read_from_their_archive() -> None:
    data = load_or_skip("fairface")
    test = data.part("test")
    assert (len(data.part("train")), len(test)) == (8000, 4000)
    assert test.pictures is not None
    assert len(test.pictures) == 4000
    picture = test.pictures[0]
    assert (picture.size, picture.mode) == ((224, 224), "RGB")
    assert test.features["file"].iloc[0] == "val/1.jpg"
    assert data.protected.drop_duplicates().shape == (14, 2)


@pytest.mark.parametrize("archived", [False, True])
def test_celeba_in_its_original_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archived: bool) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is absent")
    names = [f"{i:06d}.jpg" for i in range(1, 7)]
    attributes = {"Male": [1, -1, 1, -1, 1, -1], "Smiling": [1, 1, -1, -1, 1, -1], "Young": [1, 1, 1, -1, -1, -1]}
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    for i, name in enumerate(names):
        image.new("RGB", (178, 218), (40 * i, 0, 0)).save(folder / "img_align_celeba" / name)
    lines = [" ".join([name, *(f"{column[i]:2d}" for column in attributes.values())]) for i, name in enumerate(names)]
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(len(names)), " ".join(attributes), *lines]) + "\n")
    (folder / "list_eval_partition.txt").write_text("".join(f"{name} {i // 2}\n" for i, name in enumerate(names)))
    if archived:
        with zipfile.ZipFile(folder / "img_align_celeba.zip", "w") as archive:
            for name in names:
                archive.write(folder / "img_align_celeba" / name, f"img_align_celeba/{name}")
                (folder / "img_align_celeba" / name).unlink()
        (folder / "img_align_celeba").rmdir()
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path))
    data = datasets.celeba()
    assert data.target.tolist() == [1, 1, 0, 0, 1, 0]
    assert data.protected["Young"].tolist() == ["yes", "yes", "yes", "no", "no", "no"]
    assert data.split.tolist() == ["train", "train", "validation", "validation", "test", "test"]
    test = data.part("test")
    assert test.pictures is not None
    assert abs(test.pictures[0].getpixel((5, 5))[0] - 160) < 4
    assert {entry.name: entry.present for entry in datasets.available()}["celeba"]
    with pytest.raises(DatasetError, match="no attribute 'Happy'"):
        datasets.celeba(target="Happy")


def test_german_credit_comes_with_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path))
    data = datasets.german(fetch=False)
    assert len(data) == 1000
    assert "CC BY 4.0" in (datasets.tables.GERMAN[0].path.parent / "LICENCE.md").read_text()


def test_a_changed_file_is_refused_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path))
    (tmp_path / "german").mkdir()
    row = "A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1\n"
    (tmp_path / "german" / "german.data").write_text(row)
    with pytest.raises(DatasetError, match="verify=False"):
        datasets.german(fetch=False)
    data = datasets.german(fetch=False, verify=False)
    assert data.protected.iloc[0].tolist() == ["male", "over 25"]


def test_what_is_absent_is_named_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=r"adult\.data\.csv or .*archive\.ics\.uci\.edu"):
        datasets.adult(fetch=False)
    with pytest.raises(DatasetError, match=r"Employee_Performance\.xls is absent and has no address"):
        datasets.employee()
    with pytest.raises(DatasetError, match="mmlab"):
        datasets.celeba()
    with pytest.raises(DatasetError, match="There is no dataset 'adlut'"):
        datasets.load("adlut")
    present = {entry.name: entry.present for entry in datasets.available()}
    assert {name for name, there in present.items() if there} == {"german", "synthetic"}


def test_fetching_checks_extracts_and_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLAYER_DATA", str(tmp_path / "data"))
    content = b"a,b\n1,2\n"
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside/table.csv", content)
    (tmp_path / "source.zip").write_bytes(packed.getvalue())
    address = (tmp_path / "source.zip").as_uri()
    digest = hashlib.sha256(content).hexdigest()
    file = locate(File("toy", "table.csv", digest, address, "table.csv"), source="here")
    assert file.path.read_bytes() == content
    with pytest.raises(DatasetError, match="nothing was kept"):
        locate(File("toy", "other.csv", "0" * 64, address, "table.csv"), source="here")
    with pytest.raises(DatasetError, match=r"not an archive that holds absent\.csv"):
        locate(File("toy", "other.csv", digest, address, "absent.csv"), source="here")
    with pytest.raises(DatasetError, match="cannot be reached"):
        locate(File("toy", "other.csv", digest, (tmp_path / "nowhere").as_uri()), source="here")
    assert [path.name for path in (tmp_path / "data" / "toy").iterdir()] == ["table.csv"]


@pytest.mark.parametrize(
    ("index", "size", "mean_0", "mean_1", "sd_0", "most_correlated"),
    [
        (0, 7962, -0.368042, 1.742296, 0.422037, 0.012853),
        (31, 19942, -0.774867, 0.916910, 0.344559, 0.012951),
    ],
)
def test_synthetic_sets_are_the_published_ones(
    index: int, size: int, mean_0: float, mean_1: float, sd_0: float, most_correlated: float
) -> None:
    X, y, group = datasets.synthetic_arrays(index)
    assert (X.shape, int(group.sum())) == ((40_000, 150), size)
    assert [y[group == 0].mean(), y[group == 1].mean(), y[group == 0].std()] == pytest.approx(
        [mean_0, mean_1, sd_0], abs=1e-6
    )
    assert np.abs((X * (group - group.mean())[:, None]).mean(axis=0) / group.std()).max() == pytest.approx(
        most_correlated, abs=1e-6
    )


def test_the_corrected_set_differs_only_in_features_that_know_the_group() -> None:
    X, _, group = datasets.synthetic_arrays(24)
    corrected, _, same_group = datasets.synthetic_arrays(24, corrected=True)
    assert (group == same_group).all()
    changed = ~(corrected == X).all(axis=0)
    assert changed.sum() == 25
    means = corrected[group == 1].mean(axis=0) - corrected[group == 0].mean(axis=0)
    assert (means[changed] > 0.4).all()
    assert np.abs(means[~changed]).max() < 0.05


def test_factors_follow_the_bits_of_the_index() -> None:
    assert datasets.synthetic_factors(0).bounds == (-3.5, 3.5)
    last = datasets.synthetic_factors(31)
    assert (last.share, last.relevance, last.bias, last.noise) == (0.5, 0.7, 6.0, 0.6)
    assert (last.bounds, last.structure) == ((0.0, 3.5), "nonlinear")
    assert datasets.synthetic(2).bounds == (0.0, 3.5)
    with pytest.raises(IndexError, match="0 to 31"):
        datasets.synthetic_factors(32)

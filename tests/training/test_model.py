"""FairModel: any network, any input."""

import copy
import pickle

import pandas as pd
import pytest
import torch
from torch import nn

from fairlayer import FairLayer, FairModel, InputError, MeanParity


class Record(nn.Module):
    """Keeps what it was given; its outputs are the row sums."""

    def __init__(self, column=False):
        super().__init__()
        self.column = column
        self.seen = None

    def forward(self, x):
        self.seen = x
        return x.sum(1, keepdim=self.column)


@pytest.mark.parametrize("column", [False, True])
def test_outputs_are_flat_and_fair(column):
    x, groups = torch.randn(40, 3), torch.arange(40).remainder(2)[:, None]
    model = FairModel(Record(column), FairLayer([MeanParity(0.01)]))
    y = model(x + groups, groups=groups)
    assert y.shape == (40,)
    assert abs(y[::2].double().mean() - y[1::2].double().mean()) <= 0.01
    assert model.raw(x).shape == (40,)


def test_one_sample_and_no_layer():
    model = FairModel(nn.Linear(3, 1))
    x = torch.randn(1, 3)
    assert torch.equal(model(x), model.backbone(x).reshape(1))


def test_a_network_that_gives_no_tensor_is_refused():
    with pytest.raises(InputError, match="tuple"):
        FairModel(nn.LSTM(3, 1))(torch.randn(5, 3))


@pytest.mark.parametrize(("hide", "kept"), [(0, [1, 2, 3]), (-1, [0, 1, 2]), ([1, -1], [0, 2]), ([3, -1], [0, 1, 2])])
def test_hide_columns_of_any_sign(hide, kept):
    x = torch.randn(6, 4)
    model = FairModel(Record(), hide=hide)
    model(x)
    assert torch.equal(model.backbone.seen, x[:, kept])


def test_hide_names():
    class First(nn.Module):
        def forward(self, x):
            assert "sex" not in x
            return torch.tensor(list(x["age"]))

    columns = {"age": [1.0, 2.0], "sex": [0.0, 1.0]}
    model = FairModel(First(), hide="sex")
    assert model({name: torch.tensor(values) for name, values in columns.items()}).tolist() == [1.0, 2.0]
    assert model(pd.DataFrame(columns)).tolist() == [1.0, 2.0]


def test_hide_says_what_is_wrong():
    with pytest.raises(InputError, match="it has 3 columns"):
        FairModel(Record(), hide=3)(torch.randn(2, 3))
    with pytest.raises(InputError, match="'race'"):
        FairModel(Record(), hide="race")({"age": torch.ones(2)})
    with pytest.raises(InputError, match="shape"):
        FairModel(nn.Conv2d(1, 1, 1), hide=0)(torch.randn(2, 1, 3, 3))
    with pytest.raises(InputError, match="names or column numbers"):
        FairModel(Record(), hide=[0.5])


def test_images_and_mixed_inputs():
    groups = torch.tensor([0, 0, 1, 1])
    layer = FairLayer([MeanParity(0.0)])
    images = FairModel(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LazyLinear(1)), layer)
    y = images(torch.randn(4, 1, 5, 5), groups=groups)
    y.sum().backward()
    assert torch.allclose(y[:2].mean(), y[2:].mean(), atol=1e-6)

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(10, 4), nn.Linear(5, 1)

        def forward(self, x):
            return self.out(torch.cat([self.words(x["tokens"]).mean(1), x["length"][:, None]], dim=1))

    y = FairModel(Text(), layer)({"tokens": torch.randint(10, (4, 7)), "length": torch.ones(4)}, groups=groups)
    assert torch.allclose(y[:2].mean(), y[2:].mean(), atol=1e-6)


def test_copies_and_pickles():
    model = FairModel(nn.Linear(3, 1), FairLayer([MeanParity(0.1)]), hide=None)
    x, groups = torch.randn(8, 3), torch.arange(8).remainder(2)
    y = model(x, groups=groups)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(x, groups=groups), y)

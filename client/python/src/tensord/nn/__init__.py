"""Networks: modules, layers and losses with PyTorch's definitions, names and layouts, so that weights go from one to the other.

    model = td.nn.Sequential(td.nn.Linear(2, 16), td.nn.ReLU(), td.nn.Linear(16, 1))
    optimiser = td.optim.Adam(model.parameters(), lr=0.01)
    loss = td.nn.MSELoss()(model(x), y)
    loss.backward()
    optimiser.step()
"""

from . import initial, utils
from .attention import MultiheadAttention
from .fit import fit
from .layers import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Dropout,
    ELU,
    Embedding,
    Flatten,
    GELU,
    GroupNorm,
    Identity,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    ReLU,
    SiLU,
    Sigmoid,
    Softmax,
    Softplus,
    Tanh,
)
from .losses import BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss
from .module import Module, ModuleList, Parameter, Sequential, functional_call
from .recurrent import GRU, LSTM

__all__ = [name for name in dir() if name[0] != "_"]

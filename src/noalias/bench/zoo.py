"""Training steps of public networks, with random weights and inputs small enough for a CPU.

Packages beyond PyTorch are imported when a program is built, so that a missing one costs its own
rows only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from noalias.bench.compare import Built, Program

if TYPE_CHECKING:
    from collections.abc import Iterable

_NNUNET = (("dynamic_network_architectures", "dynamic-network-architectures"),)
_MONAI = (("monai", "monai"),)
# SwinUNETR rearranges its patches with einops, which MONAI leaves optional.
_MONAI_EINOPS = (*_MONAI, ("einops", "einops"))
_TIMM = (("torchvision", "torchvision"), ("timm", "timm"))


def _train(net: nn.Module, *inputs: torch.Tensor) -> Built:
    """Mean square of every output: a loss that any network has."""
    net.train()

    def forward() -> torch.Tensor:
        outputs = net(*inputs)
        parts: Iterable[torch.Tensor] = outputs if isinstance(outputs, list | tuple) else (outputs,)
        return torch.stack([part.square().mean() for part in parts]).sum()

    return Built(forward, list(net.parameters()))


def _build(make: Callable[[], nn.Module], shape: tuple[int, ...], device: torch.device) -> Built:
    torch.manual_seed(0)
    net = make().to(device)
    return _train(net, torch.randn(shape).to(device))


def _network(
    name: str,
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    requires: tuple[tuple[str, str], ...] = (),
) -> Program:
    return Program(name, partial(_build, make, shape), requires)


def _public(module: str, name: str) -> Callable[..., nn.Module]:
    made: Callable[..., nn.Module] = getattr(importlib.import_module(module), name)
    return made


def _plain_conv_unet() -> nn.Module:
    make = _public("dynamic_network_architectures.architectures.unet", "PlainConvUNet")
    return make(n_conv_per_stage=2, n_conv_per_stage_decoder=2, **_nnunet())


def _residual_encoder_unet() -> nn.Module:
    make = _public("dynamic_network_architectures.architectures.unet", "ResidualEncoderUNet")
    return make(n_blocks_per_stage=(1, 2, 2, 2), n_conv_per_stage_decoder=1, **_nnunet())


def _nnunet() -> dict[str, object]:
    """nnU-Net's 3-D defaults (instance norm, leaky relu in place), in four stages."""
    return {
        "input_channels": 1,
        "n_stages": 4,
        "features_per_stage": (16, 32, 64, 128),
        "conv_op": nn.Conv3d,
        "kernel_sizes": 3,
        "strides": (1, 2, 2, 2),
        "num_classes": 3,
        "conv_bias": True,
        "norm_op": nn.InstanceNorm3d,
        "norm_op_kwargs": {"eps": 1e-5, "affine": True},
        "nonlin": nn.LeakyReLU,
        "nonlin_kwargs": {"inplace": True},
        "deep_supervision": True,
    }


def _dyn_unet() -> nn.Module:
    return _public("monai.networks.nets", "DynUNet")(
        spatial_dims=3,
        in_channels=1,
        out_channels=3,
        kernel_size=[3, 3, 3, 3],
        strides=[1, 2, 2, 2],
        upsample_kernel_size=[2, 2, 2],
        filters=[16, 32, 64, 128],
    )


def _basic_unet() -> nn.Module:
    return _public("monai.networks.nets", "BasicUNet")(
        spatial_dims=3, in_channels=1, out_channels=3, features=(16, 16, 32, 64, 128, 16)
    )


def _unetr() -> nn.Module:
    return _public("monai.networks.nets", "UNETR")(
        in_channels=1,
        out_channels=3,
        img_size=(32, 32, 32),
        feature_size=8,
        hidden_size=96,
        mlp_dim=192,
        num_heads=4,
    )


def _swin_unetr() -> nn.Module:
    make = _public("monai.networks.nets", "SwinUNETR")
    return make(in_channels=1, out_channels=3, feature_size=12)


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.InstanceNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.body(x)
        return result


def _cyclegan_generator() -> nn.Module:
    """Zhu et al. 2017, residual generator: instance norm and relu in place throughout."""
    width, blocks = 16, 3
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7)]
    layers += [nn.InstanceNorm2d(width), nn.ReLU(inplace=True)]
    for channels in (width, 2 * width):
        layers.append(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1))
        layers += [nn.InstanceNorm2d(2 * channels), nn.ReLU(inplace=True)]
    layers += [_Residual(4 * width) for _ in range(blocks)]
    for channels in (4 * width, 2 * width):
        layers.append(
            nn.ConvTranspose2d(channels, channels // 2, 3, stride=2, padding=1, output_padding=1)
        )
        layers += [nn.InstanceNorm2d(channels // 2), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def _detector_ffn() -> nn.Module:
    """The heads and feed-forward blocks of a DETR-like detector."""
    blocks = [
        layer
        for _ in range(3)
        for layer in (nn.Linear(128, 512), nn.ReLU(inplace=True), nn.Linear(512, 128))
    ]
    return nn.Sequential(*blocks, nn.Linear(128, 128), nn.ReLU(inplace=True), nn.Linear(128, 4))


def _grpo_loss(device: torch.device) -> Built:
    """Policy-gradient loss on the logits of all positions but the last, temperature in place."""
    torch.manual_seed(0)
    head = nn.Linear(64, 8192, bias=False).to(device)
    hidden = torch.randn(4, 129, 64).to(device).requires_grad_()
    tokens = torch.randint(8192, (4, 128)).to(device)
    advantages = torch.randn(4, 1).to(device)

    def forward() -> torch.Tensor:
        logits: torch.Tensor = head(hidden)
        logits = logits[:, :-1]
        logits.div_(0.7)
        chosen = logits.gather(-1, tokens[..., None]).squeeze(-1)
        log_probability = chosen - logits.logsumexp(-1)
        ratio = (log_probability - log_probability.detach()).exp()
        return (ratio * advantages).mean().neg()

    return Built(forward, [hidden, *head.parameters()])


def _gru_decoder(device: torch.device) -> Built:
    """A tutorial's decoder: one GRU cell, its outputs written into a tensor made beforehand."""
    torch.manual_seed(0)
    steps, batch, width, vocabulary = 200, 16, 64, 256
    embed, cell = nn.Embedding(vocabulary, width), nn.GRUCell(width, width)
    project = nn.Linear(width, vocabulary)
    net = nn.ModuleList([embed, cell, project]).to(device)
    tokens = torch.randint(vocabulary, (steps, batch)).to(device)

    def forward() -> torch.Tensor:
        outputs = torch.zeros(steps, batch, vocabulary, device=device)
        hidden = torch.zeros(batch, width, device=device)
        embedded = embed(tokens)
        for t in range(steps):
            hidden = cell(embedded[t], hidden)
            outputs[t] = project(hidden)
        return F.cross_entropy(outputs.flatten(0, 1), tokens.flatten())

    return Built(forward, list(net.parameters()))


def _timm(name: str, **options: object) -> nn.Module:
    return _public("timm", "create_model")(name, pretrained=False, num_classes=10, **options)


_VOLUME = (1, 1, 32, 32, 32)

PROGRAMS: tuple[Program, ...] = (
    _network("nnU-Net PlainConvUNet", _plain_conv_unet, (2, 1, 32, 32, 32), _NNUNET),
    _network("nnU-Net ResidualEncoderUNet", _residual_encoder_unet, (2, 1, 32, 32, 32), _NNUNET),
    _network("MONAI DynUNet", _dyn_unet, _VOLUME, _MONAI),
    _network("MONAI BasicUNet", _basic_unet, _VOLUME, _MONAI),
    _network("MONAI UNETR", _unetr, _VOLUME, _MONAI_EINOPS),
    _network("MONAI SwinUNETR", _swin_unetr, (1, 1, 64, 64, 64), _MONAI_EINOPS),
    _network("CycleGAN generator", _cyclegan_generator, (1, 3, 96, 96)),
    _network("detector FFN", _detector_ffn, (8, 300, 128)),
    Program("GRPO loss on sliced logits", _grpo_loss),
    Program("GRU decoder", _gru_decoder),
    _network(
        "timm swinv2_tiny",
        partial(_timm, "swinv2_tiny_window8_256", img_size=64, window_size=4),
        (2, 3, 64, 64),
        _TIMM,
    ),
    _network("timm ghostnet_050", partial(_timm, "ghostnet_050"), (4, 3, 64, 64), _TIMM),
)

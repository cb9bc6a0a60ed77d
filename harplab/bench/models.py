# SPDX-License-Identifier: Apache-2.0
"""Models that are trained, as data: the parameter tensors of each layer, and the layer's work.

Computed from the published shapes, in the order of `parameters()`. The work is the multiplications of one
sample's forward pass; layers without matrices have 0: their gradients come with those of the layer before.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

PUBLISHED_GPUS = 8


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer: the elements of its parameter tensors, and the multiplications of its forward pass."""

    elements: tuple[int, ...]
    work: int = 0


@dataclasses.dataclass(frozen=True)
class Model:
    """A model; what one host trains of it with this batch on each GPU, where that is published."""

    name: str
    layers: tuple[Layer, ...]
    samples: str
    batch: int | None = None
    host_samples_per_s: float | None = None  # the rate of PUBLISHED_GPUS, which no network slows down

    @property
    def parameter_count(self) -> int:
        """Return the elements of all tensors."""
        return sum(sum(layer.elements) for layer in self.layers)

    def published_compute_ms(self, batch: int) -> float | None:
        """Return the compute time of a step with that batch on each GPU, where it is known."""
        return PUBLISHED_GPUS * batch * 1000 / self.host_samples_per_s if self.host_samples_per_s else None


def _convolution_layer(size: int, channels: tuple[int, int], kernel: int, *, bias: bool = False) -> Layer:
    """Return a convolution whose output is a square of that size."""
    weight = math.prod(channels) * kernel**2
    return Layer((weight, channels[1]) if bias else (weight,), weight * size**2)


def _linear_layer(inputs: int, outputs: int, rows: int = 1) -> Layer:
    """Return a matrix and its bias, applied to each row of a sample."""
    return Layer((inputs * outputs, outputs), inputs * outputs * rows)


def _norm_layer(channels: int) -> Layer:
    return Layer((channels, channels))


def _resnet50_layers() -> Iterator[Layer]:
    """Yield the layers of ResNet-50 (He et al., 2015) with the stride in the 3x3 convolution, 224x224."""
    yield from (_convolution_layer(112, (3, 64), 7), _norm_layer(64))
    inputs = 64
    for width, blocks, size in ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)):
        for block in range(blocks):
            is_strided = block == 0 and size < 56
            yield from (
                _convolution_layer(size * (2 if is_strided else 1), (inputs, width), 1),
                _norm_layer(width),
            )
            yield from (_convolution_layer(size, (width, width), 3), _norm_layer(width))
            yield from (_convolution_layer(size, (width, 4 * width), 1), _norm_layer(4 * width))
            if block == 0:
                yield from (_convolution_layer(size, (inputs, 4 * width), 1), _norm_layer(4 * width))
            inputs = 4 * width
    yield _linear_layer(inputs, 1000)


def _vgg16_layers() -> Iterator[Layer]:
    """Yield the layers of VGG-16 (Simonyan and Zisserman, 2014), 224x224."""
    inputs = 3
    for width, count, size in ((64, 2, 224), (128, 2, 112), (256, 3, 56), (512, 3, 28), (512, 3, 14)):
        for _ in range(count):
            yield _convolution_layer(size, (inputs, width), 3, bias=True)
            inputs = width
    yield from (_linear_layer(512 * 7 * 7, 4096), _linear_layer(4096, 4096), _linear_layer(4096, 1000))


def _attention_layer(width: int, tokens: int) -> Layer:
    """Return the products of queries, keys and values, which have no parameters."""
    return Layer((), 2 * width * tokens**2)


def _bert_large_layers() -> Iterator[Layer]:
    """Yield the layers of BERT-large, uncased (Devlin et al., 2018), 512 tokens, with both heads of the
    pre-training; the matrix of the masked tokens' head is that of the embeddings.
    """
    words, width, tokens, inner = 30522, 1024, 512, 4096
    yield from (Layer((words * width, tokens * width, 2 * width)), _norm_layer(width))
    for _ in range(24):
        yield from (_linear_layer(width, width, tokens) for _ in range(3))
        yield from (_attention_layer(width, tokens), _linear_layer(width, width, tokens), _norm_layer(width))
        yield from (
            _linear_layer(width, inner, tokens),
            _linear_layer(inner, width, tokens),
            _norm_layer(width),
        )
    yield _linear_layer(width, width)
    yield from (
        Layer((words,), words * width * tokens),
        _linear_layer(width, width, tokens),
        _norm_layer(width),
    )
    yield _linear_layer(width, 2)


def _gpt2_xl_layers() -> Iterator[Layer]:
    """Yield the layers of GPT-2 XL (Radford et al., 2019), 1024 tokens; the head's matrix is that of the
    embeddings.
    """
    words, width, tokens = 50257, 1600, 1024
    yield Layer((words * width, tokens * width))
    for _ in range(48):
        yield from (
            _norm_layer(width),
            _linear_layer(width, 3 * width, tokens),
            _attention_layer(width, tokens),
        )
        yield from (_linear_layer(width, width, tokens), _norm_layer(width))
        yield from (_linear_layer(width, 4 * width, tokens), _linear_layer(4 * width, width, tokens))
    yield from (_norm_layer(width), Layer((), words * width * tokens))


# The batches and images/s of one host are those that the published table of the original HARP has: A100 with
# a VPC of 50 Gbit/s for ResNet-50, V100 with one of 25 Gbit/s for VGG-16.
MODELS = {
    model.name: model
    for model in (
        Model("resnet50", tuple(_resnet50_layers()), "images", 256, 6105.0),
        Model("vgg16", tuple(_vgg16_layers()), "images", 128, 1977.0),
        Model("bert-large", tuple(_bert_large_layers()), "sequences"),
        Model("gpt2-xl", tuple(_gpt2_xl_layers()), "sequences"),
    )
}

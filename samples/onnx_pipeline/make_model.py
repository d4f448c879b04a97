#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""make_model.py FOLDER: write the sample's model, whole and as two halves.

The model reads rows of tokens (0 is padding) and gives each row a score for each
class: an embedding with positions, two transformer blocks, the mean over the row's
tokens and a classifier.  Its weights are random, from a fixed seed.  Rows and length
are open: each batch may have others.

The cut is behind the first block.  Four tensors of four types go across it: what the
second half would otherwise have to compute from the tokens again.

whole.onnx  tokens -> scores, best
first.onnx  tokens -> hidden, mask, lengths, shortcut
second.onnx hidden, mask, lengths, shortcut -> scores, best

Needs the package onnx, and numpy, which comes with it.
"""

import os
import sys

if sys.argv[1:] == ["--help"]:  # before what may be missing
    sys.exit(print(__doc__))

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

TOKENS, WIDTH, HEADS, INNER, CLASSES, LENGTH = 512, 128, 4, 512, 16, 256
CUT = ["hidden", "mask", "lengths", "shortcut"]
NONE_NUMBER = -1e9  # the score of a pair that attention must not see

random = numpy.random.default_rng(7)
nodes, weights = [], []


def constant(name, value):
    weights.append(numpy_helper.from_array(numpy.asarray(value), name))
    return name


def weight(name, *shape, scale=None):
    scale = scale or 1 / numpy.sqrt(shape[0])
    return constant(name, (random.standard_normal(shape) * scale).astype("float32"))


def node(operator, inputs, output, **attributes):
    nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
    return output


def dense(name, x, rows, columns):
    product = node("MatMul", [x, weight(name + "_weights", rows, columns)], name + "_product")
    return node("Add", [product, weight(name + "_bias", columns)], name)


def normal(name, x):
    scale = constant(name + "_scale", numpy.ones(WIDTH, "float32"))
    shift = constant(name + "_shift", numpy.zeros(WIDTH, "float32"))
    return node("LayerNormalization", [x, scale, shift], name, axis=-1)


def heads(name, x):
    """[rows, length, WIDTH] to [rows, HEADS, length, WIDTH / HEADS]."""
    split = node("Reshape", [x, "split_shape"], name + "_split")
    return node("Transpose", [split], name + "_heads", perm=[0, 2, 1, 3])


def attention(name, x):
    query, key, value = (
        heads(name + part, dense(name + part, x, WIDTH, WIDTH)) for part in ("_q", "_k", "_v")
    )
    turned = node("Transpose", [key], name + "_turned", perm=[0, 1, 3, 2])
    pairs = node("MatMul", [query, turned], name + "_pairs")
    pairs = node("Mul", [pairs, "attention_scale"], name + "_scaled")
    seen = node("Unsqueeze", ["mask", "axes_1_2"], name + "_seen")
    pairs = node("Where", [seen, pairs, "none"], name + "_masked")
    share = node("Softmax", [pairs], name + "_share", axis=-1)
    mixed = node("MatMul", [share, value], name + "_mixed")
    joined = node("Transpose", [mixed], name + "_back", perm=[0, 2, 1, 3])
    joined = node("Reshape", [joined, "join_shape"], name + "_joined")
    return dense(name + "_out", joined, WIDTH, WIDTH)


def block(name, x, output):
    mixed = attention(name, normal(name + "_before", x))
    x = node("Add", [x, mixed], name + "_middle")
    inner = dense(name + "_inner", normal(name + "_between", x), WIDTH, INNER)
    inner = node("Relu", [inner], name + "_relu")
    return node("Add", [x, dense(name + "_outer", inner, INNER, WIDTH)], output)


def mean(x, output):
    """Over the tokens of each row that are no padding."""
    counted = node("Cast", ["mask"], output + "_counted", to=TensorProto.FLOAT)
    counted = node("Unsqueeze", [counted, "axis_2"], output + "_factors")
    x = node("Mul", [x, counted], output + "_tokens")
    x = node("ReduceSum", [x, "axis_1"], output + "_sum", keepdims=0)
    length = node("Cast", ["lengths"], output + "_lengths", to=TensorProto.FLOAT)
    length = node("Unsqueeze", [length, "axis_1"], output + "_divisor")
    return node("Div", [x, length], output)


def build():
    constant("split_shape", numpy.array([0, 0, HEADS, WIDTH // HEADS], "int64"))
    constant("join_shape", numpy.array([0, 0, WIDTH], "int64"))
    constant("attention_scale", numpy.float32(1 / numpy.sqrt(WIDTH // HEADS)))
    constant("none", numpy.float32(NONE_NUMBER))
    constant("padding", numpy.int64(0))
    for name, axes in (("axis_0", [0]), ("axis_1", [1]), ("axis_2", [2]), ("axes_1_2", [1, 2])):
        constant(name, numpy.array(axes, "int64"))

    # The first half.
    node("Equal", ["tokens", "padding"], "is_padding")
    node("Not", ["is_padding"], "mask")
    node("Cast", ["mask"], "ones", to=TensorProto.INT32)
    node("ReduceSum", ["ones", "axis_1"], "lengths", keepdims=0)
    node("Gather", [weight("embedding", TOKENS, WIDTH, scale=1), "tokens"], "embedded")
    node("Shape", ["tokens"], "tokens_length", start=1, end=2)
    positions = weight("positions", LENGTH, WIDTH, scale=0.2)
    node("Slice", [positions, "axis_0", "tokens_length", "axis_0"], "placed")
    node("Add", ["embedded", "placed"], "words")
    block("block_1", "words", "hidden")
    # Past the second block, in half precision.
    node("Cast", [mean("words", "words_mean")], "shortcut", to=TensorProto.FLOAT16)

    # The second half.
    block("block_2", "hidden", "last")
    node("Cast", ["shortcut"], "widened", to=TensorProto.FLOAT)
    node("Add", [mean("last", "last_mean"), "widened"], "row")
    dense("scores", normal("row_normal", "row"), WIDTH, CLASSES)
    node("ArgMax", ["scores"], "best", axis=1, keepdims=0)

    def value(name, kind, *shape):
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes,
        "rows_to_classes",
        [value("tokens", TensorProto.INT64, "rows", "length")],
        [
            value("scores", TensorProto.FLOAT, "rows", CLASSES),
            value("best", TensorProto.INT64, "rows"),
        ],
        weights,
        value_info=[
            value("hidden", TensorProto.FLOAT, "rows", "length", WIDTH),
            value("mask", TensorProto.BOOL, "rows", "length"),
            value("lengths", TensorProto.INT32, "rows"),
            value("shortcut", TensorProto.FLOAT16, "rows", WIDTH),
        ],
    )
    # Not the newest, so that older versions of ONNX Runtime read them.
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    files = {name: os.path.join(folder, name + ".onnx") for name in ("whole", "first", "second")}
    model = build()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, files["whole"])
    for name, inputs, outputs in (
        ("first", ["tokens"], CUT),
        ("second", CUT, ["scores", "best"]),
    ):
        onnx.utils.extract_model(files["whole"], files[name], inputs, outputs)


if __name__ == "__main__":
    main()

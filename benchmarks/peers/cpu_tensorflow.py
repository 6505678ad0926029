#!/usr/bin/env python3
"""Trains one of the shipped models with TensorFlow on some cores of one process: see
compare_peers.

A step is one tf.function. Variants: `halves` has a part of the batch for each core in one graph,
whose operations use one thread each; `whole` has the batch once, with all cores in each operation.
In bf16 weights are cast once a step; gradients are added, and weights updated, in float32.
Convolutions are padded as "SAME", which is as much as in the shipped models: of padding in numbers
TensorFlow computes gradients without oneDNN, ten times as slowly.
"""
import os

import cpu_peer

VARIANTS = ("halves", "whole")

args = cpu_peer.parse_arguments(VARIANTS)
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
import tensorflow as tf  # noqa: E402

TYPE = tf.bfloat16 if args.precision == "bf16" else tf.float32
EPSILON, KEPT = 1e-5, 0.9  # of batch norm


class Network:
    """Makes the variables of a description, then computes it from their casts."""

    def __init__(self, layers):
        self.initial = cpu_peer.Initial()
        self.weights = []  # float32 variables
        self.running = []  # of batch norm: mean and variance, in the order of the layers
        self.layers, _ = self.make(layers, args.shape)

    def new(self, value):
        self.weights.append(tf.Variable(value, dtype=tf.float32))
        return len(self.weights) - 1

    def make(self, layers, shape):
        made = []
        for kind, options in layers:
            call, shape = getattr(self, f"make_{kind}")(options, shape)
            made.append(call)
        return made, shape

    def make_conv2d(self, options, shape):
        size, step, count = options["kernel"], options.get("stride", 1), options["filters"]
        fan = size * size * shape[2]
        kernel = self.new(self.initial((size, size, shape[2], count), fan))
        bias = self.new(self.initial((count,), fan)) if options.get("bias", True) else None
        sides = tuple(-(-side // step) for side in shape[:2])

        def call(x, weights, _):
            y = tf.nn.conv2d(x, weights[kernel], step, "SAME")
            return y if bias is None else tf.nn.bias_add(y, weights[bias])

        return call, (*sides, count)

    def make_batchnorm(self, _, shape):
        scale = self.new(tf.ones(shape[-1]))
        shift = self.new(tf.zeros(shape[-1]))
        self.running.append([tf.Variable(tf.zeros(shape[-1]), trainable=False),
                             tf.Variable(tf.ones(shape[-1]), trainable=False)])

        def call(x, weights, statistics):
            y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
                x=x, scale=tf.cast(weights[scale], tf.float32),
                offset=tf.cast(weights[shift], tf.float32), mean=[], variance=[],
                epsilon=EPSILON, is_training=True)
            statistics.append((mean, variance))
            return y

        return call, shape

    def make_relu(self, _, shape):
        return lambda x, weights, statistics: tf.nn.relu(x), shape

    def make_maxpool(self, options, shape):
        size, step = options["size"], options.get("stride", options["size"])
        padding = "SAME" if options.get("padding", 0) else "VALID"
        sides = tuple(-(-side // step) if padding == "SAME" else (side - size) // step + 1
                      for side in shape[:2])
        return (lambda x, weights, statistics: tf.nn.max_pool2d(x, size, step, padding),
                (*sides, shape[2]))

    def make_global_avgpool(self, _, shape):
        return lambda x, weights, statistics: tf.reduce_mean(x, [1, 2]), (shape[-1],)

    def make_flatten(self, _, shape):
        count = 1
        for extent in shape:
            count *= extent
        return lambda x, weights, statistics: tf.reshape(x, [-1, count]), (count,)

    def make_dense(self, options, shape):
        matrix = self.new(self.initial((shape[0], options["units"]), shape[0]))
        bias = self.new(self.initial((options["units"],), shape[0]))
        return (lambda x, weights, statistics:
                tf.nn.bias_add(tf.matmul(x, weights[matrix]), weights[bias]),
                (options["units"],))

    def make_residual(self, options, shape):
        body, out = self.make(options["body"], shape)
        shortcut, _ = self.make(options["shortcut"], shape)

        def call(x, weights, statistics):
            own = self.compute(body, x, weights, statistics)
            return own + self.compute(shortcut, x, weights, statistics)

        return call, out

    def compute(self, layers, x, weights, statistics):
        for layer in layers:
            x = layer(x, weights, statistics)
        return x


def numbers_of(images):
    x = tf.cast(images, tf.float32) * (1 / (255 * cpu_peer.DEVIATION))
    return tf.cast(x - cpu_peer.MEAN / cpu_peer.DEVIATION, TYPE)


def make_step():
    network = Network(cpu_peer.MODELS[args.model]())
    momenta = [tf.Variable(tf.zeros_like(weight)) for weight in network.weights]
    parts = args.cores if args.variant == "halves" else 1

    def part(images, labels, weights):
        """(loss, gradients, statistics of batch norm) of some rows."""
        statistics = []
        out = network.compute(network.layers, numbers_of(images), weights, statistics)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(out, tf.float32))
        loss = tf.reduce_sum(losses) / args.batch
        return loss, tf.gradients(loss, weights), statistics

    @tf.function(autograph=False, jit_compile=False)
    def step(images, labels):
        weights = [tf.cast(weight, TYPE) for weight in network.weights]
        results = [part(*rows, weights)
                   for rows in zip(tf.split(images, parts), tf.split(labels, parts))]
        for weight, momentum, *own in zip(network.weights, momenta,
                                          *(gradients for _, gradients, _ in results)):
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=momentum.handle, lr=args.lr,
                grad=tf.add_n([tf.cast(one, tf.float32) for one in own]),
                momentum=cpu_peer.MOMENTUM)
        for running, *own in zip(network.running, *(found for _, _, found in results)):
            for variable, *values in zip(running, *own):
                variable.assign(KEPT * variable + (1 - KEPT) / parts * tf.add_n(values))
        return tf.add_n([loss for loss, _, _ in results])

    return step


def main():
    halves = args.variant == "halves"
    tf.config.threading.set_intra_op_parallelism_threads(1 if halves else args.cores)
    tf.config.threading.set_inter_op_parallelism_threads(args.cores if halves else 1)
    cpu_peer.time_steps(args, tf.__version__, make_step())


if __name__ == "__main__":
    main()

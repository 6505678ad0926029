#!/usr/bin/env python3
"""Trains one of the shipped models with JAX on some cores of one process: see compare_peers.

One device has all cores; a step is one compiled function that updates its state in place. In bf16
weights are cast in the step; gradients of the casts are float32 where weights are updated.
"""
import os

import cpu_peer

VARIANTS = ("compiled",)

args = cpu_peer.parse_arguments(VARIANTS)
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

TYPE = jnp.bfloat16 if args.precision == "bf16" else jnp.float32
EPSILON, KEPT = 1e-5, 0.9  # of batch norm


def conv2d(options, shape, new):
    size, step, count = options["kernel"], options.get("stride", 1), options["filters"]
    fan, pad = size * size * shape[2], options.get("padding", 0)
    kernel = new((size, size, shape[2], count), fan)
    bias = new((count,), fan) if options.get("bias", True) else None

    def call(x, weights, _):
        y = jax.lax.conv_general_dilated(x, weights[kernel], (step, step), [(pad, pad)] * 2,
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y if bias is None else y + weights[bias].astype(TYPE)

    sides = tuple((side + 2 * pad - size) // step + 1 for side in shape[:2])
    return call, (*sides, count)


def batchnorm(_, shape, new):
    scale, shift = new((shape[-1],), None), new((shape[-1],), 0)

    def call(x, weights, statistics):
        wide = x.astype(jnp.float32)
        mean = wide.mean((0, 1, 2))
        variance = ((wide - mean) ** 2).mean((0, 1, 2))
        statistics.append((mean, variance))
        factor = jax.lax.rsqrt(variance + EPSILON) * weights[scale]
        return ((wide - mean) * factor + weights[shift]).astype(TYPE)

    return call, shape


def relu(_, shape, new):
    return lambda x, weights, statistics: jax.nn.relu(x), shape


def maxpool(options, shape, new):
    size, step, pad = (options["size"], options.get("stride", options["size"]),
                       options.get("padding", 0))
    high, wide = ((side + 2 * pad - size) // step + 1 for side in shape[:2])
    if step != size or pad:
        sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        return (lambda x, weights, statistics: jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, step, step, 1), sides),
            (high, wide, shape[2]))

    def call(x, weights, statistics):
        return x.reshape(-1, high, size, wide, size, shape[2]).max((2, 4))

    return call, (high, wide, shape[2])


def global_avgpool(_, shape, new):
    return lambda x, weights, statistics: x.mean((1, 2)), (shape[-1],)


def flatten(_, shape, new):
    count = 1
    for extent in shape:
        count *= extent
    return lambda x, weights, statistics: x.reshape(-1, count), (count,)


def dense(options, shape, new):
    matrix = new((shape[0], options["units"]), shape[0])
    bias = new((options["units"],), shape[0])
    return (lambda x, weights, statistics: x @ weights[matrix] + weights[bias].astype(TYPE),
            (options["units"],))


def residual(options, shape, new):
    body, out = make(options["body"], shape, new)
    shortcut, _ = make(options["shortcut"], shape, new)

    def call(x, weights, statistics):
        own = compute(body, x, weights, statistics)
        return own + compute(shortcut, x, weights, statistics)

    return call, out


LAYERS = {maker.__name__: maker for maker in (conv2d, batchnorm, relu, maxpool, global_avgpool,
                                              flatten, dense, residual)}


def make(layers, shape, new):
    made = []
    for kind, options in layers:
        call, shape = LAYERS[kind](options, shape, new)
        made.append(call)
    return made, shape


def compute(layers, x, weights, statistics):
    for layer in layers:
        x = layer(x, weights, statistics)
    return x


def make_step():
    initial, weights = cpu_peer.Initial(), []

    def new(shape, fan):
        """Another weight; a fan of None gives ones, of 0 zeros."""
        value = jnp.ones(shape) if fan is None else jnp.zeros(shape)
        weights.append(jnp.asarray(initial(shape, fan)) if fan else value)
        return len(weights) - 1

    layers, _ = make(cpu_peer.MODELS[args.model](), args.shape, new)

    def loss_of(weights, x, labels):
        statistics = []
        cast = [weight.astype(TYPE) if weight.ndim > 1 else weight for weight in weights]
        out = compute(layers, x, cast, statistics).astype(jnp.float32)
        logs = jax.nn.log_softmax(out)
        chosen = jnp.take_along_axis(logs, labels[:, None], axis=1)
        return -chosen.mean(), statistics

    def update(state, images, labels):
        weights, momenta, running = state
        x = images.astype(jnp.float32) * (1 / (255 * cpu_peer.DEVIATION))
        x = (x - cpu_peer.MEAN / cpu_peer.DEVIATION).astype(TYPE)
        (loss, found), gradient = jax.value_and_grad(loss_of, has_aux=True)(weights, x, labels)
        momenta = [cpu_peer.MOMENTUM * m + g for m, g in zip(momenta, gradient)]
        weights = [w - args.lr * m for w, m in zip(weights, momenta)]
        if running is None:  # while shapes are found
            running = found
        running = jax.tree.map(lambda a, b: KEPT * a + (1 - KEPT) * b, running, found)
        return (weights, momenta, running), loss

    x = jax.ShapeDtypeStruct((args.batch, *args.shape), jnp.uint8)
    y = jax.ShapeDtypeStruct((args.batch,), jnp.int32)
    state = (weights, [jnp.zeros_like(weight) for weight in weights], None)
    shapes, _ = jax.eval_shape(update, state, x, y)
    kept = [state[0], state[1], jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[2])]
    fast = jax.jit(update, donate_argnums=0)

    def step(images, labels):
        kept[:], loss = fast(tuple(kept), images, labels)
        return loss

    return step


def main():
    cpu_peer.time_steps(args, jax.__version__, make_step())


if __name__ == "__main__":
    main()

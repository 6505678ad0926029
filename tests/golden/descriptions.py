"""The shipped models, and some that tests need, as lists of (layer, options) in the words of
model.cfg.
"""


def mlp(units=(1024, 1024), outputs=10):
    layers = [("flatten", {})]
    for width in units:
        layers += [("dense", {"units": width}), ("relu", {})]
    return layers + [("dense", {"units": outputs})]


def lenet(filters=(32, 64), units=512):
    layers = []
    for count in filters:
        layers += [
            ("conv2d", {"filters": count, "kernel": 5, "padding": 2}),
            ("relu", {}),
            ("maxpool", {"size": 2}),
        ]
    return layers + [
        ("flatten", {}),
        ("dense", {"units": units}),
        ("relu", {}),
        ("dense", {"units": 10}),
    ]


def smooth(filters=4, units=12):
    """Small, with the layers that no shipped model has."""
    return [
        ("conv2d", {"filters": filters, "kernel": 5, "stride": 2}),
        ("groupnorm", {"groups": 2}),
        ("silu", {}),
        ("conv2d", {"filters": filters, "kernel": 3, "stride": 2}),
        ("leaky_relu", {"slope": 0.25}),
        ("flatten", {}),
        ("layernorm", {}),
        ("dense", {"units": units}),
        ("layernorm", {}),
        ("silu", {}),
        ("dense", {"units": 10}),
    ]


def grouped():
    """Small, with convolutions in groups: depthwise, of two channels for each, and of four."""
    return [
        ("conv2d", {"filters": 8, "kernel": 5, "stride": 2}),
        ("silu", {}),
        ("conv2d", {"filters": 8, "kernel": 3, "padding": 1, "groups": 8, "bias": False}),
        ("silu", {}),
        ("conv2d", {"filters": 16, "kernel": 3, "stride": 2, "groups": 8}),
        ("silu", {}),
        ("conv2d", {"filters": 12, "kernel": 2, "groups": 4}),
        ("silu", {}),
        ("global_avgpool", {}),
        ("flatten", {}),
        ("dense", {"units": 10}),
    ]


def branched():
    """Small, with branches: of several sizes, nested, and one that is the identity."""
    inner = [("concat", {"branches": [[("conv2d", {"filters": 3, "kernel": 1})], []]})]
    wide = [("conv2d", {"filters": 4, "kernel": 3, "padding": 1}), ("silu", {})]
    return [
        ("conv2d", {"filters": 4, "kernel": 5, "stride": 3}),
        ("concat", {"branches": [wide, [], inner]}),
        ("silu", {}),
        ("conv2d", {"filters": 6, "kernel": 3, "stride": 2}),
        ("flatten", {}),
        ("concat", {"branches": [[("dense", {"units": 9})],
                                 [("dense", {"units": 5}), ("silu", {})]]}),
        ("dense", {"units": 10}),
    ]


def convolution(filters, kernel, stride):
    options = {"filters": filters, "kernel": kernel, "bias": False}
    if stride != 1:
        options["stride"] = stride
    if kernel > 1:
        options["padding"] = kernel // 2
    return [("conv2d", options), ("batchnorm", {})]


def resnet20(channels=(16, 32, 64)):
    """The ResNet-20 for CIFAR of He et al., 2015, section 4.2, with 1x1 projections."""
    layers = convolution(channels[0], 3, 1) + [("relu", {})]
    width = channels[0]
    for filters in channels:
        for _ in range(3):
            stride = 1 if filters == width else 2
            body = convolution(filters, 3, stride) + [("relu", {})] + convolution(filters, 3, 1)
            shortcut = [] if filters == width else convolution(filters, 1, stride)
            layers += [("residual", {"body": body, "shortcut": shortcut}), ("relu", {})]
            width = filters
    return layers + [("global_avgpool", {}), ("flatten", {}), ("dense", {"units": 10})]


def resnet50():
    """ResNet-50 v1.5: He et al., 2015, table 1, with the stride of a block in its 3x3
    convolution."""
    stem = {"filters": 64, "kernel": 7, "stride": 2, "padding": 3, "bias": False}
    layers = [("conv2d", stem), ("batchnorm", {}), ("relu", {})]
    layers += [("maxpool", {"size": 3, "stride": 2, "padding": 1})]
    for filters, times in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(times):
            stride = 2 if filters > 64 and block == 0 else 1
            body = convolution(filters, 1, 1) + [("relu", {})]
            body += convolution(filters, 3, stride) + [("relu", {})]
            body += convolution(4 * filters, 1, 1)
            shortcut = convolution(4 * filters, 1, stride) if block == 0 else []
            layers += [("residual", {"body": body, "shortcut": shortcut}), ("relu", {})]
    return layers + [("global_avgpool", {}), ("flatten", {}), ("dense", {"units": 1000})]


MODELS = {"mlp": mlp, "lenet": lenet, "resnet20": resnet20}

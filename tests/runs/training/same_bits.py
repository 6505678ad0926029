"""The same weights, bit for bit, wherever that is promised; close ones where only rounding differs;
other ones where something else was asked for.
"""
import struct

import harness
import netlab
from harness import (Started, check, close, metrics, run_json, safetensors, same, small_cfg,
                     train_well, weights)

NORMED = """\
    - conv2d: {filters: 8, kernel: 3, padding: 1, bias: false}
    - batchnorm: {sync: true}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dense: {units: 10}
"""


def trained(cfg, name, *flags, ranks=2):
    """The bytes of the weights after training."""
    out = harness.scratch / name
    train_well(cfg, "--out", out, *flags, ranks=ranks)
    return weights(out)


def setting(**values):
    return [flag for key, value in values.items()
            for flag in ("--set", f"{key.replace('__', '.')}={value}")]


def case_a_run_repeats_itself_whatever_the_buckets_and_overlap():
    cfg = small_cfg()
    steps = ("--steps", 24)  # enough for overlap: auto to measure both ways
    first = trained(cfg, "first", *steps)
    check(trained(cfg, "again", *steps) == first, "the same command gave other weights")
    for number, values in enumerate((
        {"comm__overlap": "on"},
        {"comm__overlap": "off"},
        {"comm__bucket_mb": 0.004, "comm__first_bucket_mb": 0.004, "comm__overlap": "on"},
        {"comm__bucket_mb": 0.1, "comm__overlap": "on"},
        {"comm__bucket_mb": 0.1, "comm__overlap": "off"},
        {"comm__strategy": "shm"},
    )):
        found = trained(cfg, f"way-{number}", *steps, *setting(**values))
        check(found == first, f"other bits: {values}")


def case_with_lanes_any_number_of_ranks_gives_the_same_bits():
    data = ("--synthetic", *setting(data__samples=600, data__test_samples=100,
                                    train__global_batch=64))  # 8 rows a lane
    for model, flags in (
        ("mlp", setting(optimizer__clip_norm=0.5, train__micro_batch=5)),
        ("lenet", setting(optimizer__name="adamw", optimizer__lr=0.001)),
        ("resnet20", setting(optimizer__clip_norm=0.5)),
    ):
        cfg = harness.ROOT / f"models/{model}.cfg"
        expected = None
        for ranks, more in (
            (1, {}),
            (2, {"comm__strategy": "shm", "comm__overlap": "on", "comm__bucket_mb": 0.5}),
            (4, {"comm__strategy": "direct", "comm__overlap": "off"}),
            (8, {"comm__strategy": "zero1:over=shm", "comm__overlap": "on"}),
        ):
            name = f"{model}-{ranks}"
            found = trained(cfg, name, "--steps", 4, *data, *setting(train__lanes=8, **more),
                            *flags, ranks=ranks)
            loss = run_json(harness.scratch / name)["final"]["test_loss"]
            if expected is None:
                expected = found, loss
            check(found == expected[0], f"{model}: other bits on {ranks} ranks")
            same(loss, expected[1], f"{model}: the test loss on {ranks} ranks")


def case_what_auto_takes_for_lanes_keeps_their_bits():
    """Also inside of a sharding or of hier, between hosts and where no memory can be shared."""
    cfg = small_cfg()
    lanes = setting(train__lanes=2)
    netlab.need_lab()
    right = trained(cfg, "one", *lanes, ranks=1)
    wrapper, env = harness.little_memory(40)
    hosts = [str(netlab.NETLAB), "2", "--"]
    for number, (where, strategy, more) in enumerate((
        (hosts, "zero1", {}),
        (hosts, "ps", {}),
        (hosts, "replicated", {}),
        (hosts, "hier", {}),
        (hosts, "hier:outer=auto", {}),
        (hosts, "auto", {"comm__servers": 1, "train__lanes": 1}),
        (wrapper, "zero1", {}),
        (wrapper, "ps", {}),
    )):
        out = harness.scratch / f"out-{number}"
        result = Started([cfg, *lanes, *setting(comm__strategy=strategy, **more), "--out", out], 2,
                         env if where is wrapper else None, wrapper=where).finish()
        same(result.code, 0, f"the exit code of\n{result}\n")
        check(more or weights(out) == right, f"other bits than one rank's:\n{result}")


def case_servers_give_the_bits_of_ranks_that_sum_for_themselves():
    cfg = small_cfg()
    flags = setting(optimizer__clip_norm=0.5)
    expected = trained(cfg, "plain", *flags, ranks=2)
    for servers, strategy in ((0, "ps:over=direct"), (1, "auto"), (2, "ps:over=direct")):
        name = f"servers-{servers}"
        found = trained(cfg, name, *flags, *setting(comm__servers=servers, comm__strategy=strategy),
                        ranks=2 + servers)
        check(found == expected, f"other bits with {servers} servers")
        same(run_json(harness.scratch / name)["world_size"], 2, "world_size")
        same(len(run_json(harness.scratch / name)["ranks"]), 2, "ranks in run.json")


def case_without_lanes_the_number_of_ranks_shows_in_the_bits():
    cfg = small_cfg()
    check(trained(cfg, "one", ranks=1) != trained(cfg, "four", ranks=4),
          "lanes would not be needed")


def case_lanes_are_refused_where_they_cannot_be_kept():
    cfg = small_cfg()
    for ranks, key, value, text in (
        (3, "train.lanes", 8, "8 lanes cannot be shared evenly by 3 ranks"),
        (1, "train.lanes", 6, "expected a power of two"),
        (1, "train.lanes", 1024, "more lanes than train.global_batch has rows"),
        (2, "comm.strategy", "ring", "ring adds in an order that train.lanes cannot use"),
        (2, "comm.strategy", "none", "none adds in an order that train.lanes cannot use"),
    ):
        lanes = () if key == "train.lanes" else ("--set", "train.lanes=8")
        result = harness.train(cfg, *lanes, "--set", f"{key}={value}", "--out",
                               harness.scratch / "out", ranks=ranks)
        same(result.code, 78, f"exit code of {key}={value}")
        same(len(result.errors), 1, f"lines of {key}={value}")
        check(text in result.errors[0], f"no {text!r} in {result.errors[0]!r}")


def case_every_strategy_repeats_itself():
    cfg = small_cfg()
    for strategy in ("shm", "ring", "mpi"):
        for ranks in (2, 3):
            flags = setting(comm__strategy=strategy)
            name = f"{strategy}-{ranks}"
            first = trained(cfg, name, *flags, ranks=ranks)
            check(trained(cfg, f"{name}-again", *flags, ranks=ranks) == first,
                  f"{strategy} on {ranks} ranks gave other weights")
            same(run_json(harness.scratch / name)["strategy"], strategy, "strategy")


def values(data, name):
    kind, _, body = data[name]
    return struct.unpack(f"<{len(body) // 4}f", body) if kind == "F32" else ()


def case_any_number_of_ranks_learns_the_same_up_to_rounding():
    # 50 rows do not divide by 3, 4 or 8; 600 do not by 250: the last batch of an epoch is short.
    for layers in (harness.CONV_LAYERS, NORMED):
        cfg = small_cfg(layers)
        expected = None
        for ranks in (1, 2, 3, 4, 8):
            out = harness.scratch / f"{len(layers)}-{ranks}"
            train_well(cfg, "--set", "train.global_batch=250", "--out", out, ranks=ranks)
            losses = [o["loss"] for o in metrics(out, "step")]
            found = safetensors(out / "checkpoints/latest/model.safetensors")
            same(run_json(out)["world_size"], ranks, "world_size")
            if expected is None:
                expected = (losses, found)
                continue
            for a, b in zip(losses, expected[0]):
                close(a, b, 1e-4, f"a loss on {ranks} ranks")
            for name in found:
                apart = max(map(lambda a, b: abs(a - b), values(found, name),
                                values(expected[1], name)), default=0)
                check(apart < 1e-4, f"{name} on {ranks} ranks is {apart} off")


def case_more_ranks_than_rows_still_train():
    cfg = small_cfg()
    alone = harness.scratch / "alone"
    train_well(cfg, "--set", "train.global_batch=3", "--out", alone)
    out = harness.scratch / "out"
    train_well(cfg, "--set", "train.global_batch=3", "--out", out, ranks=5)
    close(run_json(out)["final"]["train_loss"], run_json(alone)["final"]["train_loss"], 1e-4,
          "the loss")


def case_micro_batches_change_rounding_only():
    cfg = small_cfg()
    trained(cfg, "whole")
    trained(cfg, "split", "--set", "train.micro_batch=7")
    whole, split = (metrics(harness.scratch / name, "step") for name in ("whole", "split"))
    for a, b in zip(whole, split):
        close(a["loss"], b["loss"], 1e-4, "the loss")


def case_seed_order_and_optimizer_change_the_result():
    cfg = small_cfg()
    seen = {trained(cfg, "first"): "as it is"}
    for number, flags in enumerate((
        ["--seed", 2], setting(train__seed=3), setting(data__shuffle="false"),
        setting(optimizer__name="adamw", optimizer__lr=0.001), setting(optimizer__nesterov="true"),
        setting(optimizer__clip_norm=0.01), setting(optimizer__weight_decay=0.1),
        setting(optimizer__schedule__name="cosine"), ["--cached-input"], ["--synthetic"],
    )):
        data = trained(cfg, f"way-{number}", *flags, ranks=0)
        check(data not in seen, f"{flags} changes nothing against {seen.get(data)}")
        seen[data] = flags


if __name__ == "__main__":
    harness.main(globals())

"""data.augment: training pictures changed at random are the same at any number of ranks, and after
a resume in the middle of an epoch; the test set stays as it is.
"""
import harness
from harness import check, run_json, same, small_cfg, train, train_well

AUGMENT = ("data.augment=[random_crop: {padding: 2}, flip: {}, cutout: {size: 3}, "
           "mixup: {alpha: 0.4}]")
LANES = ("--set", "train.lanes=2", "--set", "train.eval_every=0")
STEPS = 15  # 12 are an epoch


def weights(out):
    return (out / "checkpoints/latest/model.safetensors").read_bytes()


def trained(name, *flags, ranks=2, steps=STEPS):
    out = harness.scratch / name
    train_well(small_cfg(), *LANES, "--steps", steps, *flags, "--out", out, ranks=ranks)
    return out


def case_any_number_of_ranks_and_a_resume_have_the_same_bits():
    whole = trained("two", "--set", AUGMENT)
    check(weights(whole) == weights(trained("one", "--set", AUGMENT, ranks=1)), "other bits alone")
    trained("on", "--set", AUGMENT, steps=7)
    on = trained("on", "--set", AUGMENT, "--resume")
    check(weights(whole) == weights(on), "other bits after a resume")
    plain = trained("plain")
    check(weights(whole) != weights(plain), "it changes nothing")
    text = (whole / "config.yaml").read_text()
    check("\n  " + AUGMENT.removeprefix("data.").replace("=", ": ") + "\n" in text, text)
    again = harness.scratch / "again"
    train_well(whole / "config.yaml", "--steps", STEPS, "--out", again, ranks=2)
    check(weights(whole) == weights(again), "config.yaml does not say the same")


def case_what_is_tested_with_is_not_changed():
    found = [run_json(trained(name, "--set", "optimizer.lr=0", *flags, ranks=1, steps=3))["final"]
             for name, flags in (("plain", ()), ("changed", ("--set", AUGMENT)))]
    same(found[0]["test_loss"], found[1]["test_loss"], "the test loss")
    check(found[0]["train_loss"] != found[1]["train_loss"], "training samples are not changed")


def case_labels_are_mixed_for_every_loss():
    mixup = "data.augment=[mixup: {alpha: 1}]"
    for loss in ("softmax_cross_entropy", "binary_cross_entropy", "mse"):
        flags = ("--set", f"train.loss={loss}", "--set", "optimizer.lr=0.02")
        first, plain = [trained(f"{loss}-{number}", *more, *flags, ranks=1, steps=5)
                        for number, more in enumerate((("--set", mixup), ()))]
        second = trained(f"{loss}-2", "--set", mixup, *flags, ranks=2, steps=5)
        check(weights(first) == weights(second), f"{loss}: other bits on 2 ranks")
        check(weights(first) != weights(plain), f"{loss}: nothing is mixed")
        loss_of = run_json(first)["final"]
        check(0 < loss_of["train_loss"] < 10 and 0 < loss_of["test_loss"] < 10, f"{loss_of}")


def case_a_mistake_is_one_line_with_its_place():
    cases = (("[flop: {}]", "unknown augmentation 'flop' (did you mean 'flip'?)"),
             ("[flip: {q: 1}]", "flip: unknown option 'q'"),
             ("[mixup: {}, flip: {}]", "mixup must be the last one"),
             ("[random_crop: {padding: 8}]", "random_crop: padding must be less than the height"),
             ("{flip: {}}", "expected a list such as [flip: {}, cutout: {size: 8}]"))
    for value, text in cases:
        result = train(small_cfg(), "--set", f"data.augment={value}", "--out",
                       harness.scratch / "none")
        same(result.code, 78, f"the exit code of\n{result}\n")
        check(len(result.errors) == 1 and text in result.errors[0] and
              "data.augment" in result.errors[0], f"{result}")
        check(not (harness.scratch / "none").exists(), "a folder is left")


if __name__ == "__main__":
    harness.main(globals())

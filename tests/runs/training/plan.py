"""How a run shares its gradients is chosen by measuring, told, kept, and pinned with --plan."""
import json
import re

import harness
import hosts
from harness import check, mlp_layers, same, small_cfg, train, train_well, weights
from refusals import check_refusal, contents, side_by_side


# What runs, or would be accepted if a user asked for it, but auto never chooses for two hosts.
NOT_MEASURED = ("hier:outer=shm", "none", "mpi", "ring:segment_kb=1", "zero1:over=direct")


def plan_of(out):
    """What config.yaml says of the plan."""
    found = re.findall(r"^# plan: (\{.*\})$", (out / "config.yaml").read_text(), re.M)
    same(len(found), 1, f"plans in {out}/config.yaml")
    return json.loads(found[0])


def banner(result):
    return re.search(r"^sharing by (\S+)(?: \((.*)\))?: ", result.out, re.M).groups()


def cached():
    return sorted((harness.scratch / "cache").rglob("plan-*.json"))


def on_hosts(*arguments, ranks=2, before=":", code=0, **lab):
    """Runs ddp_train on two hosts of a netlab, once the shell command `before` has come to pass."""
    result = hosts.start(2, ranks, *arguments, before=before, **lab).finish()
    same(result.code, code, f"the exit code of\n{result}\n")
    return result


def case_auto_measures_once_between_hosts_and_remembers():
    cfg = small_cfg()
    first, again, fresh, torn = (harness.scratch / name for name in ("a", "b", "c", "d"))
    strategy, why = banner(on_hosts(cfg, "--out", first))
    check(re.match(rf"measured: {re.escape(strategy)} [\d.]+ ms a step, ", why), why)
    same((plan_of(first)["strategy"], plan_of(first)["reason"]), (strategy, why), "config.yaml")
    same(harness.run_json(first)["strategy"], strategy, "strategy in run.json")
    (file,) = cached()
    same(json.loads(file.read_text())["strategy"], strategy, "strategy in the cache")

    # What it says counts, whatever would be measured now.
    planted = "direct" if strategy != "direct" else "ring"
    file.write_text(json.dumps(dict(json.loads(file.read_text()), strategy=planted)))
    result = on_hosts(cfg, "--out", again)
    same(banner(result), (planted, f"{why}; by an earlier run here"), "the banner")
    same(len(result.warnings), 0, f"warnings of\n{result}\n")
    same(plan_of(again)["strategy"], planted, "strategy in config.yaml")

    # Neither for another model, nor when it is switched off.
    other = on_hosts(small_cfg(mlp_layers(), "other.cfg"), "--dry-run")
    check("earlier" not in banner(other)[1], f"{other}")
    same(len(cached()), 2, "files in the cache")
    off = on_hosts(cfg, "--out", fresh, "--set", "comm.plan_cache=off")
    check("earlier" not in banner(off)[1], f"{off}")
    same(json.loads(file.read_text())["strategy"], planted, "the cache of a run without")

    # What is damaged is reported, and replaced.
    text = file.read_text()
    for number, damage in enumerate((text[:40], "", text.replace(planted, "rnig"), text.replace(
            "lockstep.plan/1", "lockstep.plan/9"), text.replace('"key":', '"kee":'),
            *(text.replace(planted, other) for other in NOT_MEASURED))):
        file.write_text(damage)
        result = on_hosts(cfg, "--dry-run" if number else "--out", *([] if number else [torn]))
        same(len(result.warnings), 1, f"warnings of\n{result}\n")
        check(file.name in result.warnings[0], f"the file is not named:\n{result}")
        check(banner(result)[1].startswith("measured: "), f"{result}")
        check(json.loads(file.read_text())["reason"].startswith("measured: "), "not replaced")


def case_what_was_measured_over_one_wire_is_not_taken_for_another():
    cfg = small_cfg()
    wires = ({"rate": "1gbit"}, {"rate": "100mbit"},
             {"before": hosts.on_hosts(["h1", "h2"], "ip link set eth0 mtu 1400")},
             {"env": {"OMPI_MCA_btl_tcp_links": "1"}})
    for again in (False, True):
        for number, wire in enumerate(wires):
            why = banner(on_hosts(cfg, "--dry-run", **wire))[1]
            same(why.endswith("; by an earlier run here"), again, f"whether {wire} is known: {why}")
            same(len(cached()), len(wires) if again else number + 1, "files in the cache")


def case_what_was_measured_gives_way_where_it_cannot_run_any_more():
    cfg, out = small_cfg(mlp_layers(1024, 1024)), harness.scratch / "out"
    on_hosts(cfg, "--dry-run", ranks=4)
    (file,) = cached()
    planted = json.dumps(dict(json.loads(file.read_text()), strategy="hier"))
    file.write_text(planted)
    same(banner(on_hosts(cfg, "--steps", 2, "--out", out, ranks=4))[0], "hier", "with room for it")

    # No room at all; room for what is asked before the gradient.
    resumed = ("--resume", "--steps", 4, "--out", out)
    for kilobytes, flags in ((16, ["--dry-run"]), (2048, ["--dry-run"]), (2048, resumed)):
        full = f"mount -t tmpfs -o size={kilobytes}k tmpfs /dev/shm"
        result = on_hosts(cfg, *flags, ranks=4, before=hosts.on_hosts(["h1", "h2"], full))
        strategy, why = banner(result)
        check(strategy != "hier" and why.startswith("measured: ") and "earlier" not in why,
              f"{strategy}, {why}")
        same([line for line in result.warnings if "no room for shared memory" not in line], [],
             "warnings")
        same(file.read_text(), planted, "what the cache keeps for when there is room again")


def case_a_cache_that_cannot_be_written_is_nobodys_problem():
    cfg = small_cfg()
    (harness.scratch / "cache").write_text("no folder")
    result = on_hosts(cfg, "--dry-run")
    same(result.warnings + result.errors, [], f"complaints of\n{result}\n")
    check(banner(result)[1].startswith("measured: "), f"{result}")


def case_one_node_needs_no_measuring():
    cfg = small_cfg()
    out = harness.scratch / "out"
    strategy, why = banner(train_well(cfg, "--out", out, ranks=2))
    same((strategy, why), ("zero1:over=shm", "all ranks share one node's memory"), "the choice")
    same(plan_of(out)["strategy"], strategy, "strategy in config.yaml")
    same(cached(), [], "the cache")


def case_a_plan_is_pinned_with_all_that_was_decided():
    cfg = small_cfg()
    first, second, third = (harness.scratch / name for name in ("a", "b", "c"))
    steps = ("--steps", 24)  # enough for overlap to be measured
    train_well(cfg, *steps, "--out", first, "--set", "comm.strategy=direct", ranks=2)
    plan = plan_of(first)
    same((plan["strategy"], plan["ranks"], plan["nodes"]), ("direct", 2, 1), "the plan")
    check(plan["overlap"] in ("on", "off"), f"overlap is not decided: {plan}")

    for out, flags in ((second, (cfg,)), (third, (first / "config.yaml",))):
        result = train_well(*flags, *steps, "--plan", first / "config.yaml", "--out", out, ranks=2)
        same(banner(result), ("direct", "pinned by --plan"), "the banner")
        check(f"overlap {plan['overlap']}\n" in result.out, f"overlap is not pinned:\n{result}")
        same({key: plan_of(out)[key] for key in plan if key != "reason"},
             {key: plan[key] for key in plan if key != "reason"}, "the plan of the second run")
        same(weights(out) == weights(first), True, "the same bits")

    # A plan by itself, on another number of ranks; and what a checkpoint says gives way to it.
    alone = harness.scratch / "plan.json"
    alone.write_text(json.dumps(dict(plan, overlap="auto")))
    result = train_well(cfg, "--plan", alone, "--out", harness.scratch / "d", ranks=3)
    same(banner(result), ("direct", "pinned by --plan"), "the banner on 3 ranks")
    alone.write_text(json.dumps(dict(plan, strategy="ring")))
    result = train_well(cfg, "--plan", alone, "--resume", "--steps", 30, "--out", second, ranks=2)
    same(banner(result)[0], "ring", "strategy of a resumed run")
    same(plan_of(second)["strategy"], "ring", "strategy in its config.yaml")


def case_a_plan_that_does_not_fit_is_refused():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, "--out", out, ranks=2)
    plan = plan_of(out)
    folder = harness.scratch / "plans"
    folder.mkdir()

    def written(name, **changes):
        (folder / name).write_text(json.dumps(dict(plan, **changes)))
        return folder / name

    (folder / "none").write_text("name: small\n")
    (folder / "torn").write_text('# plan: {"schema":\n')
    fits = written("fits", strategy="ring")
    rows = (
        (66, "nothing", (cfg, "--plan", folder / "nothing")),
        (65, "none holds no plan: give the config.yaml of a run", (cfg, "--plan", folder / "none")),
        (65, "torn", (cfg, "--plan", folder / "torn")),
        (65, "not one of schema lockstep.plan/1", (cfg, "--plan", written("old", schema="x"))),
        (65, "not one of schema", (cfg, "--plan", written("odd", overlap="perhaps"))),
        (78, "unknown strategy 'rnig'", (cfg, "--plan", written("rnig", strategy="rnig"))),
        (78, "fits: its plan is for another model, or other bucket sizes",
         (small_cfg(mlp_layers(), "other.cfg"), "--plan", fits)),
        (78, "another model", (cfg, "--plan", fits, "--set", "comm.first_bucket_mb=0.004")),
        (78, r"--set comm.strategy=shm: comm.strategy: is shm, but the plan in \S+fits pins ring",
         (cfg, "--plan", fits, "--set", "comm.strategy=shm")),
        (78, "comm.overlap: is on, but",
         (cfg, "--plan", written("off", overlap="off"), "--set", "comm.overlap=on")),
        (78, "ring adds in an order that train.lanes cannot use",
         (cfg, "--plan", fits, "--set", "train.lanes=2")),
        (78, "fits: with its strategy ring: comm.servers",
         (cfg, "--plan", fits, "--set", "comm.servers=1")),
    )

    def refused(number, code, pattern, arguments):
        target = harness.scratch / f"refused-{number}"
        result = train(*arguments, "--out", target, ranks=2)
        check_refusal(result, code, pattern)
        same(contents(target), [], f"what is left behind by\n{result}\n")

    side_by_side(refused, [(number, *row) for number, row in enumerate(rows)])
    same(train(cfg, "--plan").code, 64, "--plan without a file")


def case_a_plan_that_cannot_run_here_is_refused():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, "--out", out, ranks=2)  # over shared memory
    result = on_hosts(cfg, "--plan", out / "config.yaml", "--dry-run", code=69)
    same(len(result.errors), 1, f"errors of\n{result}\n")
    check(re.search(r"config.yaml: its strategy zero1:over=shm, taken by 2 ranks on 1 node, "
                    "cannot run here: the ranks do not live on one node", result.errors[0]),
          f"{result}")


if __name__ == "__main__":
    harness.main(globals())

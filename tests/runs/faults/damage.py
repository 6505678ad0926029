"""Bits that change where a comparison of ranks does not see it, or only later: on the way from rank
to rank (comm.checksum, train.verify_sums), in sums of gradients, in optimizer state. Each is found
and named; without these options a changed message is not. A changed row of the data set is, too.
"""
import re

import harness
from harness import check, same, small_cfg, train, train_well, weights

RING = ("--set", "comm.strategy=ring", "--set", "train.check_every=4")


def broken(out, fault, *flags):
    return train(small_cfg(), "--out", harness.scratch / out, "--steps", 9, *RING, *flags, ranks=2,
                 env={"DP_FAULT": f"flip:rank=1,{fault}"})


def check_error(result, pattern):
    same(result.code, 70, f"the exit code of\n{result}\n")
    check(re.search(pattern, result.errors[-1]), f"no '{pattern}' in\n{result}")


def case_a_message_that_changes_is_found_by_its_receiver():
    fault = "what=message,step=3"
    check_error(broken("checksum", fault, "--set", "comm.checksum=true"),
                r"rank 1 \(\S+\): a message of \d+ bytes from rank 0 is not what was sent")
    quiet = broken("quiet", fault)
    same(quiet.code, 0, f"a comparison of ranks saw\n{quiet}\n")
    check("has not happened" not in quiet.err, f"it warns:\n{quiet}")
    none = broken("none", fault, "--set", "comm.strategy=hier")  # on one host it has no messages
    same(none.code, 0, f"the exit code of\n{none}\n")
    same(re.findall(r"warning: rank 1 \(\S+\): DP_FAULT: flip has not happened: no message of "
                    r"\d+ bytes or more came after step 3", none.err), [none.complaints[-1][10:]],
         f"the last line of\n{none}\n")
    plain = harness.scratch / "plain"
    train_well(small_cfg(), "--out", plain, "--steps", 9, *RING, ranks=2)
    check(weights(plain) != weights(harness.scratch / "quiet"), "the fault changed nothing")


def case_a_message_that_changes_is_found_at_ranks_own_pace_too():
    flags = ("--set", "train.mode=async", "--set", "comm.strategy=ps", "--set", "comm.servers=1",
             "--set", "train.staleness=2", "--set", "comm.checksum=true")
    for rank in (0, 2):  # a rank that trains, and the server
        result = train(small_cfg(), "--out", harness.scratch / f"own-{rank}", "--steps", 30, *flags,
                       ranks=3, env={"DP_FAULT": f"flip:rank={rank},what=message,step=3"})
        check_error(result, rf"rank {rank} \(\S+\): a message of \d+ bytes from rank \d is not "
                            "what was sent")


def case_sums_are_made_once_more():
    for fault in ("what=message,step=3", "what=gradient,step=4,bucket=0,element=7"):
        result = broken("sums", fault, "--set", "train.verify_sums=1")
        check_error(result, r"after step 4 rank \d \(\S+\).* a wrong sum of bucket 0, tensor \S+: "
                            r"element \d+ of the bucket is \S+ instead of \S+ \(\d+ of \d+")
        harness.shutil.rmtree(harness.scratch / "sums")


def case_what_differs_between_ranks_is_found_when_all_is_compared():
    for fault, where in (("what=gradient,step=2,bucket=0,element=7", r"tensor \S+, element 7"),
                         ("what=optimizer,step=2,tensor=0.weight,element=7", r"tensor 0\.weight")):
        result = broken(fault[5:9], fault)
        check_error(result, r"after step \d .*differ.*" + where)


def case_a_row_of_the_data_set_that_changes_is_found_before_it_is_used():
    # Byte 700 of rows of 64: row 10, which an epoch of 12 steps reads once.
    for strategy, rank in (("ring", 1), ("zero1:over=shm", 0)):
        out = harness.scratch / f"data-{rank}"
        result = train(small_cfg(), "--out", out, "--steps", 24, "--set", "train.eval_every=0",
                       "--set", f"comm.strategy={strategy}", ranks=2,
                       env={"DP_FAULT": f"flip:rank={rank},what=data,step=1,element=700,bit=3"})
        check_error(result, r"sample 10 \(counted from 0\) of the training set in memory is not "
                            "what was read")
        same(len(result.errors), 1, f"errors of\n{result}\n")
        check(harness.run_json(out)["steps"] < 12, f"it went on:\n{result}")


def case_checking_changes_nothing():
    found = set()
    checks = ("--set", "comm.checksum=true", "--set", "train.verify_sums=2")
    for i, flags in enumerate(((), checks)):
        out = harness.scratch / f"run-{i}"
        train_well(small_cfg(), "--out", out, "--steps", 9, *RING, *flags, ranks=2)
        found.add(weights(out))
    same(len(found), 1, "different weights")


if __name__ == "__main__":
    harness.main(globals())

"""A rank that stops in MPI_Finalize, alone on its host, where nobody can see that it does: all
leave, and one line says why. On one host that is mpi_leave_within of ctest.
"""
import re

import harness
import hosts
from harness import check, same


def case_a_rank_that_stops_in_the_end_of_mpi_ends_the_job_on_all_hosts():
    harness.program = "mpi_leave"
    try:
        result = hosts.start(2, 2, "within").finish()
    finally:
        harness.program = "ddp_train"
    same(result.code, 76, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check(re.search(r"rank 0 \(h1\): no progress for .* s: all ranks of host h1 wait for ranks "
                    "that cannot be seen from here", result.errors[0]), f"{result}")
    same(result.err.count("rank host "), 1, f"the number of tables in\n{result}\n")


if __name__ == "__main__":
    harness.main(globals())

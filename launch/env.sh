# Sourced by scripts that start ranks: Open MPI's environment, where the user has not set it.
# Works in any POSIX shell.

# dp_default NAME VALUE: exports NAME; a value that the user has set is kept.
dp_default() {
    if eval "[ -z \"\${$1+set}\" ]"; then
        export "$1=$2"
    fi
}

# Containers run as root, and tests run more ranks than there are cores.
dp_default OMPI_ALLOW_RUN_AS_ROOT 1
dp_default OMPI_ALLOW_RUN_AS_ROOT_CONFIRM 1
dp_default OMPI_MCA_rmaps_base_oversubscribe 1
# Ranks divide the cores of their host among themselves. Open MPI would give one or two ranks of a
# host a single core each, however many there are.
dp_default OMPI_MCA_hwloc_base_binding_policy none
dp_default PRTE_MCA_hwloc_default_binding_policy none
# Without mpirun's banner, so that the last line on the terminal is ours, which names the cause.
dp_default OMPI_MCA_orte_execute_quiet 1
# Seconds that ranks have to save after a SIGTERM to mpirun. When a rank dies mpirun waits twice as
# long, and with other hosts as long again; the job is to end within five seconds.
dp_default OMPI_MCA_odls_base_sigkill_timeout 1
# One TCP connection carries about half of what the wire can when both directions are busy.
dp_default OMPI_MCA_btl_tcp_links 2
# Messages up to this size are sent without a handshake: collectives/core/mpi/start_mpi.c.
dp_default OMPI_MCA_btl_tcp_eager_limit 1052672
dp_default OMPI_MCA_btl_tcp_rndv_eager_limit 1052672
dp_default OMPI_MCA_btl_tcp_max_send_size 1052672
# The same for messages inside a node; longer ones are sent in fewer parts.
dp_default OMPI_MCA_btl_vader_eager_limit 36864
dp_default OMPI_MCA_btl_vader_max_send_size 65536
# A seccomp filter (containers) or Yama may forbid reading another process's memory directly; Open
# MPI then prints an error per message instead of using another way.
dp_default OMPI_MCA_btl_vader_single_copy_mechanism none
# As in Open MPI 4, where messages are as fast: 5 makes files of 16 MiB a rank in /dev/shm.
dp_default OMPI_MCA_btl_vader_segment_size 4194304
# The same for Open MPI 5, whose launcher is PRRTE.
dp_default PRTE_ALLOW_RUN_AS_ROOT 1
dp_default PRTE_ALLOW_RUN_AS_ROOT_CONFIRM 1
dp_default PRTE_MCA_rmaps_default_mapping_policy :oversubscribe
dp_default PRTE_MCA_prte_execute_quiet 1
# A component that is not used, but which in Open MPI 5 prints an error first.
dp_default OMPI_MCA_osc ^ucx
# Ranks that lack it start themselves again with it: base/system/openmp.c.
if [ -z "${OMP_WAIT_POLICY+set}" ]; then
    dp_default GOMP_SPINCOUNT 5000
fi

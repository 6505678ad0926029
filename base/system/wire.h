/*
 * wire.h - identifies the network between hosts, as this host sees it: measurements over one
 * network do not apply to another.
 */
#ifndef DP_BASE_SYSTEM_WIRE_H
#define DP_BASE_SYSTEM_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define DP_WIRE_FOLDER "/sys/class/net"
#define DP_WIRE_RDMA_FOLDER "/sys/class/infiniband"

/*
 * A hash of the host's network interfaces and of the settings that choose between them. It covers
 * each interface that is up, except loopback and ports of a bridge or a bond: its name, speed, MTU,
 * and traffic shaping (tc). It also covers the settings of Open MPI, UCX and libfabric that select
 * and configure a transport; order does not matter. What cannot be read counts as empty: two hosts
 * that hide everything have the same hash.
 *
 *   folder       DP_WIRE_FOLDER, except in tests
 *   environment  as environ
 */
uint64_t dp_wire_hash(const char *folder, char *const *environment);

/*
 * One of this host's devices for direct access to another host's memory (InfiniBand, RoCE, EFA),
 * with what its first port carries: "mlx5_0, 100 Gb/sec". Of several the first by name.
 *
 *   folder  DP_WIRE_RDMA_FOLDER, except in tests
 *   text    out  [size]; "" if there is none whose first port is active
 */
void dp_wire_rdma(const char *folder, char *text, size_t size);

#endif

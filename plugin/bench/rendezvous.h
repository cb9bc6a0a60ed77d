/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' control connections: a TCP connection (or Unix socket) from each rank to rank 0, for the
 * exchange of handles, barriers and results, and to detect that another rank has failed or exited.
 *
 * Owns the sockets. Called from harp-perf's only thread; blocks unless said otherwise. Frames are {type,
 * length, payload} in host byte order: all ranks run the same program on the same architecture, which the
 * hello checks. Carries none of the measured traffic. */
#ifndef HARP_BENCH_RENDEZVOUS_H
#define HARP_BENCH_RENDEZVOUS_H

#include "base/base.h"
#include "options.h"

enum { HARP_RENDEZVOUS_BYTES_MAX = 64 << 20 }; /* the most bytes of all ranks in one exchange */

struct harp_rendezvous {
  int rank, nranks;
  int fds[HARP_RANKS_MAX]; /* rank 0: by rank; others: only [0], rank 0; else -1 */
  bool failed;             /* a rank's failure was detected or reported: nothing more is sent */
  uint64_t left_ns;        /* when a rank was first found to have exited; 0: none has */
};

/* Makes `rendezvous` safe to close before anything is open. */
void harp_rendezvous_init(struct harp_rendezvous *rendezvous);

/* Listens on 127.0.0.1 at a port of the kernel's choice and writes "127.0.0.1:PORT" to `address`. Returns the
 * descriptor, the caller's, or -1. */
int harp_rendezvous_listen_local(char *address, size_t address_bytes) HARP_MUST_CHECK;

/* Connects all ranks, after harp_rendezvous_init, at opt->rendezvous within opt->timeout_s. Rank 0 listens
 * there, or on `listen_fd` unless it is -1, and closes that. Refuses ranks with another fingerprint. Returns
 * 0 or -1. */
int harp_rendezvous_open(struct harp_rendezvous *rendezvous, const struct harp_options *opt,
                         int listen_fd) HARP_MUST_CHECK;

/* All-gathers `bytes` bytes of each rank into `all`, by rank; at most HARP_RENDEZVOUS_BYTES_MAX in all.
 * Blocks until all ranks have called it or one has exited. Returns 0 or -1. */
int harp_rendezvous_gather(struct harp_rendezvous *rendezvous, const void *mine, size_t bytes,
                           void *all) HARP_MUST_CHECK;

/* Copies rank 0's `data` to every rank. Returns 0 or -1. */
int harp_rendezvous_broadcast(struct harp_rendezvous *rendezvous, void *data, size_t bytes) HARP_MUST_CHECK;

/* Blocks until every rank has called it. Returns 0 or -1. */
int harp_rendezvous_barrier(struct harp_rendezvous *rendezvous) HARP_MUST_CHECK;

/* Returns 0, or -1 when another rank has failed or exited. Does not block. */
int harp_rendezvous_check(struct harp_rendezvous *rendezvous) HARP_MUST_CHECK;

/* Sends the reason for this rank's failure to the other ranks. */
void harp_rendezvous_send_failure(struct harp_rendezvous *rendezvous, const char *text);

void harp_rendezvous_close(struct harp_rendezvous *rendezvous);

#endif

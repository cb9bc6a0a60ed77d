/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks meet: one TCP connection (or local socket) from each rank to rank 0, used for the exchange of
 * handles, barriers, results, and to learn at once that another rank failed or died.
 *
 * Owns the sockets. Called from harp-perf's one thread. Frames are {type, length, payload} in host byte
 * order: all ranks run the same program on the same kind of machine, and the hello says so. Not for the
 * measured traffic. */
#ifndef HARP_BENCH_RENDEZVOUS_H
#define HARP_BENCH_RENDEZVOUS_H

#include "base/base.h"
#include "options.h"

enum { HARP_MEET_BYTES_MAX = 64 << 20 }; /* of what all ranks put into one exchange */

struct harp_rendezvous {
  int rank, nranks;
  int fds[HARP_RANKS_MAX]; /* rank 0: by rank; others: only [0], rank 0; else -1 */
  bool failed;             /* a rank's failure was seen or told: nothing more is sent */
  uint64_t left_ns;        /* when a rank was first seen to have left; 0: none has */
};

/* Makes `rendezvous` safe to close before anything is open. */
void harp_rendezvous_init(struct harp_rendezvous *rendezvous);

/* Listens on 127.0.0.1 at a port of the kernel's choice and writes "127.0.0.1:PORT" to `address`. Returns the
 * descriptor, the caller's, or -1. */
int harp_rendezvous_listen_local(char *address, size_t address_bytes) HARP_MUST_CHECK;

/* Meets all ranks, after harp_rendezvous_init, at opt->rendezvous within opt->timeout_s; rank 0 listens
 * there, on `listen_fd` where it is not -1, which it closes. Ranks whose fingerprint differs are refused.
 * Returns 0 or -1. */
int harp_rendezvous_open(struct harp_rendezvous *rendezvous, const struct harp_options *opt,
                         int listen_fd) HARP_MUST_CHECK;

/* Gives every rank what every rank put in: `all` receives nranks times `bytes`, by rank, at most
 * HARP_MEET_BYTES_MAX in all. Waits as long as all
 * other ranks live. Returns 0 or -1. */
int harp_rendezvous_gather(struct harp_rendezvous *rendezvous, const void *mine, size_t bytes,
                           void *all) HARP_MUST_CHECK;

/* Gives every rank rank 0's `data`. Returns 0 or -1. */
int harp_rendezvous_broadcast(struct harp_rendezvous *rendezvous, void *data, size_t bytes) HARP_MUST_CHECK;

/* Returns 0 once every rank came, or -1. */
int harp_rendezvous_barrier(struct harp_rendezvous *rendezvous) HARP_MUST_CHECK;

/* Looks, without waiting, whether another rank failed or left. Returns 0, or -1 when one did. */
int harp_rendezvous_check(struct harp_rendezvous *rendezvous) HARP_MUST_CHECK;

/* Tells the other ranks why this one fails. */
void harp_rendezvous_tell_failure(struct harp_rendezvous *rendezvous, const char *text);

void harp_rendezvous_close(struct harp_rendezvous *rendezvous);

#endif

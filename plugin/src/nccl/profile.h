/* SPDX-License-Identifier: Apache-2.0 */
/* Events for NCCL's profiler plugins: one for each request, from isend or irecv until test reports that it is
 * done or failed, or its comm is closed. They are described as NCCL's own Socket describes its.
 *
 * Called by NCCL's threads, as net/net.h describes. Without a profiler each call is one branch. */
#ifndef HARP_NCCL_PROFILE_H
#define HARP_NCCL_PROFILE_H

#include "nccl/abi.h"
#include "net/net.h"

enum harp_nccl_profile_op { HARP_NCCL_PROFILE_SEND = 0, HARP_NCCL_PROFILE_RECEIVE = 1 };

/* Takes the callback of init; NULL is fine. The process has one: a second NCCL in it ends new events, since
 * nothing shows whose a request is. */
void harp_nccl_profile_use(harp_nccl_profiler profiler);

/* Begins the event of a request that isend or irecv returned. `phandle` NULL: NCCL records none. */
void harp_nccl_profile_start(struct harp_request *request, enum harp_nccl_profile_op op, void *phandle,
                             size_t bytes);

/* Ends the event of a request, if it has one. The request may be free already, its comm not closed. */
void harp_nccl_profile_stop(struct harp_request *request);

/* Ends the events of all requests of a comm; before it is closed. */
void harp_nccl_profile_stop_all(struct harp_comm *comm);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The operations as NCCL means them, in one form for all versions: NCCL's result codes, size_t sizes,
 * contexts as an argument. tables.c adapts each version to these, net/net.h does the work.
 *
 * What every version needs beyond net/net.h is here: outputs are written on every way out (NCCL tests
 * whatever a request holds), NULL arguments are our caller's mistake and end in one WARN and INTERNAL_ERROR,
 * never in a crash. Which calls wait, and threads: as net/net.h describes. */
#ifndef HARP_NCCL_OPS_H
#define HARP_NCCL_OPS_H

#include "nccl/abi.h"
#include "net/net.h"

/* Initialises for one communicator (v11 on). *ctx is NULL on error. */
enum harp_nccl_result harp_nccl_open(void **ctx, int traffic_class, harp_nccl_logger log,
                                     harp_nccl_profiler profiler);
/* Ends a context; NULL is fine, and so is one that was ended before. */
enum harp_nccl_result harp_nccl_close(void *ctx);

/* Initialises for the process, where the version has no contexts (to v10). Idempotent: NCCL calls again once
 * all communicators are gone. */
enum harp_nccl_result harp_nccl_open_process(harp_nccl_logger log, harp_nccl_profiler profiler);
/* Returns the context of the process, NULL before harp_nccl_open_process. It is never closed: there is no
 * finalize. */
struct harp_context *harp_nccl_process(void);

/* Writes how many devices there are, at least one after init. */
enum harp_nccl_result harp_nccl_devices(int *ndev);
/* Makes a device of `count` others, as many as the version can name at most. */
enum harp_nccl_result harp_nccl_merge(int *dev, const int *parts, int count, int most);

enum harp_nccl_result harp_nccl_listen(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                       void **listen);
/* `handle` is the same buffer at each try; *comm is NULL until connected. */
enum harp_nccl_result harp_nccl_connect(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                        int traffic_class, void **comm);
enum harp_nccl_result harp_nccl_accept(void *listen, void **comm);

/* Registers; anything but host memory is refused. */
enum harp_nccl_result harp_nccl_register(void *comm, void *data, size_t bytes, int type, void **mhandle);
/* Always SUCCESS: with an error NCCL would never close the comm. */
enum harp_nccl_result harp_nccl_deregister(void *comm, void *mhandle);

/* `phandle` is the profiler's, NULL without. */
enum harp_nccl_result harp_nccl_send(void *comm, void *data, size_t bytes, void *phandle, void **request);
/* Returns NCCL's hint, in what *request holds before irecv since v9: whether a GPU reads the buffer while it
 * fills, and needs no completion (LL, LL128). Where the user has switched such completions on there is no
 * hint, and any buffer may be such a one. */
bool harp_nccl_is_watched(void *const *request);
/* is_watched: the buffer may be read while it fills, as the flags of NCCL's LL and LL128 are. */
enum harp_nccl_result harp_nccl_receive(void *comm, int n, void **data, const size_t *sizes, bool is_watched,
                                        void *phandle, void **request);
/* Host memory needs no flush: returns a request that is done at once. */
enum harp_nccl_result harp_nccl_flush(void **request);
enum harp_nccl_result harp_nccl_test(void *request, int *done, int *sizes);

enum harp_nccl_result harp_nccl_close_comm(void *comm);
enum harp_nccl_result harp_nccl_close_listen(void *listen);

/* Logs that a call got an argument that no caller may pass. Returns INTERNAL_ERROR. */
enum harp_nccl_result harp_nccl_misuse(const char *what);
/* Logs that a size of an old version, an int, is negative. Returns INVALID_ARGUMENT. */
enum harp_nccl_result harp_nccl_negative(const char *what, int size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The network that nccl/ calls, without any version of NCCL's ABI.
 *
 * A context stands for one initialised communicator (or for all of a process, with old ABIs). A device uses
 * all configured ENIs, or one of them, as configured, or some that NCCL merged; its engines run while
 * anything is open on it, or on another one over the same ENIs. All calls may come from any thread, but one
 * comm is used by one thread at a time.
 *
 * Calls that move data do not block. Listen and connect may wait for seconds while an engine opens. The last
 * close on a device waits until copies are delivered, at most for the peer timeout. In a forked child every
 * call fails, or does nothing where it closes. */
#ifndef HARP_NET_H
#define HARP_NET_H

#include "base/base.h"
#include "base/status.h"
#include "engine/control/handle.h"

struct harp_context;
struct harp_listen; /* a listening comm */
struct harp_comm;   /* a sending or receiving comm */
struct harp_request;

enum { HARP_NET_PARTS_MAX = 8 };

/* The properties of a device. Strings live as long as the process. */
struct harp_device {
  const char *name;     /* the name of the interface */
  const char *pci_path; /* NULL when it is no PCI device */
  int speed_mbps;
  int port;
  float latency_us;
  uint64_t guid;
  unsigned part_count; /* the number of devices that a merged device is made of; 0 for the others */
  int parts[HARP_NET_PARTS_MAX];
};

enum {
  HARP_NET_MAX_BYTES = 1 << 30, /* the most bytes of one message */
  HARP_NET_COMMS_MAX = 4096,    /* the most comms of one device */
};

/* Returns whether the operator has turned HARP off, by HARP_DISABLE. */
bool harp_net_is_disabled(void);

/* Reads the configuration, if no other context has, and makes a context. Fails with one WARN that names what
 * to do. */
enum harp_status harp_net_open(struct harp_context **ctx, int traffic_class);
/* Closes whatever was left half-open in it (listeners, connects); NULL is fine. */
void harp_net_close(struct harp_context *ctx);

int harp_net_device_count(void);
/* Fills *d. HARP_ERR_ARGUMENT, with one WARN, for a device that isn't there. */
enum harp_status harp_net_device(int dev, struct harp_device *d);

/* Makes a device of others, for NCCL's merging of NICs: connections on it are striped over all their ENIs.
 * The same parts make the same device again. HARP_ERR_ARGUMENT, with one WARN, for parts that are not there
 * or too many, and with an INFO line for several of which one has no PCI device; the device stays until the
 * process ends. */
enum harp_status harp_net_merge(const int *parts, int part_count, int *dev);

/* Fills a handle of handle_bytes (handle.h). What is accepted there has the context's traffic class. */
enum harp_status harp_net_listen(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                 struct harp_listen **listen);
/* Writes 8 bytes of the handle between calls (the connect under way); *comm stays NULL until it is done.
 * traffic_class -1: the context's. */
enum harp_status harp_net_connect(struct harp_context *ctx, int dev, void *handle, size_t handle_bytes,
                                  int traffic_class, struct harp_comm **comm);
enum harp_status harp_net_accept(struct harp_listen *listen, struct harp_comm **comm);

/* Registers a buffer, host memory only. Nothing is pinned; the registration only names what deregister
 * ends. */
enum harp_status harp_net_register(struct harp_comm *comm, void *data, size_t bytes, void **mr);
/* After this returns nothing touches the buffer any more. Always succeeds. */
enum harp_status harp_net_deregister(struct harp_comm *comm, void *mr);

/* *request == NULL with HARP_OK: not now, call again. */
enum harp_status harp_net_send(struct harp_comm *comm, void *data, size_t bytes,
                               struct harp_request **request);
/* is_watched: somebody reads the buffer while it fills, and relies on the order within lines of 128 bytes. */
enum harp_status harp_net_receive(struct harp_comm *comm, void *data, size_t bytes, bool is_watched,
                                  struct harp_request **request);
/* Sets *done, and then *bytes, how many it moved; a request that is done is free again. */
enum harp_status harp_net_test(struct harp_request *request, bool *done, size_t *bytes);

/* Returns a pointer that the caller may set for a request, for its own use: NULL at first, kept when the
 * request is freed and used again. */
void **harp_net_profiler_event(struct harp_request *request);
/* Calls on_event for each request of a comm, open or not; in a forked child for none. */
void harp_net_each_profiler_event(struct harp_comm *comm, void (*on_event)(void **event));

void harp_net_close_comm(struct harp_comm *comm);
void harp_net_close_listen(struct harp_listen *listen);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin DEFECT_PLUGIN with a defect, for which DEFECT is the word:
 *
 *   byte     the last byte of a message that came is wrong, after some that were right
 *   file     each connection that is accepted leaves a file open
 *   memory   each connection that is accepted leaves LEAK_BYTES
 *   wake     a request is never done, after some that were
 *   silence  no error is reported: calls that fail look as if they were still under way */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/abi.h"

enum { RIGHT = 20, REQUESTS = 256, LEAK_BYTES = 4 << 20 };

struct harp_nccl_net_v12 ncclNetPlugin_v12;

static struct harp_nccl_net_v12 plugin;
static const char *defect;
static struct {
  void *request;
  char *data;
} receives[REQUESTS];
static unsigned done_count;
static void *stuck;
static char *volatile leaked; /* volatile: the compiler must not leave it out */

static bool has(const char *word) {
  return strcmp(defect, word) == 0;
}

static enum harp_nccl_result told(enum harp_nccl_result result) {
  return has("silence") ? HARP_NCCL_SUCCESS : result;
}

static enum harp_nccl_result net_connect(void *ctx, int dev, void *handle, void **comm,
                                         struct harp_nccl_device_handle_v7 **device) {
  return told(plugin.connect(ctx, dev, handle, comm, device));
}

static enum harp_nccl_result net_accept(void *listen, void **comm,
                                        struct harp_nccl_device_handle_v7 **device) {
  enum harp_nccl_result result = plugin.accept(listen, comm, device);
  if (*comm && has("file")) (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (*comm && has("memory") && (leaked = malloc(LEAK_BYTES))) memset((char *)leaked, 1, LEAK_BYTES);
  return told(result);
}

static enum harp_nccl_result net_isend(void *comm, void *data, size_t bytes, int tag, void *mr, void *phandle,
                                       void **request) {
  return told(plugin.isend(comm, data, bytes, tag, mr, phandle, request));
}

static enum harp_nccl_result net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
                                       void **phandles, void **request) {
  enum harp_nccl_result result = plugin.irecv(comm, n, data, sizes, tags, mrs, phandles, request);
  for (unsigned i = 0; *request && i < REQUESTS; i++) {
    if (receives[i].request) continue;
    receives[i].request = *request;
    receives[i].data = data[0];
    break;
  }
  return told(result);
}

/* Returns where a request receives to, and forgets it; NULL: it is a send. */
static char *take_data(void *request) {
  for (unsigned i = 0; i < REQUESTS; i++) {
    if (receives[i].request != request) continue;
    receives[i].request = NULL;
    return receives[i].data;
  }
  return NULL;
}

static enum harp_nccl_result net_test(void *request, int *done, int *sizes) {
  if (has("wake") && !stuck && done_count > RIGHT) stuck = request;
  *done = 0;
  if (request == stuck) return HARP_NCCL_SUCCESS;
  enum harp_nccl_result result = plugin.test(request, done, sizes);
  char *data = *done ? take_data(request) : NULL;
  done_count += *done != 0;
  if (has("byte") && data && *sizes && done_count > RIGHT) data[*sizes - 1] ^= 1;
  return told(result);
}

__attribute__((constructor)) static void load(void) {
  const char *file = getenv("DEFECT_PLUGIN");
  void *library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
  const struct harp_nccl_net_v12 *found = library ? dlsym(library, "ncclNetPlugin_v12") : NULL;
  defect = getenv("DEFECT");
  if (!found || !defect) abort();
  ncclNetPlugin_v12 = plugin = *found;
  ncclNetPlugin_v12.connect = net_connect;
  ncclNetPlugin_v12.accept = net_accept;
  ncclNetPlugin_v12.isend = net_isend;
  ncclNetPlugin_v12.irecv = net_irecv;
  ncclNetPlugin_v12.test = net_test;
}

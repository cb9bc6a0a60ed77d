/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA runtime as far as NCCL's host code needs it. Signatures, numbers of errors and attributes and
 * positions in structures are those of CUDA's public interface. What NCCL calls without using the result
 * returns success. */
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMCPY_LONG_BYTES = 1 << 20, DEFAULT_HANDLES = 2 };

static _Thread_local int last_error;

int box_runtime_fail(int error) {
  return last_error = error;
}

int box_runtime_unsupported(void) {
  return box_runtime_fail(BOX_CUDA_NOT_SUPPORTED);
}

/* ---- streams ---- */

struct box_stream *box_runtime_stream(void *handle) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct box_stream *defaults[BOX_DEVICES];
  if ((uintptr_t)handle > DEFAULT_HANDLES) return handle;
  pthread_mutex_lock(&lock);
  struct box_stream **own = &defaults[box_device_current()];
  if (!*own) *own = box_stream_create(box_device_current());
  pthread_mutex_unlock(&lock);
  return *own;
}

static int stream_create(void **stream) {
  *stream = box_stream_create(box_device_current());
  return 0;
}
static int stream_destroy(void *stream) {
  if ((uintptr_t)stream > DEFAULT_HANDLES) box_stream_destroy(stream);
  return 0;
}
static int stream_synchronize(void *stream) {
  box_stream_wait(box_runtime_stream(stream));
  return 0;
}
static int stream_query(void *stream) {
  return box_stream_is_idle(box_runtime_stream(stream)) ? 0 : BOX_CUDA_NOT_READY;
}
static int stream_id(void *stream, unsigned long long *id) {
  *id = box_stream_id(box_runtime_stream(stream));
  return 0;
}
static int stream_device(void *stream, int *device) {
  *device = box_stream_device(box_runtime_stream(stream));
  return 0;
}
static int stream_flags(void *stream, unsigned *flags) {
  (void)stream;
  *flags = 1; /* does not wait for the default stream */
  return 0;
}
static int stream_priority(void *stream, int *priority) {
  (void)stream;
  *priority = 0;
  return 0;
}
static int stream_priorities(int *least, int *greatest) {
  *least = *greatest = 0;
  return 0;
}
static int stream_is_capturing(void *stream, int *status) {
  (void)stream;
  *status = 0;
  return 0;
}
static int stream_capture_info(void *stream, int *status, unsigned long long *id) {
  (void)stream;
  *status = 0;
  if (id) *id = 0;
  return 0;
}
static int device_synchronize(void) {
  box_stream_wait_all();
  return 0;
}

struct host_call {
  void (*function)(void *);
  void *word;
};
static void call_host(void *word) {
  struct host_call call = *(struct host_call *)word;
  free(word);
  call.function(call.word);
}
static int launch_host(void *stream, void (*function)(void *), void *word) {
  struct host_call *call = malloc(sizeof *call);
  if (!call) return box_runtime_fail(BOX_CUDA_NO_MEMORY);
  *call = (struct host_call){function, word};
  box_stream_push(box_runtime_stream(stream), (struct box_task){call_host, call, true});
  return 0;
}

/* ---- events ---- */

static int event_create(void **event) {
  *event = box_event_create();
  return 0;
}
static int event_destroy(void *event) {
  box_event_destroy(event);
  return 0;
}
static int event_record(void *event, void *stream) {
  box_event_record(event, box_runtime_stream(stream));
  return 0;
}
static int event_query(void *event) {
  return box_event_has_happened(event) ? 0 : BOX_CUDA_NOT_READY;
}
static int event_synchronize(void *event) {
  box_event_wait(event);
  return 0;
}
static int event_elapsed(float *ms, void *from, void *to) {
  double elapsed = box_event_elapsed_ms(from, to);
  if (elapsed < 0) return BOX_CUDA_NOT_READY;
  *ms = (float)elapsed;
  return 0;
}
static int stream_wait_event(void *stream, void *event) {
  box_event_hold(event, box_runtime_stream(stream));
  return 0;
}

/* ---- memory ---- */

static int take(void **at, size_t bytes, bool is_host) {
  *at = box_memory_take(bytes, is_host, box_device_current());
  return *at ? 0 : box_runtime_fail(BOX_CUDA_NO_MEMORY);
}
static int take_device(void **at, size_t bytes) {
  return take(at, bytes, false);
}
static int take_host(void **at, size_t bytes) {
  return take(at, bytes, true);
}
static int give(void *at) {
  return box_memory_give(at) ? 0 : box_runtime_fail(BOX_CUDA_INVALID);
}
static void give_later(void *at) {
  box_memory_give(at);
}
static int give_async(void *at, void *stream) {
  box_stream_push(box_runtime_stream(stream), (struct box_task){give_later, at, false});
  return 0;
}
static int pool_create(void **pool) {
  *pool = malloc(1);
  return *pool ? 0 : box_runtime_fail(BOX_CUDA_NO_MEMORY);
}
static int pool_destroy(void *pool) {
  free(pool);
  return 0;
}
static int memory_info(size_t *free_bytes, size_t *all_bytes) {
  *all_bytes = BOX_DEVICE_BYTES;
  *free_bytes = BOX_DEVICE_BYTES - box_memory_taken();
  return 0;
}
static int host_device_pointer(void **device, void *host) {
  *device = host;
  return 0;
}
static int pointer_attributes(void *attributes, const void *at) {
  struct {
    int type, device; /* 0: memory that CUDA does not know; 1: of the host; 2: of a device */
    const void *device_pointer, *host_pointer;
  } out = {.device_pointer = at, .host_pointer = at};
  struct box_block block;
  if (box_memory_find(at, &block)) {
    out.type = block.is_host ? 1 : 2;
    out.device = block.device;
  }
  memcpy(attributes, &out, sizeof out);
  return 0;
}

struct span {
  void *to;
  const void *from; /* NULL: set to `value` */
  size_t bytes;
  int value;
};
static void do_span(void *word) {
  struct span *span = word;
  if (span->from)
    memmove(span->to, span->from, span->bytes);
  else
    box_memory_set(span->to, span->value, span->bytes);
  free(span);
}
static int push_span(void *stream, struct span span) {
  struct span *kept = malloc(sizeof *kept);
  if (!kept) return box_runtime_fail(BOX_CUDA_NO_MEMORY);
  *kept = span;
  bool is_long = span.from && span.bytes > MEMCPY_LONG_BYTES;
  box_stream_push(box_runtime_stream(stream), (struct box_task){do_span, kept, is_long});
  return 0;
}
static int memcpy_async(void *to, const void *from, size_t bytes, int kind, void *stream) {
  (void)kind;
  return push_span(stream, (struct span){to, from, bytes, 0});
}
static int memcpy_now(void *to, const void *from, size_t bytes, int kind) {
  int error = memcpy_async(to, from, bytes, kind, NULL);
  box_stream_wait(box_runtime_stream(NULL));
  return error;
}
static int memset_async(void *at, int value, size_t bytes, void *stream) {
  return push_span(stream, (struct span){at, NULL, bytes, value});
}
static int memset_now(void *at, int value, size_t bytes) {
  int error = memset_async(at, value, bytes, NULL);
  box_stream_wait(box_runtime_stream(NULL));
  return error;
}

/* ---- devices ---- */

static int get_device(int *device) {
  *device = box_device_current();
  return 0;
}
static int set_device(int device) {
  if (device < 0 || device >= BOX_DEVICES) return box_runtime_fail(BOX_CUDA_NO_DEVICE);
  box_device_choose(device);
  return 0;
}
static int get_device_count(int *count) {
  *count = BOX_DEVICES;
  return 0;
}
static int get_version(int *version) {
  *version = BOX_DRIVER_VERSION;
  return 0;
}
static int get_bus_id(char *out, int room, int device) {
  char bus_id[BOX_BUS_ID_BYTES];
  box_device_bus_id(device, bus_id);
  snprintf(out, (size_t)room, "%s", bus_id);
  return 0;
}
static int get_by_bus_id(int *device, const char *bus_id) {
  *device = box_device_by_bus_id(bus_id);
  return *device < 0 ? box_runtime_fail(BOX_CUDA_INVALID) : 0;
}
static int get_attribute(int *value, int attribute) {
  *value = box_device_attribute(attribute);
  return 0;
}

/* cudaDeviceProp: positions that CUDA 11, 12 and 13 share, but for the count of multiprocessors. */
static int get_properties(char *out, int device) {
  enum { PROPERTIES_BYTES = 700, UUID_BYTES = 16 };
  const struct {
    size_t at;
    int value;
  } words[] = {{308, 32},
               {320, 1024},
               {360, BOX_CAPABILITY_MAJOR},
               {364, BOX_CAPABILITY_MINOR},
               {384, BOX_PROCESSORS},
               {388, BOX_PROCESSORS}};
  const size_t memory_bytes = BOX_DEVICE_BYTES, shared_bytes = 48 << 10;
  memset(out, 0, PROPERTIES_BYTES);
  snprintf(out, 256, "GPU played by threads %d", device);
  memset(out + 256, 0x40 + device, UUID_BYTES);
  memcpy(out + 288, &memory_bytes, sizeof memory_bytes);
  memcpy(out + 296, &shared_bytes, sizeof shared_bytes);
  for (size_t i = 0; i < HARP_ARRAY_COUNT(words); i++)
    memcpy(out + words[i].at, &words[i].value, sizeof words[i].value);
  return 0;
}
static int get_limit(size_t *value) {
  *value = 1024;
  return 0;
}
static int can_access_peer(int *can) {
  *can = 0;
  return 0;
}
static int enable_peer(void) {
  return box_runtime_fail(BOX_CUDA_NO_PEER);
}
static int function_attributes(char *out) {
  const int threads = 1024, registers = 96;
  memset(out, 0, 48);
  memcpy(out + 24, &threads, sizeof threads);
  memcpy(out + 28, &registers, sizeof registers);
  return 0;
}

static int succeed(void) {
  return 0;
}
static int get_last_error(void) {
  int error = last_error;
  last_error = 0;
  return error;
}
static int peek_last_error(void) {
  return last_error;
}
static const char *error_text(int error) {
  switch (error) {
  case BOX_CUDA_OK:
    return "no error";
  case BOX_CUDA_INVALID:
    return "invalid argument";
  case BOX_CUDA_NO_MEMORY:
    return "out of memory";
  case BOX_CUDA_NOT_READY:
    return "device not ready";
  case BOX_CUDA_NOT_SUPPORTED:
    return "not provided by harp-nccl, which plays the GPU";
  default:
    return "an error of the GPU that harp-nccl plays";
  }
}
static int driver_error_text(int error, const char **text) {
  *text = error_text(error);
  return 0;
}

/* ---- entry points ---- */

static int entry_by_version(const char *name, void **function, unsigned version, unsigned long long flags,
                            int *found) {
  (void)version, (void)flags;
  *function = (void *)box_driver_find(name);
  if (found) *found = *function ? 0 : 1;
  return 0;
}
static int entry(const char *name, void **function, unsigned long long flags, int *found) {
  entry_by_version(name, function, 0, flags, found);
  return *function ? 0 : box_runtime_fail(BOX_CUDA_NOT_FOUND);
}

static const struct box_entry entries[] = {
    BOX_ENTRY("cudaDeviceCanAccessPeer", can_access_peer),
    BOX_ENTRY("cudaDeviceDisablePeerAccess", succeed),
    BOX_ENTRY("cudaDeviceEnablePeerAccess", enable_peer),
    BOX_ENTRY("cudaDeviceGetAttribute", get_attribute),
    BOX_ENTRY("cudaDeviceGetByPCIBusId", get_by_bus_id),
    BOX_ENTRY("cudaDeviceGetLimit", get_limit),
    BOX_ENTRY("cudaDeviceGetPCIBusId", get_bus_id),
    BOX_ENTRY("cudaDeviceGetStreamPriorityRange", stream_priorities),
    BOX_ENTRY("cudaDeviceSetLimit", succeed),
    BOX_ENTRY("cudaDeviceSynchronize", device_synchronize),
    BOX_ENTRY("cudaDriverGetVersion", get_version),
    BOX_ENTRY("cudaEventCreate", event_create),
    BOX_ENTRY("cudaEventCreateWithFlags", event_create),
    BOX_ENTRY("cudaEventDestroy", event_destroy),
    BOX_ENTRY("cudaEventElapsedTime", event_elapsed),
    BOX_ENTRY("cudaEventQuery", event_query),
    BOX_ENTRY("cudaEventRecord", event_record),
    BOX_ENTRY("cudaEventRecordWithFlags", event_record),
    BOX_ENTRY("cudaEventSynchronize", event_synchronize),
    BOX_ENTRY("cudaFree", give),
    BOX_ENTRY("cudaFreeAsync", give_async),
    BOX_ENTRY("cudaFreeHost", give),
    BOX_ENTRY("cudaFuncGetAttributes", function_attributes),
    BOX_ENTRY("cudaFuncSetAttribute", succeed),
    BOX_ENTRY("cudaGetDevice", get_device),
    BOX_ENTRY("cudaGetDeviceCount", get_device_count),
    BOX_ENTRY("cudaGetDeviceProperties", get_properties),
    BOX_ENTRY("cudaGetDeviceProperties_v2", get_properties),
    BOX_ENTRY("cudaGetDriverEntryPoint", entry),
    BOX_ENTRY("cudaGetDriverEntryPointByVersion", entry_by_version),
    BOX_ENTRY("cudaGetErrorName", error_text),
    BOX_ENTRY("cudaGetErrorString", error_text),
    BOX_ENTRY("cudaGetLastError", get_last_error),
    BOX_ENTRY("cudaHostAlloc", take_host),
    BOX_ENTRY("cudaHostGetDevicePointer", host_device_pointer),
    BOX_ENTRY("cudaHostRegister", succeed),
    BOX_ENTRY("cudaHostUnregister", succeed),
    BOX_ENTRY("cudaLaunchHostFunc", launch_host),
    BOX_ENTRY("cudaMalloc", take_device),
    BOX_ENTRY("cudaMallocAsync", take_device),
    BOX_ENTRY("cudaMallocFromPoolAsync", take_device),
    BOX_ENTRY("cudaMallocHost", take_host),
    BOX_ENTRY("cudaMallocManaged", take_device),
    BOX_ENTRY("cudaMemGetInfo", memory_info),
    BOX_ENTRY("cudaMemPoolCreate", pool_create),
    BOX_ENTRY("cudaMemPoolDestroy", pool_destroy),
    BOX_ENTRY("cudaMemPoolSetAttribute", succeed),
    BOX_ENTRY("cudaMemPoolTrimTo", succeed),
    BOX_ENTRY("cudaMemcpy", memcpy_now),
    BOX_ENTRY("cudaMemcpyAsync", memcpy_async),
    BOX_ENTRY("cudaMemset", memset_now),
    BOX_ENTRY("cudaMemsetAsync", memset_async),
    BOX_ENTRY("cudaPeekAtLastError", peek_last_error),
    BOX_ENTRY("cudaPointerGetAttributes", pointer_attributes),
    BOX_ENTRY("cudaRuntimeGetVersion", get_version),
    BOX_ENTRY("cudaSetDevice", set_device),
    BOX_ENTRY("cudaStreamCreate", stream_create),
    BOX_ENTRY("cudaStreamCreateWithFlags", stream_create),
    BOX_ENTRY("cudaStreamCreateWithPriority", stream_create),
    BOX_ENTRY("cudaStreamDestroy", stream_destroy),
    BOX_ENTRY("cudaStreamGetCaptureInfo", stream_capture_info),
    BOX_ENTRY("cudaStreamGetCaptureInfo_v2", stream_capture_info),
    BOX_ENTRY("cudaStreamGetCaptureInfo_v3", stream_capture_info),
    BOX_ENTRY("cudaStreamGetDevice", stream_device),
    BOX_ENTRY("cudaStreamGetFlags", stream_flags),
    BOX_ENTRY("cudaStreamGetId", stream_id),
    BOX_ENTRY("cudaStreamGetPriority", stream_priority),
    BOX_ENTRY("cudaStreamIsCapturing", stream_is_capturing),
    BOX_ENTRY("cudaStreamQuery", stream_query),
    BOX_ENTRY("cudaStreamSynchronize", stream_synchronize),
    BOX_ENTRY("cudaStreamWaitEvent", stream_wait_event),
    BOX_ENTRY("cudaThreadExchangeStreamCaptureMode", succeed),
    /* The driver has these with another signature. */
    BOX_ENTRY("cuGetErrorName", driver_error_text),
    BOX_ENTRY("cuGetErrorString", driver_error_text),
    {NULL, NULL},
};

static box_function *find(const struct box_entry *table, const char *name) {
  while (table->name && strcmp(table->name, name)) table++;
  return table->function;
}

box_function *box_runtime_find(const char *name) {
  box_function *found = find(entries, name);
  return found ? found : find(box_launch_entries, name);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches. The kernel's arguments are copied, as CUDA does; the stream's thread runs it. */
#include "device.h"
#include "entry.h"
#include "kernel.h"
#include "library.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

enum { OLD_WORDS = 3 }; /* up to NCCL 2.21 a kernel takes three words: communicator, channels, work */

struct launch {
  const char *kernel;
  int library;
  unsigned blocks;
  struct box_task completion; /* the completion of the launch, for an event; none if `run` is NULL */
  char arguments[];
};

static void run_kernel(void *word) {
  struct launch *launch = word;
  box_library_choose(launch->library);
  if (launch->completion.run) launch->completion.run(launch->completion.word);
  box_kernel_run(launch->kernel, launch->arguments, launch->blocks);
  free(launch);
}

static int launch(const void *function, unsigned blocks, void *stream, const void *arguments, size_t bytes,
                  struct box_event *event) {
  struct launch *l = malloc(sizeof *l + bytes);
  if (!l) return box_runtime_fail(BOX_CUDA_NO_MEMORY);
  *l = (struct launch){
      .kernel = box_library_function_name(function), .library = box_library_of(function), .blocks = blocks};
  if (event) l->completion = box_event_task(event);
  memcpy(l->arguments, arguments, bytes);
  box_stream_push(box_runtime_stream(stream), (struct box_task){run_kernel, l, true});
  return 0;
}

/* Newer releases give the arguments as one buffer in `extra`, older ones as a list of words. */
static int launch_any(const void *function, unsigned blocks, void *stream, void **parameters, void **extra,
                      struct box_event *event) {
  enum { EXTRA_POINTER = 1, EXTRA_BYTES = 2 };
  const void *arguments = NULL;
  size_t bytes = 0;
  for (void **pair = extra; pair && *pair; pair += 2) {
    if ((uintptr_t)pair[0] == EXTRA_POINTER) arguments = pair[1];
    if ((uintptr_t)pair[0] == EXTRA_BYTES) bytes = *(size_t *)pair[1];
  }
  void *words[OLD_WORDS];
  if (!arguments && parameters) {
    for (int i = 0; i < OLD_WORDS; i++) words[i] = *(void **)parameters[i];
    arguments = words;
    bytes = sizeof words;
  }
  if (!arguments) return box_runtime_fail(BOX_CUDA_INVALID);
  return launch(function, blocks, stream, arguments, bytes, event);
}

static int function_by_symbol(const void **function, const void *symbol) {
  *function = symbol;
  return 0;
}

/* CUlaunchConfig and its attributes. */
struct driver_config {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  const char *attributes;
  unsigned attribute_count;
};
static int driver_launch_ex(const struct driver_config *config, void *function, void **parameters,
                            void **extra) {
  enum { ATTRIBUTE_BYTES = 72, COMPLETION_EVENT = 12, VALUE_AT = 8 };
  struct box_event *event = NULL;
  for (unsigned i = 0; i < config->attribute_count; i++) {
    const char *attribute = config->attributes + (size_t)i * ATTRIBUTE_BYTES;
    int id;
    memcpy(&id, attribute, sizeof id);
    if (id == COMPLETION_EVENT) memcpy(&event, attribute + VALUE_AT, sizeof event);
  }
  return launch_any(function, config->grid[0], config->stream, parameters, extra, event);
}
static int driver_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                         void **parameters, void **extra) {
  (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared_bytes;
  return launch_any(function, grid_x, stream, parameters, extra, NULL);
}

/* Up to NCCL 2.18 kernels are launched through the runtime; so is what a communicator of one rank does, which
 * no benchmark needs. */
static int runtime_launch(const void *function, unsigned blocks, void **parameters, void *stream) {
  if (!box_kernel_is_known(box_library_function_name(function))) return box_runtime_unsupported();
  return launch_any(function, blocks, stream, parameters, NULL, NULL);
}
struct runtime_config {
  unsigned grid[3], block[3];
  size_t shared_bytes;
  void *stream, *attributes;
  unsigned attribute_count;
};
static int runtime_launch_ex(const struct runtime_config *config, const void *function, void **parameters) {
  return runtime_launch(function, config->grid[0], parameters, config->stream);
}
struct dimensions {
  unsigned x, y, z;
};
static int runtime_launch_plain(const void *function, struct dimensions grid, struct dimensions block,
                                void **parameters, size_t shared_bytes, void *stream) {
  (void)block, (void)shared_bytes;
  return runtime_launch(function, grid.x, parameters, stream);
}

const struct box_entry box_launch_entries[] = {
    BOX_ENTRY("cuLaunchKernel", driver_launch),           BOX_ENTRY("cuLaunchKernelEx", driver_launch_ex),
    BOX_ENTRY("cudaGetFuncBySymbol", function_by_symbol), BOX_ENTRY("cudaLaunchKernel", runtime_launch_plain),
    BOX_ENTRY("cudaLaunchKernelExC", runtime_launch_ex),  {NULL, NULL},
};

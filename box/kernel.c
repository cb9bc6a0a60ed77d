/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel.h"

#include "layout.h"
#include "library.h"
#include "log.h"
#include "old.h"
#include "work.h"

#include <stdlib.h>
#include <string.h>

bool box_kernel_is_known(const char *name) {
  return name && (strstr(name, "ncclDevKernel_") || strstr(name, "ncclKernel_"));
}

static void run_channel(void *word) {
  struct box_channel *channel = word;
  if (channel->kernel->work_head)
    box_old_run(channel);
  else
    box_work_run(channel);
}

void box_kernel_run(const char *name, const char *arguments, unsigned blocks) {
  if (!box_kernel_is_known(name)) {
    box_log("kernel %s is not emulated", name ? name : "without a name");
    return;
  }
  struct box_kernel kernel = {.name = name, .arguments = arguments};
  uint64_t mask, words[3]; /* up to 2.21: communicator, channels, work */
  if (box_has(BOX_BATCH_FUNC)) {
    kernel.comm = box_get_pointer(arguments, BOX_ARGS_COMM);
    mask = box_get(arguments, BOX_ARGS_CHANNEL_MASK);
  } else {
    memcpy(words, arguments, sizeof words);
    kernel.comm = (char *)(uintptr_t)words[0];
    mask = words[1];
    kernel.work_head = (const char *)(uintptr_t)words[2];
  }
  kernel.rank = (int)box_get_signed(kernel.comm, BOX_COMM_RANK);
  kernel.ranks = (int)box_get_signed(kernel.comm, BOX_COMM_RANKS);
  box_fibers_init(&kernel.fibers, box_get_pointer(kernel.comm, BOX_COMM_ABORT));
  char *all = box_get_pointer(kernel.comm, BOX_COMM_CHANNELS);
  struct box_channel *channels = box_new(blocks * sizeof *channels);
  for (unsigned block = 0; block < blocks && mask; block++, mask &= mask - 1) {
    int number = __builtin_ctzll(mask);
    channels[block] = (struct box_channel){.kernel = &kernel, .block = (int)block, .number = number};
    channels[block].channel = all + (size_t)number * box_struct_bytes(BOX_CHANNEL);
    box_fibers_add(&kernel.fibers, run_channel, &channels[block]);
  }
  box_fibers_run(&kernel.fibers);
  for (unsigned block = 0; block < blocks; block++) free(channels[block].works);
  free(channels);
}

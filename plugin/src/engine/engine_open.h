/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes an engine: chooses and opens the drivers of its ENIs, and divides its memory. Called by
 * net/ and by tests; no other file of engine/ calls it. */
#ifndef HARP_ENGINE_OPEN_H
#define HARP_ENGINE_OPEN_H

#include "engine/engine.h"

/* The call that closes an engine's last user waits so long for links that are closing: enough for a peer
 * that runs, so that the engine is gone when the call returns; too short for anybody to miss the time. */
#define HARP_CLOSING_AT_ONCE_NS HARP_MS(20)

/* The configured ENIs of an engine, 1 to HARP_ENGINE_ENIS_MAX; copied. */
struct harp_engine_enis {
  unsigned count;
  const struct harp_instance *at[HARP_ENGINE_ENIS_MAX];
};

/* An engine's place among those of its device: its number, its core, and its part of the memory. */
struct harp_engine_place {
  unsigned number, count;    /* its number, from 0, and the number of engines */
  int core;                  /* -1: any */
  uint8_t *memory;           /* the memory, borrowed until close, aligned to pages */
  size_t memory_bytes;       /* at least harp_engine_memory_bytes */
  enum harp_page_size pages; /* the size of its pages, for log lines */
};

/* Returns how many bytes of memory each of `count` engines over these ENIs is to have. */
size_t harp_engine_memory_bytes(const struct harp_engine_enis *enis, unsigned count);

/* Opens drivers and sockets; starts no thread. Returns 0, or -errno with a sentence in `error`. */
int harp_engine_open(struct harp_engine **e, const struct harp_engine_enis *enis,
                     const struct harp_engine_place *place, struct harp_error *error) HARP_MUST_CHECK;
/* Opens on a given driver instance (with several ENIs: a bundle) and clock, for the simulator; the only
 * engine, with no memory for blocks. Takes ownership of io on success. */
int harp_engine_open_with(struct harp_engine **e, const struct harp_engine_enis *enis, struct harp_io *io,
                          harp_ns (*clock)(void), struct harp_error *error) HARP_MUST_CHECK;
/* Opens the drivers of an ENI that had no address, with the instance that has one, and opens what waits for
 * it. Under the lock. Returns 0, or -errno with a sentence in `error` and nothing changed. */
int harp_engine_number(struct harp_engine *e, unsigned eni, const struct harp_instance *numbered,
                       struct harp_error *error) HARP_MUST_CHECK;
/* Passes until the engine has no link that is closing, HARP_CLOSING_AT_ONCE_NS at most. Takes the lock.
 * Called before the engine is stopped. */
void harp_engine_await_closing(struct harp_engine *e);
/* Closes everything, peers too; no link may be left and no thread run. */
void harp_engine_close(struct harp_engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include "base/assert.h"
#include "base/gpu_fence.h"
#include "engine/engine.h"
#include "engine/runner.h"

/* A send does a whole pass, which also receives acknowledgements, when this many copies are not known to be
 * delivered: NCCL's tests of copies do no pass. */
enum { FULL_PASS_COPIES = 16 };

/* ---- submitting ---- */

/* Takes a free request; NULL: all are in use. */
static struct harp_request *take_free(struct harp_link *link, void *data, uint32_t bytes) {
  if (harp_unlikely(!link->requests_free)) return NULL;
  struct harp_request *r = &link->requests[__builtin_ctzll(link->requests_free)];
  HARP_ASSERT(atomic_load_explicit(&r->state, memory_order_relaxed) == HARP_REQUEST_FREE);
  link->requests_free &= link->requests_free - 1;
  r->data = data;
  r->capacity = bytes;
  r->bytes = 0;
  r->is_copy = r->is_watched = false;
  return r;
}

/* Pushes a request into the submit ring and rings the engine's doorbell. */
static void submit_request(struct harp_request *r) {
  struct harp_link *link = r->link;
  atomic_store_explicit(&r->state, HARP_REQUEST_POSTED, memory_order_relaxed);
  bool pushed = harp_spsc_push(&link->submit, r);
  HARP_ASSERT(pushed); /* the ring has a slot for every request */
  harp_engine_ring_mt(link->engine, link->slot);
}

struct harp_request *harp_request_send(struct harp_link *link, void *data, uint32_t bytes) {
  HARP_ASSERT(link->role == HARP_ROLE_SENDER);
  harp_copies_collect(link);
  bool is_full_pass = harp_copies_count(&link->copies) >= FULL_PASS_COPIES;
  struct harp_request *r = take_free(link, data, bytes);
  if (harp_likely(r != NULL)) {
    harp_gpu_load_fence(); /* (O) pairs with the GPU's stores: NCCL has no fence between flag and isend */
    (void)harp_copies_take(link, r);
    link->submitted++;
    submit_request(r);
  }
  if (is_full_pass)
    harp_runner_inline_pass_mt(link->engine, NULL);
  else if (r)
    harp_runner_inline_transmit_mt(link->engine);
  if (r) harp_engine_wake_mt(link->engine);
  return r;
}

struct harp_request *harp_request_receive(struct harp_link *link, void *data, uint32_t capacity,
                                          bool is_watched) {
  HARP_ASSERT(link->role == HARP_ROLE_RECEIVER);
  struct harp_request *r = take_free(link, data, capacity);
  if (harp_unlikely(!r)) return NULL;
  r->is_watched = is_watched;
  submit_request(r);
  harp_engine_wake_mt(link->engine);
  return r;
}

/* ---- testing ---- */

static bool take_done(struct harp_request *r, size_t *bytes) {
  if (atomic_load_explicit(&r->state, memory_order_acquire) != HARP_REQUEST_DONE) return false; /* (F) */
  *bytes = r->bytes;
  harp_request_free(r);
  return true;
}

/* A copy is done for NCCL at once, unless its link failed before that test. */
static enum harp_status test_copy(struct harp_request *r, bool *done, size_t *bytes) {
  enum harp_status status = harp_link_error(r->link);
  if (harp_unlikely(status != HARP_OK)) return status;
  r->is_tested = *done = true;
  *bytes = r->capacity;
  return HARP_OK;
}

enum harp_status harp_request_test(struct harp_request *r, bool *done, size_t *bytes) {
  struct harp_link *link = r->link;
  if (r->is_copy) {
    harp_copies_collect(link); /* a copy that was delivered becomes an ordinary request */
    if (r->is_copy) return test_copy(r, done, bytes);
  }
  *done = take_done(r, bytes);
  if (*done) return HARP_OK;
  harp_runner_inline_pass_mt(link->engine, r);
  if (harp_unlikely(!(++link->test_count % HARP_STALL_TESTS))) harp_stall_watch_mt(link->engine);
  *done = take_done(r, bytes);
  return *done ? HARP_OK : harp_link_error(link);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose peer is killed. A call that does not return (the first operation makes connections) is
 * ended by an abort from a second thread, as a framework's watchdog does it. */
#include "clock.h"
#include "log.h"
#include "rank.h"
#include "report.h"
#include "stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { LOOK_US = 200, NOT_ABORTED = -1, TEXT_BYTES = 1024 };

struct watch {
  const struct box_options *options;
  box_comm comm;
  _Atomic double began_s; /* the time when the operation began */
  atomic_bool is_over, is_aborting;
  int abort_result;
  double aborted_s;
};

static void *watchdog(void *word) {
  struct watch *w = word;
  while (!atomic_load(&w->is_over) && box_clock_s() - atomic_load(&w->began_s) < w->options->patience_s)
    usleep(LOOK_US);
  if (atomic_load(&w->is_over)) return NULL;
  atomic_store(&w->is_aborting, true); /* from here on no other thread may use the communicator */
  w->abort_result = box_nccl()->CommAbort(w->comm);
  w->aborted_s = box_clock_s();
  return NULL;
}

/* Waits until the operation is done: 0; or an error. */
static int wait_done(struct watch *w, const struct box_buffers *b) {
  while (!box_stream_is_idle(b->stream) && !atomic_load(&w->is_aborting)) {
    int asynchronous = 0, result = box_nccl()->CommGetAsyncError(w->comm, &asynchronous);
    if (result) asynchronous = result;
    if (asynchronous && asynchronous != BOX_NCCL_IN_PROGRESS) return asynchronous;
    usleep(LOOK_US);
  }
  return 0;
}

int box_survive(const struct box_operation *op, struct box_shared *shared, box_comm comm,
                const struct box_buffers *b) {
  struct watch w = {.options = op->options, .comm = comm, .abort_result = NOT_ABORTED};
  struct box_survivor s = {.rank = op->rank, .how = "asynchronous error"};
  char last_error[TEXT_BYTES];
  pthread_t thread;
  int error = 0;
  atomic_store(&w.began_s, box_clock_s());
  if (pthread_create(&thread, NULL, watchdog, &w)) box_die("the watchdog can't be started");
  atomic_fetch_add(&shared->started, 1);
  while (!error && !atomic_load(&w.is_aborting)) {
    atomic_store(&w.began_s, box_clock_s());
    error = box_operation_start(op, comm, b);
    if (error == BOX_NCCL_IN_PROGRESS) error = 0;
    if (error)
      s.how = "error of the call";
    else
      error = wait_done(&w, b);
    if (!error && !atomic_load(&w.is_aborting)) s.operations++;
  }
  double noticed = box_clock_s();
  s.noticed_s = noticed - atomic_load(&w.began_s);
  atomic_store(&w.is_over, true);
  snprintf(last_error, sizeof last_error, "%s", box_nccl_last_error(NULL));
  pthread_join(thread, NULL);
  if (w.abort_result == NOT_ABORTED) {
    w.abort_result = box_nccl()->CommAbort(comm);
    w.aborted_s = box_clock_s();
  } else {
    s.how = "no error: watchdog's abort";
  }
  box_stream_wait(b->stream);
  s.abort_result = w.abort_result;
  s.abort_s = w.aborted_s - noticed;
  s.drained_s = box_clock_s() - w.aborted_s;
  s.error = box_nccl()->GetErrorString(error);
  s.last_error = last_error;
  box_report_survivor(op->options, &s);
  return BOX_EXIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events of a CUDA device that is played by threads: a stream is a queue with a thread of its
 * own, which runs what can take long (kernels, large copies, waiting); what is short runs in the caller where
 * nothing is queued before it. Any thread. */
#ifndef HARP_BOX_STREAM_H
#define HARP_BOX_STREAM_H

#include "base/base.h"

struct box_stream;
struct box_event;

/* One thing to do on a stream. `run` gets `word`, and may give back memory that it points to. */
struct box_task {
  void (*run)(void *word);
  void *word;
  bool is_long; /* always for the stream's thread */
};

struct box_stream *box_stream_create(int device);

/* Lets it end when all it has to do is done. */
void box_stream_destroy(struct box_stream *stream);

void box_stream_push(struct box_stream *stream, struct box_task task);
void box_stream_wait(struct box_stream *stream);
bool box_stream_is_idle(struct box_stream *stream);
int box_stream_device(const struct box_stream *stream);
uint64_t box_stream_id(const struct box_stream *stream);

/* Waits for all streams of the process. */
void box_stream_wait_all(void);

/* Returns the device of the stream whose thread this is, or -1. */
int box_stream_own_device(void);

struct box_event *box_event_create(void);
void box_event_destroy(struct box_event *event);

/* The event happens when the stream comes to this point. Replaces what was recorded before. */
void box_event_record(struct box_event *event, struct box_stream *stream);

/* An event that happens when the returned task runs: to be pushed, or run by another task. */
struct box_task box_event_task(struct box_event *event);

bool box_event_has_happened(struct box_event *event);
void box_event_wait(struct box_event *event);

/* What is pushed after this waits for what the event has recorded now. */
void box_event_hold(struct box_event *event, struct box_stream *stream);

/* Returns the milliseconds between two events; negative if one has not happened. */
double box_event_elapsed_ms(struct box_event *from, struct box_event *to);

#endif

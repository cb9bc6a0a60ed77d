/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include "log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct item {
  struct box_task task;
  struct item *next;
};

struct box_stream {
  pthread_mutex_t lock;
  pthread_cond_t work, idle;
  struct item *first, *last;
  bool is_busy, has_thread, is_dying;
  atomic_int holders; /* its user, its thread, and a thread that waits for all streams */
  int device;
  uint64_t id;
  struct box_stream *next; /* in the list of all */
};

/* A point on a stream that may have been reached. The event and each waiting task hold it. */
struct mark {
  atomic_int holders;
  atomic_bool happened;
  struct timespec at;
};

struct box_event {
  pthread_mutex_t lock;
  struct mark *mark;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct box_stream *all;
static uint64_t last_id;
static pthread_mutex_t mark_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mark_cond = PTHREAD_COND_INITIALIZER;
static _Thread_local int own_device = -1;

int box_stream_own_device(void) {
  return own_device;
}

/* ---- streams ---- */

struct box_stream *box_stream_create(int device) {
  struct box_stream *s = box_new(sizeof *s);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->idle, NULL);
  s->device = device;
  atomic_init(&s->holders, 1);
  pthread_mutex_lock(&list_lock);
  s->id = ++last_id;
  s->next = all;
  all = s;
  pthread_mutex_unlock(&list_lock);
  return s;
}

static void let_go_of_stream(struct box_stream *s) {
  if (atomic_fetch_sub(&s->holders, 1) != 1) return;
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->idle);
  free(s);
}

static void run_first(struct box_stream *s) {
  struct item *item = s->first;
  s->first = item->next;
  s->is_busy = true;
  pthread_mutex_unlock(&s->lock);
  item->task.run(item->task.word);
  free(item);
  pthread_mutex_lock(&s->lock);
  s->is_busy = false;
  if (!s->first) pthread_cond_broadcast(&s->idle);
}

static void *stream_main(void *word) {
  struct box_stream *s = word;
  own_device = s->device;
  pthread_setname_np(pthread_self(), "gpu-stream");
  pthread_mutex_lock(&s->lock);
  while (s->first || !s->is_dying) {
    if (s->first)
      run_first(s);
    else
      pthread_cond_wait(&s->work, &s->lock);
  }
  pthread_mutex_unlock(&s->lock);
  let_go_of_stream(s);
  return NULL;
}

static void start_thread(struct box_stream *s) {
  pthread_t thread;
  atomic_fetch_add(&s->holders, 1);
  if (pthread_create(&thread, NULL, stream_main, s)) box_die("a stream's thread can't be started");
  pthread_detach(thread);
  s->has_thread = true;
}

void box_stream_push(struct box_stream *s, struct box_task task) {
  pthread_mutex_lock(&s->lock);
  if (!task.is_long && !s->first && !s->is_busy) {
    task.run(task.word);
  } else {
    struct item *item = box_new(sizeof *item);
    item->task = task;
    if (s->first)
      s->last->next = item;
    else
      s->first = item;
    s->last = item;
    if (!s->has_thread) start_thread(s);
    pthread_cond_signal(&s->work);
  }
  pthread_mutex_unlock(&s->lock);
}

void box_stream_wait(struct box_stream *s) {
  pthread_mutex_lock(&s->lock);
  while (s->first || s->is_busy) pthread_cond_wait(&s->idle, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

bool box_stream_is_idle(struct box_stream *s) {
  pthread_mutex_lock(&s->lock);
  bool idle = !s->first && !s->is_busy;
  pthread_mutex_unlock(&s->lock);
  return idle;
}

void box_stream_destroy(struct box_stream *s) {
  pthread_mutex_lock(&list_lock);
  struct box_stream **at = &all;
  while (*at && *at != s) at = &(*at)->next;
  if (*at) *at = s->next;
  pthread_mutex_unlock(&list_lock);
  pthread_mutex_lock(&s->lock);
  s->is_dying = true;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  let_go_of_stream(s);
}

/* The list is copied: while this waits for a kernel, the proxy that the kernel waits for may create a
 * stream. */
void box_stream_wait_all(void) {
  pthread_mutex_lock(&list_lock);
  size_t count = 0;
  for (struct box_stream *s = all; s; s = s->next) count++;
  struct box_stream **copied = box_new(count * sizeof *copied);
  count = 0;
  for (struct box_stream *s = all; s; s = s->next) {
    atomic_fetch_add(&s->holders, 1); /* another thread may destroy it in the meantime */
    copied[count++] = s;
  }
  pthread_mutex_unlock(&list_lock);
  for (size_t i = 0; i < count; i++) {
    box_stream_wait(copied[i]);
    let_go_of_stream(copied[i]);
  }
  free(copied);
}

int box_stream_device(const struct box_stream *s) {
  return s->device;
}
uint64_t box_stream_id(const struct box_stream *s) {
  return s->id;
}

/* ---- events ---- */

static struct mark *hold(struct mark *m) {
  if (m) atomic_fetch_add(&m->holders, 1);
  return m;
}

static void let_go(struct mark *m) {
  if (m && atomic_fetch_sub(&m->holders, 1) == 1) free(m);
}

static void mark_happens(void *word) {
  struct mark *m = word;
  clock_gettime(CLOCK_MONOTONIC, &m->at);
  pthread_mutex_lock(&mark_lock);
  atomic_store(&m->happened, true);
  pthread_cond_broadcast(&mark_cond);
  pthread_mutex_unlock(&mark_lock);
  let_go(m);
}

static void wait_for_mark(void *word) {
  struct mark *m = word;
  pthread_mutex_lock(&mark_lock);
  while (!atomic_load(&m->happened)) pthread_cond_wait(&mark_cond, &mark_lock);
  pthread_mutex_unlock(&mark_lock);
  let_go(m);
}

static struct mark *mark_of(struct box_event *event) {
  pthread_mutex_lock(&event->lock);
  struct mark *m = hold(event->mark);
  pthread_mutex_unlock(&event->lock);
  return m;
}

struct box_event *box_event_create(void) {
  struct box_event *event = box_new(sizeof *event);
  pthread_mutex_init(&event->lock, NULL);
  return event;
}

void box_event_destroy(struct box_event *event) {
  let_go(event->mark);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

struct box_task box_event_task(struct box_event *event) {
  struct mark *m = box_new(sizeof *m);
  atomic_init(&m->holders, 2); /* the event and the task */
  pthread_mutex_lock(&event->lock);
  struct mark *before = event->mark;
  event->mark = m;
  pthread_mutex_unlock(&event->lock);
  let_go(before);
  return (struct box_task){.run = mark_happens, .word = m};
}

void box_event_record(struct box_event *event, struct box_stream *stream) {
  box_stream_push(stream, box_event_task(event));
}

bool box_event_has_happened(struct box_event *event) {
  struct mark *m = mark_of(event);
  bool happened = !m || atomic_load(&m->happened);
  let_go(m);
  return happened;
}

void box_event_wait(struct box_event *event) {
  struct mark *m = mark_of(event);
  if (m) wait_for_mark(m);
}

void box_event_hold(struct box_event *event, struct box_stream *stream) {
  struct mark *m = mark_of(event);
  if (m && !atomic_load(&m->happened))
    box_stream_push(stream, (struct box_task){.run = wait_for_mark, .word = m, .is_long = true});
  else
    let_go(m);
}

double box_event_elapsed_ms(struct box_event *from, struct box_event *to) {
  struct mark *a = mark_of(from), *b = mark_of(to);
  double ms = -1;
  if (a && b && atomic_load(&a->happened) && atomic_load(&b->happened))
    ms = (double)(b->at.tv_sec - a->at.tv_sec) * 1e3 + (double)(b->at.tv_nsec - a->at.tv_nsec) / 1e6;
  let_go(a);
  let_go(b);
  return ms;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* LL and LL128: lines that carry their own flags. */
#include "layout.h"
#include "slots.h"

#include <string.h>

enum {
  LL_LINE_BYTES = 16, /* two halves, each 4 bytes of data and 4 of flag */
  LL_DATA_BYTES = 8,
  LL_BATCH_LINES = 256,  /* worked on at a time */
  WIDE_LINE_BYTES = 128, /* the bytes of a line of LL128 */
  WIDE_DATA_BYTES = 120,
  WIDE_BATCH_LINES = 32,
  WIDE_GROUP_LINES = 16, /* a message is a whole number of these */
  BATCH_WORDS = 480
};

/* What differs between the two. */
struct kind {
  bool is_wide;
  int64_t line_bytes, data_bytes, batch_lines;
};
static const struct kind ll = {false, LL_LINE_BYTES, LL_DATA_BYTES, LL_BATCH_LINES};
static const struct kind ll128 = {true, WIDE_LINE_BYTES, WIDE_DATA_BYTES, WIDE_BATCH_LINES};

static uint64_t *line_at(const struct box_pipe *p, const struct kind *kind, int64_t line) {
  int64_t offset = (int64_t)(p->step % BOX_STEPS) * p->stride + line * kind->line_bytes;
  return (uint64_t *)(void *)(p->buffer + offset);
}

/* Before the flags of LL wrap around, all of a slot is sent, so that no old flag can be taken for a new
 * one. */
static bool is_cleaning(const struct box_pipe *p) {
  const uint64_t last = 0x7ffffff8;
  return (p->step & last) == last;
}

static bool ll_has_landed(const struct box_wait *wait) {
  const uint64_t *line = wait->at;
  return __atomic_load_n(line, __ATOMIC_ACQUIRE) >> 32 == wait->value &&
         __atomic_load_n(line + 1, __ATOMIC_ACQUIRE) >> 32 == wait->value;
}

static bool wide_has_landed(const struct box_wait *wait) {
  return __atomic_load_n((const uint64_t *)wait->at, __ATOMIC_ACQUIRE) == wait->value;
}

static void receive_ll(struct box_slots *s, const struct box_pipe *p, int64_t line, int64_t count,
                       uint64_t *out) {
  struct box_wait wait = {.is_over = ll_has_landed, .value = (uint32_t)(p->step + 1)};
  const uint64_t *from = line_at(p, &ll, line);
  for (int64_t i = 0; i < count; i++, from += 2) {
    wait.at = from;
    box_fibers_wait(&s->channel->kernel->fibers, &wait);
    out[i] = (uint32_t)from[0] | from[1] << 32;
  }
}

/* A GPU reads a line of LL128 as a whole. A CPU does not, and the kernel's copy into a slot may show a flag
 * before the data: so this waits until the proxy has tested the receive. */
static void receive_wide(struct box_slots *s, const struct box_pipe *p, int64_t line, int64_t count,
                         uint64_t *out) {
  struct box_wait wait = {.is_over = wide_has_landed, .value = p->step + 1};
  const uint64_t *from = line_at(p, &ll128, line);
  if (p->fifo) box_slots_wait(s, p->tail, p->step + 1);
  for (int64_t i = 0; i < count; i++, from += WIDE_LINE_BYTES / 8, out += WIDE_DATA_BYTES / 8) {
    wait.at = from + WIDE_DATA_BYTES / 8;
    box_fibers_wait(&s->channel->kernel->fibers, &wait);
    memcpy(out, from, WIDE_DATA_BYTES);
  }
}

static void send_lines(const struct kind *kind, const struct box_pipe *p, int64_t line, int64_t count,
                       const uint64_t *in) {
  uint64_t *to = line_at(p, kind, line), flag = p->step + 1;
  for (int64_t i = 0; i < count; i++) {
    if (kind->is_wide) {
      memcpy(to, in, WIDE_DATA_BYTES);
      __atomic_store_n(to + WIDE_DATA_BYTES / 8, flag, __ATOMIC_RELEASE);
      to += WIDE_LINE_BYTES / 8;
      in += WIDE_DATA_BYTES / 8;
    } else {
      __atomic_store_n(to, flag << 32 | (uint32_t)in[i], __ATOMIC_RELEASE);
      __atomic_store_n(to + 1, flag << 32 | in[i] >> 32, __ATOMIC_RELEASE);
      to += LL_LINE_BYTES / 8;
    }
  }
}

/* Receives, reduces and sends the lines of one batch. */
static void do_batch(struct box_slots *s, const struct kind *kind, int in_count, int out_count,
                     struct box_step step, int64_t line, int64_t count, int64_t bytes) {
  uint64_t received[BOX_PEERS_MAX][BATCH_WORDS], result[BATCH_WORDS];
  int64_t offset = line * kind->data_bytes;
  int64_t length = HARP_MAX(HARP_MIN(count * kind->data_bytes, bytes - offset), 0);
  struct box_spans spans = {.target = {(char *)result}, .target_count = 1};
  if (step.source && length) spans.source[spans.source_count++] = step.source + offset;
  for (int i = 0; i < in_count; i++) {
    (kind->is_wide ? receive_wide : receive_ll)(s, &s->in[i], line, count, received[i]);
    spans.source[spans.source_count++] = (const char *)received[i];
  }
  box_slots_combine(s, &spans, step, length / (int64_t)box_func_element_bytes(s->func));
  if (step.target && length) memcpy(step.target + offset, result, (size_t)length);
  for (int i = 0; i < out_count; i++) send_lines(kind, &s->out[i], line, count, result);
}

static void clean(const struct box_pipe *p, int64_t line, int64_t capacity) {
  static const uint64_t nothing[1];
  for (; line < capacity; line++) send_lines(&ll, p, line, 1, nothing);
}

void box_lines_do(struct box_slots *s, int in_count, int out_count, struct box_step step, int64_t elements) {
  const struct kind *kind = s->protocol == BOX_LL128 ? &ll128 : &ll;
  int64_t bytes = elements * (int64_t)box_func_element_bytes(s->func);
  int64_t lines = (bytes + kind->data_bytes - 1) / kind->data_bytes;
  if (kind->is_wide) lines = (lines + WIDE_GROUP_LINES - 1) / WIDE_GROUP_LINES * WIDE_GROUP_LINES;
  for (int i = 0; i < out_count; i++) {
    struct box_pipe *p = &s->out[i];
    box_slots_wait(s, p->head, p->step + 1 - BOX_STEPS);
    int64_t sent = !kind->is_wide && is_cleaning(p) ? p->stride / kind->line_bytes : lines;
    box_slots_set_size(p, sent * kind->line_bytes);
  }
  for (int64_t line = 0; line < lines; line += kind->batch_lines)
    do_batch(s, kind, in_count, out_count, step, line, HARP_MIN(kind->batch_lines, lines - line), bytes);
  for (int i = 0; i < in_count; i++) {
    s->in[i].step++;
    __atomic_store_n(s->in[i].head, s->in[i].step, __ATOMIC_RELEASE);
  }
  for (int i = 0; i < out_count; i++) {
    struct box_pipe *p = &s->out[i];
    if (!kind->is_wide && is_cleaning(p)) clean(p, lines, p->stride / kind->line_bytes);
    p->step++;
    if (kind->is_wide) __atomic_store_n(p->tail, p->step, __ATOMIC_RELEASE);
  }
}

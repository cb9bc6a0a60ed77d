/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/script.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/acks.h"
#include "lib/bring_up.h"
#include "proto/session.h"

enum {
  FIRST_LINE = 0xFFFFFF80, /* scripts cross the wrap of every number */
  FIRST_MESSAGE = 0xFFFFFFFE,
  FIRST_NUMBER = 0xFFFFFFFD,
  OUT_MAX = 512,
  SENT_MAX = 4096,
  STEPS_MAX = 100000,
  BUFFER_BYTES = 32 << 20,
};

struct out {
  bool is_ack;
  struct harp_tx_run run;
  struct harp_packet ack;
  uint32_t delivered; /* at the receiver when it was sent */
  harp_ns at;
};

struct script {
  const char *file;
  unsigned line_number;
  char line[512];
  bool failed, is_sender;
  harp_ns now, deadline_ns; /* the clock and the deadline of the sender; 0 when something was fed to it */
  struct harp_sender *sender;
  struct harp_tx_stream *tx;
  struct harp_receiver *receiver;
  struct harp_rx_stream *rx;
  struct harp_counters counters;
  struct out out[OUT_MAX];
  uint32_t out_head, out_tail;
  harp_ns sent_ns[HARP_PATHS_MAX][SENT_MAX]; /* the time when each packet number was sent, for echoes */
  uint32_t done, done_bytes;
  uint8_t *buffer, *staging;
};

static bool fail(struct script *s, const char *format, ...) HARP_PRINTF(2, 3);
static bool fail(struct script *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s:%u: at %.3f us: ", s->file, s->line_number, (double)(s->now - HARP_MS(1)) / 1000);
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n    %s\n", s->line);
  va_end(args);
  s->failed = true;
  return false;
}

/* ---- reading a line ---- */

/* Finds `key=` in the line and returns what follows up to a blank, or NULL. */
static const char *value_of(const struct script *s, const char *key, char *text, size_t bytes) {
  size_t n = strlen(key);
  for (const char *at = s->line; (at = strstr(at, key)); at += n) {
    if (at == s->line || at[-1] != ' ' || at[n] != '=') continue;
    size_t length = strcspn(at + n + 1, " ");
    if (length >= bytes) length = bytes - 1;
    memcpy(text, at + n + 1, length);
    text[length] = 0;
    return text;
  }
  return NULL;
}

static bool has_word(const struct script *s, const char *word) {
  size_t n = strlen(word);
  for (const char *at = s->line; (at = strstr(at, word)); at += n) {
    if (at != s->line && at[-1] == ' ' && (at[n] == ' ' || !at[n])) return true;
  }
  return false;
}

static uint32_t number_of(const struct script *s, const char *key, uint32_t otherwise) {
  char text[64];
  const char *v = value_of(s, key, text, sizeof text);
  return v ? (uint32_t)strtoul(v, NULL, 0) : otherwise;
}

/* Reads a time with its unit; returns HARP_NEVER when there is none. */
static harp_ns time_of(const char *text) {
  char *unit;
  double value = strtod(text, &unit);
  double scale = !strncmp(unit, "us", 2) ? 1e3 : !strncmp(unit, "ms", 2) ? 1e6 : *unit == 's' ? 1e9 : 0;
  if (unit == text || scale == 0) return HARP_NEVER;
  return (harp_ns)(value * scale + 0.5);
}

/* Reads "a-b,c-d" or "a+b,c+d" into pairs; returns how many. */
static uint32_t pairs_of(const char *text, uint32_t pairs[][2], uint32_t max) {
  uint32_t n = 0;
  while (text && *text && n < max) {
    char *end;
    pairs[n][0] = (uint32_t)strtoul(text, &end, 0);
    if (*end != '-' && *end != '+') break;
    pairs[n++][1] = (uint32_t)strtoul(end + 1, &end, 0);
    text = *end == ',' ? end + 1 : NULL;
  }
  return n;
}

static enum harp_drop drop_of(const struct script *s) {
  char text[64];
  if (!value_of(s, "drop", text, sizeof text)) return HARP_DROP_NONE;
  for (unsigned i = 0; i < HARP_DROP_COUNT; i++) {
    if (!strcasecmp(text, harp_drop_name((enum harp_drop)i))) return (enum harp_drop)i;
  }
  return HARP_DROP_COUNT;
}

/* ---- the side under test ---- */

static struct out *new_out(struct script *s) {
  if (s->out_tail - s->out_head == OUT_MAX) {
    fail(s, "more was sent than a script can hold");
    s->out_head++;
  }
  struct out *o = &s->out[s->out_tail++ % OUT_MAX];
  memset(o, 0, sizeof *o);
  o->at = s->now;
  return o;
}

static void pump_sender(struct script *s) {
  struct harp_tx_choice choice;
  void *cookie;
  harp_sender_on_timeout(s->sender, s->now);
  while (harp_tx_stream_poll_done(s->tx, &cookie)) s->done++;
  while (!s->failed && (choice = harp_sender_choose(s->sender, s->now)).kind != HARP_TX_NOTHING) {
    struct out *o = new_out(s);
    harp_sender_take(s->sender, &choice, HARP_BURST_MAX_PACKETS, &o->run, s->now);
    for (uint32_t i = 0; i < o->run.count; i++)
      s->sent_ns[choice.path][(uint32_t)(o->run.number + i - FIRST_NUMBER) % SENT_MAX] = s->now;
  }
  s->deadline_ns = choice.deadline_ns;
  harp_sender_check(s->sender);
}

static void pump_receiver(struct script *s) {
  void *cookie;
  uint64_t number;
  uint32_t bytes;
  struct harp_packet ack;
  while (harp_rx_stream_poll_done(s->rx, &cookie, &bytes)) s->done++, s->done_bytes = bytes;
  while (poll_ack(s->receiver, &ack, &number, s->now)) {
    struct out *o = new_out(s);
    o->is_ack = true;
    o->ack = ack;
    o->delivered = s->rx->delivered;
  }
  harp_receiver_check(s->receiver);
}

static void pump(struct script *s) {
  if (s->is_sender)
    pump_sender(s);
  else
    pump_receiver(s);
}

/* Moves to `until`, running what falls due on the way; stops early at the first output if requested. */
static void advance(struct script *s, harp_ns until, bool to_output) {
  for (unsigned steps = 0; !s->failed; steps++) {
    if (to_output && s->out_head != s->out_tail) return;
    harp_ns at = s->is_sender ? s->deadline_ns : harp_receiver_deadline_ns(s->receiver, 0);
    if (at > until) break;
    if (steps > STEPS_MAX) {
      fail(s, "time stands still");
      return;
    }
    s->now = HARP_MAX(s->now, at);
    pump(s);
  }
  s->now = HARP_MAX(s->now, until);
}

/* ---- expectations ---- */

static bool expect_number(struct script *s, const char *key, uint32_t is) {
  uint32_t wanted = number_of(s, key, is);
  return wanted == is || fail(s, "%s is %u, not %u", key, is, wanted);
}

static bool expect_yes(struct script *s, const char *key, bool is) {
  char text[16];
  if (!value_of(s, key, text, sizeof text)) return true;
  return !strcmp(text, is ? "yes" : "no") || fail(s, "%s is %s", key, is ? "yes" : "no");
}

static bool expect_pairs(struct script *s, const char *key, uint32_t have[][2], uint32_t count,
                         char between) {
  char text[256], is[256] = "";
  if (!value_of(s, key, text, sizeof text)) return true;
  for (uint32_t i = 0; i < count; i++) {
    size_t n = strlen(is);
    snprintf(is + n, sizeof is - n, "%s%u%c%u", i ? "," : "", have[i][0], between, have[i][1]);
  }
  return !strcmp(text, is) || fail(s, "%s is %s", key, is);
}

static bool expect_ack(struct script *s, const struct out *o) {
  const struct harp_packet *a = &o->ack;
  char text[32];
  if (value_of(s, "posted", text, sizeof text) && !a->ack.credit_count)
    return fail(s, "no credit was announced");
  uint32_t ranges[HARP_RANGES_MAX][2];
  for (uint32_t i = 0; i < a->ack.range_count; i++) {
    ranges[i][0] = a->ack.ranges[i].begin - FIRST_NUMBER;
    ranges[i][1] = a->ack.ranges[i].end - FIRST_NUMBER;
  }
  return expect_number(s, "path", a->path) && expect_number(s, "ce", a->ack.ce_bytes) &&
         expect_pairs(s, "ranges", ranges, a->ack.range_count, '-') &&
         expect_number(s, "delivered", o->delivered - FIRST_LINE) &&
         (!a->ack.credit_count || expect_number(s, "posted", a->ack.credits[0].posted - FIRST_MESSAGE));
}

static bool expect_run(struct script *s, const struct harp_tx_run *r) {
  uint32_t bytes = (r->count - 1) * r->lines_per_packet * HARP_LINE_BYTES + r->last_bytes;
  bool ok = expect_number(s, "path", r->path) &&
            expect_number(s, "number", (uint32_t)r->number - FIRST_NUMBER) &&
            expect_number(s, "count", r->count) && expect_number(s, "bytes", bytes) &&
            expect_yes(s, "soon", r->flags & HARP_FLAG_ACK_SOON) && expect_yes(s, "ect", r->ect) &&
            expect_yes(s, "settled", r->flags & HARP_FLAG_SETTLED) &&
            expect_yes(s, "credit", r->flags & HARP_FLAG_CREDIT);
  if (!ok || r->type == HARP_PACKET_PROBE) return ok;
  return expect_number(s, "message", r->message - FIRST_MESSAGE) &&
         expect_number(s, "line", r->line - FIRST_LINE) && expect_number(s, "offset", r->offset) &&
         expect_number(s, "size", r->size) && expect_number(s, "lines", r->lines_per_packet);
}

static const char *kind_of(const struct out *o) {
  return o->is_ack ? "ack" : o->run.type == HARP_PACKET_PROBE ? "probe" : "data";
}

static bool on_expect(struct script *s, const char *what) {
  if (s->out_head == s->out_tail) return fail(s, "nothing was sent");
  const struct out *o = &s->out[s->out_head++ % OUT_MAX];
  const char *kind = kind_of(o);
  if (strncmp(what, kind, strlen(kind))) return fail(s, "%s was sent", kind);
  return o->is_ack ? expect_ack(s, o) : expect_run(s, &o->run);
}

static bool on_path(struct script *s, unsigned index) {
  char text[16];
  if (!s->is_sender || index >= s->sender->path_count) return fail(s, "no such path");
  const struct harp_path *p = &s->sender->paths[index];
  static const char *const states[] = {"new", "up", "down"};
  if (value_of(s, "state", text, sizeof text) && strcmp(text, states[p->state]))
    return fail(s, "the path is not %s", text);
  return expect_number(s, "lines", p->size.lines) && expect_number(s, "inflight", p->inflight_bytes) &&
         expect_number(s, "pto", p->probe.pto_count) && expect_yes(s, "withheld", p->ecn.is_withheld) &&
         expect_number(s, "ce", (uint32_t)p->ecn.ce_bytes) &&
         expect_yes(s, "stalled", s->sender->stall.since_ns != 0);
}

/* ---- injections ---- */

static bool on_ack(struct script *s) {
  char text[256];
  uint32_t pairs[HARP_RANGES_MAX][2], path = number_of(s, "path", 0);
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = (uint8_t)path};
  p.ack.window_bytes = number_of(s, "window", HARP_WINDOW_MAX_BYTES);
  p.ack.credit_count = value_of(s, "posted", text, sizeof text) != NULL;
  p.ack.credits[0] =
      (struct harp_credit){number_of(s, "stream", 0), FIRST_MESSAGE + number_of(s, "posted", 0)};
  p.ack.range_count = pairs_of(value_of(s, "ranges", text, sizeof text), pairs, HARP_RANGES_MAX);
  for (uint32_t i = 0; i < p.ack.range_count; i++) {
    p.ack.ranges[i].begin = FIRST_NUMBER + pairs[i][0];
    p.ack.ranges[i].end = FIRST_NUMBER + pairs[i][1];
  }
  p.ack.ce_bytes = number_of(s, "ce", 0);
  if (p.ack.range_count) p.ack.echo_time = harp_ticks_from_ns(s->sent_ns[path][(pairs[0][1] - 1) % SENT_MAX]);
  p.ack.time = harp_ticks_from_ns(s->now); /* all of the round trip is the way of the packet */
  if (value_of(s, "delay", text, sizeof text)) p.ack.echo_delay = harp_ticks_from_ns(time_of(text));
  p.number = (uint32_t)s->sender->paths[path].ack_next;
  enum harp_drop wanted = drop_of(s);
  enum harp_drop drop = harp_sender_on_ack(s->sender, &p, harp_sender_ack_number(s->sender, &p), s->now);
  if (drop != wanted) return fail(s, "dropped for %s", harp_drop_name(drop));
  return expect_number(s, "delivered", s->tx->delivered - FIRST_LINE);
}

static bool expect_placement(struct script *s, const char *key, const struct harp_placement *place) {
  uint32_t runs[HARP_RUNS_MAX][2];
  for (uint32_t i = 0; i < place->count; i++) {
    runs[i][0] = place->runs[i].from;
    runs[i][1] = place->runs[i].bytes;
  }
  return expect_pairs(s, key, runs, place->count, '+');
}

static bool on_packet(struct script *s, enum harp_packet_type type) {
  struct harp_placement place;
  struct harp_packet p = {.type = type, .path = (uint8_t)number_of(s, "path", 0)};
  p.flags = has_word(s, "soon") ? HARP_FLAG_ACK_SOON : 0;
  if (has_word(s, "credit")) p.flags |= HARP_FLAG_CREDIT;
  if (has_word(s, "settled")) p.flags |= HARP_FLAG_SETTLED;
  p.ce = has_word(s, "ce");
  p.data.stream = (uint16_t)number_of(s, "stream", 0);
  p.number = FIRST_NUMBER + number_of(s, "number", 0);
  p.data.time = harp_ticks_from_ns(s->now);
  p.data.message = FIRST_MESSAGE + number_of(s, "message", 0);
  p.data.line = FIRST_LINE + number_of(s, "line", 0);
  p.data.offset = number_of(s, "offset", 0);
  p.data.length = number_of(s, "length", 0);
  p.data.size = number_of(s, "size", 0);
  p.data.payload = s->buffer;
  enum harp_drop wanted = drop_of(s);
  enum harp_drop drop =
      harp_receiver_on_packet(s->receiver, &p, harp_receiver_number(s->receiver, &p), &place, s->now);
  if (drop != wanted) return fail(s, "dropped for %s", harp_drop_name(drop));
  return expect_placement(s, "place", &place);
}

static bool on_post(struct script *s, char *sizes, bool is_awaited) {
  for (char *end; *sizes; sizes = end) {
    uint32_t bytes = (uint32_t)strtoul(sizes, &end, 0);
    if (end == sizes) break;
    if (harp_sender_post(s->sender, s->tx, s->buffer, bytes, NULL, is_awaited, s->now))
      return fail(s, "the send was refused");
  }
  return true;
}

static bool on_recv(struct script *s, char *sizes) {
  for (char *end; *sizes; sizes = end) {
    struct harp_placement place;
    const uint8_t *early;
    uint32_t capacity = (uint32_t)strtoul(sizes, &end, 0);
    if (end == sizes) break;
    if (harp_receiver_post(s->receiver, s->rx, s->buffer, capacity, false, NULL, &place, &early, s->now))
      return fail(s, "the receive was refused");
    if (!expect_placement(s, "early", &place)) return false;
  }
  return true;
}

/* ---- running ---- */

static bool start(struct script *s) {
  char text[32] = "target";
  unsigned paths = number_of(s, "paths", 1);
  bool up = !has_word(s, "new");
  s->now = HARP_MS(1);
  s->is_sender = !strncmp(s->line, "sender", 6);
  if (paths < 1 || paths > HARP_PATHS_MAX) return fail(s, "paths=");
  if (!s->is_sender && strncmp(s->line, "receiver", 8))
    return fail(s, "a script starts with sender or receiver");
  if (s->is_sender) {
    struct harp_tx_stream_config stream = {.first_line = FIRST_LINE, .first_message = FIRST_MESSAGE};
    struct harp_sender_config c = {.stream_max = 1,
                                   .first_number = up ? FIRST_NUMBER - 1 : FIRST_NUMBER,
                                   .path_count = paths,
                                   .window_bytes = 4 << 20};
    for (unsigned i = 0; i < paths; i++)
      c.paths[i] = (struct harp_path_config){.lines_max = number_of(s, "lines", HARP_PACKET_MIN_LINES),
                                             .ecn = has_word(s, "ecn"),
                                             .local_eni = (uint8_t)(i % 8),
                                             .remote_eni = (uint8_t)(i / 8)};
    value_of(s, "cc", text, sizeof text);
    if (!(c.cc = harp_cc_find(text))) return fail(s, "cc=");
    s->sender = malloc(harp_sender_bytes(&c));
    s->tx = malloc(sizeof *s->tx);
    harp_sender_init(s->sender, &c, NULL, &s->counters, s->now);
    harp_sender_open(s->sender, s->tx, &stream);
    if (up) bring_up(s->sender, s->now);
  } else {
    struct harp_receiver_config c = {.first_number = FIRST_NUMBER,
                                     .path_count = paths,
                                     .stream_max = 1,
                                     .window_bytes = number_of(s, "window", 4 << 20)};
    struct harp_rx_stream_config stream = {
        .first_line = FIRST_LINE, .first_message = FIRST_MESSAGE, .staging = s->staging};
    s->receiver = malloc(harp_receiver_bytes(&c));
    s->rx = malloc(sizeof *s->rx);
    harp_receiver_init(s->receiver, &c, NULL, &s->counters);
    harp_receiver_open(s->receiver, s->rx, &stream);
  }
  return true;
}

static bool act(struct script *s, char *words) {
  char *rest = words + strcspn(words, " ");
  if (!strncmp(words, "post", 4) && s->is_sender) return on_post(s, rest, true);
  if (!strncmp(words, "copy", 4) && s->is_sender) return on_post(s, rest, false);
  if (!strncmp(words, "ack", 3) && s->is_sender) return on_ack(s);
  if (!strncmp(words, "down", 4) && s->is_sender)
    return harp_sender_path_down(s->sender, number_of(s, "path", 0), s->now), true;
  if (!strncmp(words, "final", 5) && s->is_sender)
    return harp_tx_stream_on_delivered(s->tx, FIRST_LINE + number_of(s, "delivered", 0), s->now), true;
  if (!strncmp(words, "recv", 4) && !s->is_sender) return on_recv(s, rest);
  if (!strncmp(words, "data", 4) && !s->is_sender) return on_packet(s, HARP_PACKET_DATA);
  if (!strncmp(words, "probe", 5) && !s->is_sender) return on_packet(s, HARP_PACKET_PROBE);
  if (!strncmp(words, "nothing", 7) || !strncmp(words, "forget", 6)) return true;
  if (!strncmp(words, "path", 4)) return on_path(s, (unsigned)strtoul(rest, NULL, 0));
  if (!strncmp(words, "done", 4) || !strncmp(words, "received", 8)) {
    if (s->done != strtoul(rest, NULL, 0)) return fail(s, "%u messages are done", s->done);
    return expect_number(s, "bytes", s->done_bytes);
  }
  return fail(s, "no such command");
}

static bool run_line(struct script *s) {
  if (!s->sender && !s->receiver) return start(s);
  bool relative = s->line[0] == '+';
  char *words = s->line + strcspn(s->line, " ");
  harp_ns at = time_of(s->line + relative);
  if (at == HARP_NEVER || !*words) return fail(s, "a line starts with a time");
  at += relative ? s->now : HARP_MS(1);
  if (at < s->now) return fail(s, "time goes back");
  words += strspn(words, " ");
  bool is_expect = !strncmp(words, "expect ", 7);
  advance(s, at, is_expect);
  if (s->failed) return false;
  if (is_expect) return on_expect(s, words + 7);
  if (!strncmp(words, "forget", 6)) s->out_head = s->out_tail;
  if (s->out_head != s->out_tail)
    return fail(s, "unexpected: %s, sent at %.3f us", kind_of(&s->out[s->out_head % OUT_MAX]),
                (double)(s->out[s->out_head % OUT_MAX].at - HARP_MS(1)) / 1000);
  if (!act(s, words)) return false;
  pump(s);
  return !s->failed;
}

bool script_run(const char *file) {
  FILE *f = fopen(file, "r");
  struct script *s = calloc(1, sizeof *s);
  uint8_t *buffer = calloc(1, BUFFER_BYTES), *staging = calloc(1, HARP_STAGING_BYTES);
  if (!s || !buffer || !staging) abort();
  s->file = file;
  s->buffer = buffer;
  s->staging = staging;
  bool ok = f ? true : fail(s, "%s", strerror(errno));
  while (ok && fgets(s->line, sizeof s->line, f)) {
    s->line_number++;
    s->line[strcspn(s->line, "#\n")] = 0;
    for (size_t n = strlen(s->line); n && s->line[n - 1] == ' ';) s->line[--n] = 0;
    if (*s->line) ok = run_line(s);
  }
  if (ok && s->out_head != s->out_tail)
    ok = fail(s, "unexpected at the end: %s", kind_of(&s->out[s->out_head % OUT_MAX]));
  if (f) fclose(f);
  free(s->sender), free(s->tx), free(s->receiver), free(s->rx), free(s), free(buffer), free(staging);
  return ok;
}

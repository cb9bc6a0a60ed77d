/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/trace_text.h"

#include <stdio.h>
#include <string.h>

/* A text that is filled until it is full. */
struct filled {
  char *text;
  size_t length, bytes;
};

static void add(struct filled *to, const char *from, size_t length) {
  size_t room = to->bytes - 1 - to->length;
  length = HARP_MIN(length, room);
  memcpy(to->text + to->length, from, length);
  to->length += length;
  to->text[to->length] = 0;
}

static uint64_t field_of(const struct harp_trace_entry *e, const char *name, size_t length) {
  const struct {
    const char *name;
    uint64_t value;
  } fields[] = {{"path", e->path},     {"number", e->number}, {"count", e->count},
                {"stream", e->stream}, {"a", e->a},           {"b", e->b}};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(fields); i++)
    if (strlen(fields[i].name) == length && !memcmp(fields[i].name, name, length)) return fields[i].value;
  return 0;
}

/* Adds the word of this number out of "x|y|z}". Returns whether there is one. */
static bool add_word(struct filled *to, const char *words, uint64_t number) {
  for (; number; number--) {
    size_t length = strcspn(words, "|}");
    if (words[length] == '}') return false;
    words += length + 1;
  }
  add(to, words, strcspn(words, "|}"));
  return true;
}

/* Adds what stands for "{field}" or "{field:words}" at `at`; returns where it ends. */
static const char *add_field(struct filled *to, const char *at, const struct harp_trace_entry *e) {
  char digits[24];
  size_t length = strcspn(at + 1, ":}");
  uint64_t value = field_of(e, at + 1, length);
  const char *rest = at + 1 + length;
  if (*rest != ':' || !add_word(to, rest + 1, value))
    add(to, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value));
  return strchr(rest, '}') + 1;
}

size_t trace_text(const struct harp_trace_entry *e, char *text, size_t text_bytes) {
  static const char *const formats[] = {
#define X(name, part, format) format,
      HARP_EVENTS(X)
#undef X
  };
  char time[48];
  struct filled to = {text, 0, text_bytes};
  if (e->event >= HARP_EVENT_COUNT) {
    add(&to, "unknown event", strlen("unknown event"));
    return to.length;
  }
  add(&to, time,
      (size_t)snprintf(time, sizeof time, "[%9llu.%03llu us] ", (unsigned long long)(e->at_ns / 1000),
                       (unsigned long long)(e->at_ns % 1000)));
  for (const char *at = formats[e->event]; *at;) {
    size_t plain = strcspn(at, "{");
    add(&to, at, plain);
    at += plain;
    if (*at) at = add_field(&to, at, e);
  }
  return to.length;
}

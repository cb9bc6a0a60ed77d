/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/summary.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"
#include "proto/path_report.h"

enum {
  LINE_BYTES = 600, /* NCCL puts host, process and time before it, and cuts lines at 1024 */
  ITEM_BYTES = 64,
};

/* A line that is filled item by item. */
struct line {
  const struct harp_engine *engine;
  size_t length;
  char text[LINE_BYTES];
};

static void end_line(struct line *line) {
  if (line->length) HARP_INFO("%s: statistics:%s", line->engine->name, line->text);
  line->length = 0;
}

static void add_counter(struct line *line, const char *prefix, const char *name, uint64_t value) {
  char item[ITEM_BYTES];
  if (!value) return;
  size_t n = (size_t)snprintf(item, sizeof item, " %s%s %llu", prefix, name, (unsigned long long)value);
  if (line->length + n >= sizeof line->text) end_line(line);
  memcpy(line->text + line->length, item, n + 1);
  line->length += n;
}

void harp_summary_of_engine(const struct harp_engine *e) {
  struct line line = {.engine = e};
  uint64_t any = 0;
  for (unsigned i = 1; i < HARP_DROP_COUNT; i++) {
    add_counter(&line, "drop_", harp_drop_name((enum harp_drop)i), e->counters.drops[i]);
    any |= e->counters.drops[i];
  }
#define X(name, unit, text)                                                                                  \
  add_counter(&line, "", #name, e->counters.name);                                                           \
  any |= e->counters.name;
  HARP_COUNTERS(X)
#undef X
  end_line(&line);
  if (!any) HARP_INFO("%s: statistics: no traffic", e->name);
}

void harp_summary_of_peer(const struct harp_peer *peer) {
  uint64_t sent = 0, lost = 0, resent = 0, timeouts = 0, lost_by_eni[HARP_ENGINE_ENIS_MAX] = {0};
  for (unsigned i = 0; i < peer->path_count; i++) {
    struct harp_path_report p = harp_path_report_of(&peer->session, i);
    sent += p.sent_packets;
    lost += p.lost_packets;
    resent += p.resent_packets;
    timeouts += p.probe_timeouts;
    lost_by_eni[p.local_eni] += p.lost_packets;
  }
  uint64_t much = HARP_MAX(lost, resent);
  if (much < HARP_SUMMARY_MIN_PACKETS || much < sent / HARP_SUMMARY_PARTS) return;
  unsigned worst = 0;
  for (unsigned i = 1; i < peer->engine->eni_count; i++)
    if (lost_by_eni[i] > lost_by_eni[worst]) worst = i;
  HARP_INFO("%s: of %llu packets sent to %s %llu were lost and %llu sent again, with %llu probe timeouts; "
            "most, %llu, were lost on %s",
            peer->engine->name, (unsigned long long)sent, peer->name, (unsigned long long)lost,
            (unsigned long long)resent, (unsigned long long)timeouts, (unsigned long long)lost_by_eni[worst],
            peer->engine->enis[worst].ifname);
}

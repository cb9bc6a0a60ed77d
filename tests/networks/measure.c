/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "models/probe.h"

#define SAMPLE_MIN_NS HARP_US(20)
enum { SAMPLES_PER_RTT = 3, SAMPLE_ODD_NS = 777 /* no multiple of any period of the network */ };

/* The queues of a network, sampled in time. */
struct sampler {
  struct source source;
  struct network *network;
  harp_ns every_ns;
  double sum_ns;
  uint64_t count;
};

static void on_sample(struct source *source, harp_ns now) {
  struct sampler *s = HARP_CONTAINER_OF(source, struct sampler, source);
  struct network *n = s->network;
  for (unsigned i = 0; i < n->wire_count; i++) s->sum_ns += (double)wire_queue_ns(&n->wires[0][i], now);
  s->count += n->wire_count;
  agenda_set(&n->agenda, source, now + s->every_ns);
}

static void start_sampler(struct sampler *s, struct network *n) {
  *s = (struct sampler){.network = n};
  s->every_ns =
      HARP_MAX((harp_ns)(n->scenario.rtt_us * 1e3) / SAMPLES_PER_RTT, SAMPLE_MIN_NS) + SAMPLE_ODD_NS;
  source_init(&s->source, on_sample);
  agenda_set(&n->agenda, &s->source, n->agenda.now);
}

/* Sums of a network up to now. */
struct sums {
  uint64_t received[NETWORK_FLOWS_MAX], tcp[NETWORK_CUBICS_MAX];
  uint64_t packets, lost;
};

static void take_sums(const struct network *n, struct sums *s) {
  *s = (struct sums){.packets = 0};
  for (unsigned i = 0; i < n->flow_count; i++) {
    s->received[i] = flow_received_bytes(&n->flows[i]);
    s->packets += flow_packets(&n->flows[i]);
    s->lost += flow_lost_packets(&n->flows[i]);
  }
  for (unsigned i = 0; i < n->cubic_count; i++) s->tcp[i] = n->cubics[i].acked_bytes;
}

static double longest_queue_us(struct network *n) {
  uint64_t longest = 0;
  for (unsigned i = 0; i < n->wire_count; i++) longest = HARP_MAX(longest, n->wires[0][i].queue_max_ns);
  return (double)longest / 1e3;
}

static void forget_longest_queue(struct network *n) {
  for (unsigned i = 0; i < n->wire_count; i++) n->wires[0][i].queue_max_ns = 0;
}

static double lost_percent(const struct sums *from, const struct sums *to) {
  uint64_t packets = to->packets - from->packets;
  return packets ? 100.0 * (double)(to->lost - from->lost) / (double)packets : 0;
}

/* ---- the whole ---- */

static int by_number(const void *a, const void *b) {
  const uint32_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Returns the 99th percentile of the time of bulk messages as a multiple of the time that they would take if
 * the flows shared the rate equally and always had `depth` messages under way. */
static double late_messages(const struct network *n) {
  const struct scenario *s = &n->scenario;
  size_t count = 0, room = 1;
  for (unsigned i = 0; i < n->flow_count; i++) room += n->flows[i].traffic[0].took_count;
  uint32_t *all = malloc(room * sizeof all[0]);
  if (!all) abort();
  for (unsigned i = 0; i < n->flow_count; i++) {
    const struct traffic *t = &n->flows[i].traffic[0];
    for (uint32_t k = 0; k < t->took_count; k++) all[count++] = t->took_us[k];
  }
  qsort(all, count, sizeof all[0], by_number);
  double ideal_us = n->flow_count * s->streams * n->depth * n->message_bytes / n->capacity_bytes_ns / 1e3;
  double late = count ? all[count * 99 / 100] / ideal_us : 0;
  free(all);
  return late;
}

static void sum_steps(const struct network *n, struct measured *m) {
  uint64_t steps = 0, ns = 0;
  for (unsigned i = 0; i < n->flow_count; i++) {
    steps += n->flows[i].traffic[0].steps;
    ns += n->flows[i].traffic[0].steps_ns;
  }
  m->steps = (double)steps;
  m->step_ms = steps ? (double)ns / (double)steps / 1e6 : 0;
  double messages = n->flow_count * n->scenario.streams * n->flows[0].traffic[0].step_messages;
  double ideal_ms = messages * n->message_bytes / n->capacity_bytes_ns / 1e6;
  m->step_share = ideal_ms > 0 ? m->step_ms / ideal_ms : 0;
}

static double paths_in_use(const struct network *n) {
  unsigned used = 0;
  for (unsigned i = 0; i < n->flow_count; i++) {
    const struct flow *f = &n->flows[i];
    for (unsigned k = 0; k < f->path_count; k++) {
      struct harp_path_report r = probe_path(f->sender, f->receiver, f->path_count, k);
      used += !r.is_tcp && r.state == HARP_PATH_UP;
    }
  }
  return (double)used / n->flow_count;
}

static void measure_messages(struct network *n) {
  for (unsigned i = 0; i < n->flow_count; i++) n->flows[i].traffic[0].is_measured = true;
}

/* Returns what the worst of the flows from..to got, as a share of its fair share. */
static double least_share(const struct network *n, const struct sums *from, const struct sums *to,
                          unsigned first, unsigned end) {
  double fair = n->capacity_bytes_ns * (double)(n->end_ns - n->warm_ns) / n->flow_count, least = 0;
  for (unsigned i = first; i < end; i++) {
    double share = (double)(to->received[i] - from->received[i]) / fair;
    if (i == first || share < least) least = share;
  }
  return least;
}

static struct measured summarize(struct network *n, const struct sums *from, const struct sums *to,
                                 const struct sampler *sampler) {
  double sum = 0, squares = 0, tcp = 0, room = n->capacity_bytes_ns * (double)(n->end_ns - n->warm_ns);
  for (unsigned i = 0; i < n->flow_count; i++) {
    double bytes = (double)(to->received[i] - from->received[i]);
    sum += bytes;
    squares += bytes * bytes;
  }
  for (unsigned i = 0; i < n->cubic_count; i++) tcp += (double)(to->tcp[i] - from->tcp[i]);
  struct measured m = {.rate = sum / room,
                       .lost = lost_percent(from, to),
                       .jain = squares > 0 ? sum * sum / (n->flow_count * squares) : 0,
                       .queue_us = sampler->count ? sampler->sum_ns / (double)sampler->count / 1e3 : 0,
                       .queue_max_us = longest_queue_us(n),
                       .p99 = late_messages(n),
                       .tcp = tcp / room,
                       .honest = least_share(n, from, to, 1, n->flow_count),
                       .first = least_share(n, from, to, 0, 1),
                       .paths = paths_in_use(n),
                       .packets = (double)to->packets};
  sum_steps(n, &m);
  return m;
}

struct measured measure_network(const struct scenario *s) {
  static struct network n;
  static struct sums from, to;
  struct sampler sampler;
  clock_t begin = clock();
  network_init(&n, s);
  network_run(&n, n.warm_ns);
  take_sums(&n, &from);
  measure_messages(&n);
  forget_longest_queue(&n);
  start_sampler(&sampler, &n);
  network_run(&n, n.end_ns);
  take_sums(&n, &to);
  struct measured m = summarize(&n, &from, &to, &sampler);
  network_fini(&n);
  m.cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
  return m;
}

/* ---- medians ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The numbers of a measurement, in any order: a struct of doubles alone. */
union numbers {
  struct measured measured;
  double all[sizeof(struct measured) / sizeof(double)];
};

struct measured measured_median(const struct measured *of, unsigned count) {
  union numbers median;
  HARP_ASSERT(count && count <= MEASURED_SEEDS_MAX);
  for (unsigned k = 0; k < HARP_ARRAY_COUNT(median.all); k++) {
    double column[MEASURED_SEEDS_MAX];
    for (unsigned i = 0; i < count; i++) column[i] = ((union numbers){of[i]}).all[k];
    qsort(column, count, sizeof column[0], by_value);
    median.all[k] = column[count / 2];
  }
  median.measured.packets = median.measured.cpu_s = 0;
  for (unsigned i = 0; i < count; i++) {
    median.measured.packets += of[i].packets;
    median.measured.cpu_s += of[i].cpu_s;
  }
  return median.measured;
}

/* ---- in steps ---- */

enum { FLOWS_SHOWN = 4 };

static void print_step(struct network *n, const struct sums *from, const struct sums *to, double ns,
                       const struct sampler *sampler) {
  printf("%9.2f ms |", (double)(n->agenda.now - n->start_ns) / 1e6);
  for (unsigned i = 0; i < n->flow_count && i < FLOWS_SHOWN; i++)
    printf(" %8.1f", (double)(to->received[i] - from->received[i]) * 8e3 / ns);
  for (unsigned i = 0; i < n->cubic_count && i < FLOWS_SHOWN; i++)
    printf(" tcp %8.1f", (double)(to->tcp[i] - from->tcp[i]) * 8e3 / ns);
  printf(" Mbit/s | lost %.2f %% | queue %.0f us, at most %.0f |", lost_percent(from, to),
         sampler->count ? sampler->sum_ns / (double)sampler->count / 1e3 : 0, longest_queue_us(n));
  for (unsigned i = 0; i < n->flow_count && i < FLOWS_SHOWN; i++) {
    const struct flow *f = &n->flows[i];
    for (unsigned k = 0; k < f->path_count && k < FLOWS_SHOWN; k++) {
      struct harp_path_report r = probe_path(f->sender, f->receiver, f->path_count, k);
      printf(" %.1f KB rtt %.0f base %.0f us;", r.window_bytes / 1024.0, (double)r.rtt_ns / 1e3,
             (double)r.rtt_min_ns / 1e3);
    }
  }
  printf("\n");
  fflush(stdout);
}

void measure_print_steps(const struct scenario *s, unsigned steps) {
  static struct network n;
  static struct sums from, to;
  struct sampler sampler;
  network_init(&n, s);
  network_run(&n, 0);
  start_sampler(&sampler, &n);
  take_sums(&n, &from);
  for (unsigned i = 1; i <= steps; i++) {
    sampler.sum_ns = 0;
    sampler.count = 0;
    forget_longest_queue(&n);
    network_run(&n, n.end_ns * i / steps);
    take_sums(&n, &to);
    print_step(&n, &from, &to, (double)n.end_ns / steps, &sampler);
    from = to;
  }
  network_fini(&n);
}

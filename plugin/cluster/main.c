/* SPDX-License-Identifier: Apache-2.0 */
/* harp-simulate: a collective on a cluster in virtual time, with the unchanged core of the protocol, or with
 * TCP as NCCL's Socket uses it; docs/reference/simulate.md.
 *
 *   harp-simulate [key=value ...]   run one, print what is measured as a line of JSON
 *   harp-simulate --help            list the keys */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/collective.h"

struct run {
  struct agenda agenda;
  struct cluster_scenario scenario;
  struct fabric fabric;
  struct collective collective;
  struct source next; /* begins the next operation */
  unsigned begun, ended;
  harp_ns begun_ns, least_ns, most_ns, sum_ns; /* the times of the operations that count */
  struct fabric_sums before;                   /* the first that does */
  double jain; /* Jain's index of the rates of the connections, in the last operation */
};

static double jain_of(const struct run *r) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < r->collective.count; i++) {
    double rate = 1e9 / (double)(r->collective.edges[i].done_ns - r->begun_ns);
    sum += rate;
    squares += rate * rate;
  }
  return sum * sum / ((double)r->collective.count * squares);
}

static void on_next(struct source *source, harp_ns now) {
  struct run *r = HARP_CONTAINER_OF(source, struct run, next);
  if (r->begun == (r->scenario.operations > 1)) r->before = fabric_sums(&r->fabric);
  r->begun++;
  r->begun_ns = now;
  collective_begin(&r->collective, now);
}

static void on_done(struct collective *c, harp_ns now) {
  struct run *r = c->owner;
  harp_ns took_ns = now - r->begun_ns;
  r->ended++;
  if (r->ended > 1 || r->scenario.operations == 1) {
    r->sum_ns += took_ns;
    r->least_ns = r->least_ns ? HARP_MIN(r->least_ns, took_ns) : took_ns;
    r->most_ns = HARP_MAX(r->most_ns, took_ns);
  }
  r->jain = jain_of(r);
  if (r->ended < (unsigned)r->scenario.operations) agenda_set(&r->agenda, &r->next, now);
}

static void print_run(const struct run *r, double cpu_s) {
  const struct cluster_scenario *s = &r->scenario;
  unsigned counted = r->ended - (s->operations > 1 && r->ended);
  struct fabric_sums sums = fabric_sums(&r->fabric);
  uint64_t sent = sums.sent - r->before.sent, lost = sums.lost - r->before.lost;
  double mean_s = counted ? (double)r->sum_ns / counted / 1e9 : 0;
  double transfer_s = (double)r->collective.host_bytes * 8 / (s->rate * s->interfaces * 1e9);
  double latency_s = r->collective.steps * (double)fabric_way_ns(&r->fabric) / 1e9;
  double ideal_s = HARP_MAX(transfer_s, latency_s); /* slices of a step overlap the way of others */
  printf("{\"collective\": \"%s\", \"transport\": \"%s\", \"hosts\": %g, \"interfaces\": %g, "
         "\"rate_gbit_s\": %g, \"connections\": %zu, \"operations\": %u, \"unfinished\": %u, "
         "\"mean_ms\": %.3f, \"least_ms\": %.3f, \"most_ms\": %.3f, "
         "\"ideal_ms\": %.3f, \"slowdown\": %.3f, \"host_gbit_s\": %.2f, "
         "\"sent\": %llu, \"lost_percent\": %.3f, \"queue_max_us\": %.1f, "
         "\"jain\": %.3f, \"events\": %llu, \"cpu_s\": %.2f}\n",
         s->collective, s->transport, s->hosts, s->interfaces, s->rate, r->collective.count, counted,
         (unsigned)s->operations - r->ended, mean_s * 1e3, (double)r->least_ns / 1e6,
         (double)r->most_ns / 1e6, ideal_s * 1e3, counted ? mean_s / ideal_s : 0,
         counted ? (double)r->collective.host_bytes * 8 / mean_s / 1e9 : 0, (unsigned long long)sent,
         sent ? 100.0 * (double)lost / (double)sent : 0, sums.queue_max_us, r->jain,
         (unsigned long long)r->agenda.fired, cpu_s);
}

static void run(const struct cluster_scenario *s) {
  static struct run r;
  clock_t begin = clock();
  r.scenario = *s;
  agenda_init(&r.agenda, AGENDA_BEGIN_NS);
  fabric_init(&r.fabric, &r.agenda, &r.scenario);
  collective_init(&r.collective, &r.fabric);
  r.collective.owner = &r;
  r.collective.on_done = on_done;
  source_init(&r.next, on_next);
  agenda_set(&r.agenda, &r.next, r.agenda.now);
  harp_ns limit_ns = AGENDA_BEGIN_NS + (harp_ns)(s->limit_s * 1e9);
  while (r.ended < (unsigned)s->operations && r.agenda.now < limit_ns)
    agenda_run(&r.agenda, r.agenda.now + HARP_US(100));
  print_run(&r, (double)(clock() - begin) / CLOCKS_PER_SEC);
  collective_fini(&r.collective);
  fabric_fini(&r.fabric);
  agenda_fini(&r.agenda);
}

static int usage(const char *wrong) {
  if (wrong) fprintf(stderr, "harp-simulate: not a parameter, or not a value: %s\n", wrong);
  fprintf(wrong ? stderr : stdout, "harp-simulate [key=value ...]\n\n");
  if (!wrong) cluster_scenario_print_help();
  return wrong ? 2 : 0;
}

int main(int argc, char **argv) {
  struct cluster_scenario s = cluster_scenario_default();
  if (argc == 2 && !strcmp(argv[1], "--help")) return usage(NULL);
  for (int i = 1; i < argc; i++) {
    if (!cluster_scenario_set(&s, argv[i])) return usage(argv[i]);
  }
  const char *fault = cluster_scenario_fault(&s);
  if (fault) {
    fprintf(stderr, "harp-simulate: %s\n", fault);
    return 2;
  }
  run(&s);
  return 0;
}

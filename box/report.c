/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <stdio.h>

void box_report_head(const struct box_options *o, int nccl_version) {
  if (o->json) {
    printf("{\"kind\": \"start\", \"nccl\": %d, \"ranks\": %d, \"op\": \"%s\"}\n", nccl_version, o->ranks,
           box_op_names[o->op]);
  } else {
    printf("# NCCL %d, %s, %d ranks, %s\n", nccl_version, box_op_names[o->op], o->ranks,
           o->check ? "every element checked" : "data not checked");
    printf("#%11s %11s %9s %6s %11s %9s %9s %7s\n", "size", "count", "type", "redop", "time", "algbw",
           "busbw", "#wrong");
    printf("#%11s %11s %9s %6s %11s %9s %9s\n", "(B)", "(elements)", "", "", "(us)", "(Gbit/s)", "(Gbit/s)");
  }
  fflush(stdout);
}

void box_report_size(const struct box_operation *op, double time_us, int iterations, uint64_t wrong) {
  const struct box_options *o = op->options;
  double rate = time_us > 0 ? (double)op->bytes * 8 / 1000 / time_us : 0;
  double bus = rate * box_operation_bus_factor(o);
  const char *type = box_types[o->type].name, *redop = box_redop_names[o->redop];
  if (o->op != BOX_OP_ALLREDUCE && o->op != BOX_OP_REDUCESCATTER && o->op != BOX_OP_REDUCE) redop = "none";
  char seen[32];
  snprintf(seen, sizeof seen, o->check ? "%llu" : o->json ? "null" : "N/A", (unsigned long long)wrong);
  if (o->json)
    printf(
        "{\"kind\": \"size\", \"bytes\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", "
        "\"time_us\": %.3f, \"iterations\": %d, \"algbw_gbps\": %.6f, \"busbw_gbps\": %.6f, \"wrong\": %s}\n",
        op->bytes, op->count, type, redop, time_us, iterations, rate, bus, seen);
  else
    printf(" %11zu %11zu %9s %6s %11.2f %9.3f %9.3f %7s\n", op->bytes, op->count, type, redop, time_us, rate,
           bus, seen);
  fflush(stdout);
}

void box_report_cycle(const struct box_options *o, int number, double init_s, double destroy_s) {
  if (o->json)
    printf("{\"kind\": \"cycle\", \"number\": %d, \"init_s\": %.3f, \"destroy_s\": %.3f}\n", number, init_s,
           destroy_s);
  else if (o->cycles > 1)
    printf("# cycle %d: init %.3f s, destroy %.3f s\n", number, init_s, destroy_s);
  fflush(stdout);
}

static void print_quoted(const char *text) {
  putchar('"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\')
      printf("\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      printf("\\u%04x", *text);
    else
      putchar(*text);
  }
  putchar('"');
}

void box_report_survivor(const struct box_options *o, const struct box_survivor *s) {
  if (o->json) {
    printf("{\"kind\": \"survivor\", \"rank\": %d, \"operations\": %llu, \"how\": ", s->rank,
           (unsigned long long)s->operations);
    print_quoted(s->how);
    printf(", \"error\": ");
    print_quoted(s->error);
    printf(", \"noticed_s\": %.3f, \"abort\": %d, \"abort_s\": %.3f, \"drained_s\": %.3f, \"last_error\": ",
           s->noticed_s, s->abort_result, s->abort_s, s->drained_s);
    print_quoted(s->last_error);
    printf("}\n");
  } else {
    printf("rank %d: %llu operations, then %s: %s, %.3f s after the operation began; abort gave %d after "
           "%.3f s; the stream was empty %.3f s later; %s\n",
           s->rank, (unsigned long long)s->operations, s->how, s->error, s->noticed_s, s->abort_result,
           s->abort_s, s->drained_s, s->last_error);
  }
  fflush(stdout);
}

void box_report_plan(const struct box_options *o, int rank, int cycle, double took_s, uint64_t operations,
                     uint64_t wrong, const struct box_usage *u) {
  printf(o->json
             ? "{\"kind\": \"plan\", \"rank\": %d, \"cycle\": %d, \"took_s\": %.3f, \"operations\": %llu, "
               "\"wrong\": %llu, \"files\": %d, \"threads\": %d, \"memory_kib\": %ld}\n"
             : "rank %d: cycle %d took %.3f s; operations so far %llu, wrong elements %llu; files %d, "
               "threads %d, memory %ld KiB\n",
         rank, cycle, took_s, (unsigned long long)operations, (unsigned long long)wrong, u->files, u->threads,
         u->memory_kib);
  fflush(stdout);
}

void box_report_loss(const struct box_options *o, int rank, const char *error, double noticed_s,
                     const char *last_error) {
  if (o->json) {
    printf("{\"kind\": \"loss\", \"rank\": %d, \"noticed_s\": %.3f, \"error\": ", rank, noticed_s);
    print_quoted(error);
    printf(", \"last_error\": ");
    print_quoted(last_error);
    printf("}\n");
  } else {
    printf("rank %d: %s after %.3f s; %s\n", rank, error, noticed_s, last_error);
  }
  fflush(stdout);
}

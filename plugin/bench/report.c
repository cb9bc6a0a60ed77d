/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include "fail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S     1e9
#define NS_PER_US    1e3
#define BIT_PER_BYTE 8

struct harp_report_row harp_report_make_row(const struct harp_options *opt, size_t bytes, uint64_t rounds,
                                            harp_ns elapsed_ns, const struct harp_tally *sum,
                                            const struct harp_latency *latency) {
  struct harp_report_row row = {.bytes = bytes,
                                .rounds = rounds,
                                .messages = sum->messages,
                                .time_s = (double)elapsed_ns / NS_PER_S,
                                .cpu_s = (double)sum->cpu_ns / NS_PER_S,
                                .wrong = sum->wrong,
                                .has_latency = latency && latency->count};
  double receiver_bytes = (double)sum->bytes / harp_mesh_receivers(opt->mode, opt->nranks);
  if (elapsed_ns) row.busbw_gbps = receiver_bytes * BIT_PER_BYTE / (double)elapsed_ns;
  if (row.has_latency) {
    row.latency = (struct harp_report_latency){.min_ns = latency->min_ns,
                                               .p50_ns = harp_latency_percentile(latency, 0.5),
                                               .p90_ns = harp_latency_percentile(latency, 0.9),
                                               .p99_ns = harp_latency_percentile(latency, 0.99),
                                               .p999_ns = harp_latency_percentile(latency, 0.999),
                                               .max_ns = latency->max_ns,
                                               .mean_ns = (double)latency->sum_ns / (double)latency->count};
    if (opt->mode == HARP_PINGPONG)
      row.busbw_gbps = row.latency.mean_ns > 0 ? (double)bytes * BIT_PER_BYTE / row.latency.mean_ns : 0;
  }
  row.algbw_gbps = row.busbw_gbps;
  /* nccl-tests counts each rank's own part, which crosses no network, in alltoall's size. */
  if (opt->mode == HARP_ALLTOALL) row.algbw_gbps *= (double)opt->nranks / (opt->nranks - 1);
  return row;
}

static bool has_table(const struct harp_options *opt) {
  return !opt->json_path || strcmp(opt->json_path, "-") != 0;
}

static bool has_percentiles(const struct harp_options *opt) {
  return opt->mode == HARP_PINGPONG || opt->mode == HARP_INCAST;
}

void harp_report_begin(const struct harp_report *report, const struct harp_plugin_device *device) {
  const struct harp_options *opt = report->opt;
  if (!has_table(opt)) return;
  printf("# harp-perf: %s (%s, net v%d), device %d \"%s\" %d Mbit/s\n", opt->plugin_path, report->net->name,
         report->net->abi, opt->dev, device->name ? device->name : "", device->speed_mbps);
  printf("# mode %s%s, ranks %d, connections %u, inflight %u, check %s\n#\n", harp_mode_name(opt->mode),
         opt->wait_sent ? " (sends waited for)" : "", opt->nranks, opt->connections, opt->inflight,
         opt->check ? "on" : "off");
  printf("# %10s %12s %12s %10s %10s %7s", "size", "count", "time", "algbw", "busbw", "wrong");
  if (has_percentiles(opt)) printf(" %9s %9s %9s %9s %9s %9s", "min", "p50", "p90", "p99", "p99.9", "max");
  printf("\n# %10s %12s %12s %10s %10s %7s", "(B)", "(messages)", "(us)", "(Gbit/s)", "(Gbit/s)", "");
  if (has_percentiles(opt))
    printf(" %9s %9s %9s %9s %9s %9s", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)");
  printf("\n");
  fflush(stdout);
}

void harp_report_add(struct harp_report *report, const struct harp_report_row *row) {
  report->rows[report->row_count++] = *row;
  if (!has_table(report->opt)) return;
  double time_us =
      row->has_latency ? row->latency.mean_ns / NS_PER_US : row->time_s * 1e6 / (double)row->rounds;
  char wrong[24] = "N/A";
  if (report->opt->check || row->wrong) snprintf(wrong, sizeof wrong, "%" PRIu64, row->wrong);
  printf("  %10zu %12" PRIu64 " %12.2f %10.3f %10.3f %7s", row->bytes, row->messages, time_us,
         row->algbw_gbps, row->busbw_gbps, wrong);
  if (row->has_latency) {
    const struct harp_report_latency *l = &row->latency;
    const harp_ns columns[] = {l->min_ns, l->p50_ns, l->p90_ns, l->p99_ns, l->p999_ns, l->max_ns};
    for (size_t i = 0; i < HARP_ARRAY_COUNT(columns); i++) printf(" %9.2f", (double)columns[i] / NS_PER_US);
  }
  printf("\n");
  fflush(stdout);
}

static void write_string(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}

static void write_latency(FILE *out, const struct harp_report_row *row) {
  const struct harp_report_latency *l = &row->latency;
  const struct {
    const char *name;
    double ns;
  } fields[] = {{"min", (double)l->min_ns}, {"p50", (double)l->p50_ns},   {"p90", (double)l->p90_ns},
                {"p99", (double)l->p99_ns}, {"p999", (double)l->p999_ns}, {"max", (double)l->max_ns},
                {"mean", l->mean_ns}};
  if (!row->has_latency) {
    fputs("null", out);
    return;
  }
  for (size_t i = 0; i < HARP_ARRAY_COUNT(fields); i++)
    fprintf(out, "%s\"%s\": %.3f", i ? ", " : "{", fields[i].name, fields[i].ns / NS_PER_US);
  fputc('}', out);
}

static void write_timed_run(FILE *out, const struct harp_report *report) {
  const struct harp_timed_run *w = report->timed_run;
  uint64_t undelivered = 0;
  fprintf(out, ", \"window\": {\"start_ns\": %" PRIu64 ", \"interval_ms\": %u, \"samples\": [", w->start_ns,
          report->opt->interval_ms);
  for (unsigned i = 0; i < w->sample_count; i++) fprintf(out, "%s%" PRIu64, i ? ", " : "", w->samples[i]);
  fputs("], \"connections\": [", out);
  for (unsigned i = 0; i < w->connection_count; i++) {
    const struct harp_timed_run_connection *c = &w->connections[i];
    fprintf(out, "%s{\"from\": %d, \"to\": %d, \"index\": %u, \"bytes\": %" PRIu64 "}", i ? ", " : "",
            c->from, c->to, c->index, c->bytes);
  }
  fputs("], \"failures\": [", out);
  for (int i = 0, printed = 0; i < report->opt->nranks; i++) {
    undelivered += w->outcomes[i].undelivered;
    if (!w->outcomes[i].failure[0]) continue;
    fprintf(out, "%s{\"rank\": %d, \"text\": ", printed++ ? ", " : "", i);
    write_string(out, w->outcomes[i].failure);
    fputc('}', out);
  }
  fprintf(out, "], \"undelivered\": %" PRIu64 "}", undelivered);
}

static void write_json(FILE *out, const struct harp_report *report) {
  const struct harp_options *opt = report->opt;
  fputs("{\"plugin\": ", out);
  write_string(out, opt->plugin_path);
  fputs(", \"name\": ", out);
  write_string(out, report->net->name);
  fprintf(out,
          ", \"abi\": %d, \"mode\": \"%s\", \"nranks\": %d, \"connections\": %u, \"inflight\": %u, "
          "\"check\": %s, \"wait_sent\": %s, \"results\": [",
          report->net->abi, harp_mode_name(opt->mode), opt->nranks, opt->connections, opt->inflight,
          opt->check ? "true" : "false", opt->wait_sent ? "true" : "false");
  for (unsigned i = 0; i < report->row_count; i++) {
    const struct harp_report_row *row = &report->rows[i];
    fprintf(out,
            "%s{\"bytes\": %zu, \"messages\": %" PRIu64 ", \"seconds\": %.9f, \"algbw_gbps\": %.6f, "
            "\"busbw_gbps\": %.6f, \"latency_us\": ",
            i ? ", " : "", row->bytes, row->messages, row->time_s, row->algbw_gbps, row->busbw_gbps);
    write_latency(out, row);
    fprintf(out, ", \"wrong\": %" PRIu64 ", \"cpu_s\": %.6f", row->wrong, row->cpu_s);
    if (report->timed_run) write_timed_run(out, report);
    fputc('}', out);
  }
  fputs("]}\n", out);
}

static int cannot_write(const char *path) {
  return harp_fail(HARP_EXIT_SYSTEM, "cannot write %s: %s", path, strerror(errno));
}

int harp_report_probe(const struct harp_options *opt) {
  if (!opt->json_path || !has_table(opt)) return 0;
  FILE *file = fopen(opt->json_path, "ae"); /* what stands there stays until there is something better */
  if (!file) return cannot_write(opt->json_path);
  fclose(file);
  return 0;
}

int harp_report_end(const struct harp_report *report) {
  const char *path = report->opt->json_path;
  if (has_table(report->opt)) {
    uint64_t wrong = 0;
    for (unsigned i = 0; i < report->row_count; i++) wrong += report->rows[i].wrong;
    printf("# wrong: %" PRIu64 "%s\n", wrong,
           report->opt->check ? (wrong ? " FAILED" : " OK") : " (only lengths checked)");
    if (fflush(stdout)) return cannot_write("standard output");
  }
  if (!path) return 0;
  FILE *file = has_table(report->opt) ? fopen(path, "we") : stdout;
  if (!file) return cannot_write(path);
  write_json(file, report);
  if (file == stdout ? fflush(file) : fclose(file)) return cannot_write(path);
  return 0;
}

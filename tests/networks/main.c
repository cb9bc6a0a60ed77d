/* SPDX-License-Identifier: Apache-2.0 */
/* Networks in virtual time around the unchanged core of the protocol; docs/reference/networks.md.
 *
 *   networks [key=value ...]             run one network, print what is measured
 *   networks --steps N [key=value ...]   print a line for each of N parts of its time
 *   networks --all|--quick [options]     run the rows of the matrix, print those that break a bound; exit 1:
 *                                        some do
 *     --out FILE       results, a line for each row; rows that it has are not run again (build/networks.txt)
 *     --only TEXT      rows whose group or parameters contain TEXT
 *     --again SET      set these parameters in each row as well: pauses of hosts, wrong clocks
 *     --jobs N         processes (2)
 *     --markdown       print the results as tables
 *   networks --list                      print the rows, with their groups
 *   networks --help                      list the keys */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/probe.h"
#include "networks/suite.h"

enum { JOBS = 2 };

static int usage(const char *wrong) {
  if (wrong) fprintf(stderr, "not an option, not a parameter, or not a value: %s\n", wrong);
  printf("networks [--steps N] [key=value ...]\n"
         "networks --all|--quick [--out FILE] [--only TEXT] [--again SET] [--jobs N] [--markdown]\n"
         "networks --list\n\n  %-16s%-10s%s\n",
         "key", "default", "");
  scenario_print_help();
  return wrong ? 2 : 0;
}

static int print_network(const struct scenario *s) {
  struct measured m = measure_network(s);
  printf("rate %.3f lost %.2f jain %.3f queue_us %.0f queue_max_us %.0f p99 %.2f tcp %.3f first %.3f "
         "others %.3f step_ms %.1f paths %.1f packets %.0f cpu_s %.2f ns_a_packet %.0f\n",
         m.rate, m.lost, m.jain, m.queue_us, m.queue_max_us, m.p99, m.tcp, m.first, m.honest, m.step_ms,
         m.paths, m.packets, m.cpu_s, m.packets > 0 ? m.cpu_s * 1e9 / m.packets : 0);
  return 0;
}

static int list_rows(void) {
  unsigned count;
  const struct row *rows = rows_all(&count);
  for (unsigned i = 0; i < count; i++)
    printf("%-11s%-6s%s\n", rows[i].group, rows[i].is_quick ? "quick" : "", rows[i].params);
  return 0;
}

static int run_suite(const struct suite *s, bool as_markdown) {
  struct results rs = suite_run(s);
  unsigned broken = 0;
  if (as_markdown) {
    results_print_markdown(&rs);
  } else {
    broken = results_print(&rs);
    printf("%u networks, %u bounds broken\n", rs.count, broken);
  }
  free(rs.all);
  return broken != 0;
}

/* Where an option of a suite goes that has a value; NULL: it is none. */
static const char **text_option(struct suite *s, const char *option) {
  if (!strcmp(option, "--out")) return &s->out;
  if (!strcmp(option, "--only")) return &s->only;
  return strcmp(option, "--again") ? NULL : &s->again;
}

static int read_and_run_suite(int argc, char **argv) {
  struct suite s = {.is_quick = !strcmp(argv[1], "--quick"), .out = "build/networks.txt", .jobs = JOBS};
  bool as_markdown = false;
  for (int i = 2; i < argc; i++) {
    const char **to = text_option(&s, argv[i]);
    if (!strcmp(argv[i], "--markdown"))
      as_markdown = true;
    else if (to && i + 1 < argc)
      *to = argv[++i];
    else if (!strcmp(argv[i], "--jobs") && i + 1 < argc && atoi(argv[i + 1]) > 0)
      s.jobs = (unsigned)atoi(argv[++i]);
    else
      return usage(argv[i]);
  }
  return run_suite(&s, as_markdown);
}

static int run_one(int argc, char **argv) {
  struct scenario s = scenario_default();
  unsigned steps = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--steps") && i + 1 < argc)
      steps = (unsigned)strtoul(argv[++i], NULL, 10);
    else if (!scenario_set(&s, argv[i]))
      return usage(argv[i]);
  }
  if (!probe_cc(s.cc)) return usage(s.cc);
  if (!steps) return print_network(&s);
  measure_print_steps(&s, steps);
  return 0;
}

int main(int argc, char **argv) {
  const char *first = argc > 1 ? argv[1] : "";
  if (!strcmp(first, "--help")) return usage(NULL);
  if (!strcmp(first, "--list")) return list_rows();
  if (!strcmp(first, "--all") || !strcmp(first, "--quick")) return read_and_run_suite(argc, argv);
  return run_one(argc, argv);
}

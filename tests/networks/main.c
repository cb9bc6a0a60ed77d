/* SPDX-License-Identifier: Apache-2.0 */
/* Networks in virtual time around the unchanged core of the protocol.
 *
 *   networks [key=value ...]             run one network, print one line
 *   networks --steps N [key=value ...]   print a line for each of N parts of its time
 *   networks --help                      list the keys */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "networks/measure.h"
#include "networks/probe.h"

static int usage(const char *wrong) {
  if (wrong) fprintf(stderr, "not a parameter, or not a value: %s\n", wrong);
  printf("networks [--steps N] [key=value ...]\n  %-16s%-10s%s\n", "key", "default", "");
  scenario_print_help();
  return wrong ? 2 : 0;
}

int main(int argc, char **argv) {
  struct scenario s = scenario_default();
  unsigned steps = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--help")) return usage(NULL);
    if (!strcmp(argv[i], "--steps") && i + 1 < argc)
      steps = (unsigned)strtoul(argv[++i], NULL, 10);
    else if (!scenario_set(&s, argv[i]))
      return usage(argv[i]);
  }
  if (!probe_cc(s.cc)) return usage(s.cc);
  if (steps) {
    measure_print_steps(&s, steps);
    return 0;
  }
  struct measured m = measure_network(&s);
  measure_print(&m);
  printf(" packets %.0f cpu_s %.2f ns %.0f\n", m.packets, m.cpu_s, m.cpu_s * 1e9 / m.packets);
  return 0;
}

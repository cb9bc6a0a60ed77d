/* SPDX-License-Identifier: Apache-2.0 */
/* The cores on which the calling thread may run, and a configuration of engines on two of them. */
#ifndef TESTS_CORES_H
#define TESTS_CORES_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Fills `cores` with their numbers, ascending, at most `max` of them. Returns how many there are. */
static inline unsigned cores_allowed(uint16_t *cores, unsigned max) {
  cpu_set_t set;
  unsigned count = 0;
  if (sched_getaffinity(0, sizeof set, &set)) abort();
  for (unsigned core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &set)) continue;
    if (count < max) cores[count] = (uint16_t)core;
    count++;
  }
  return count;
}

struct cores_conf {
  char dir[32], path[64];
};

/* Configures `lo` with an engine thread for each of two cores, in place of HARP_IFNAME and HARP_ENGINE.
 * Returns false where there is but one core. */
static inline bool cores_conf_open(struct cores_conf *c) {
  uint16_t cores[2];
  if (cores_allowed(cores, 2) < 2) return false;
  snprintf(c->dir, sizeof c->dir, "/tmp/harp-cores-XXXXXX");
  if (!mkdtemp(c->dir)) abort();
  snprintf(c->path, sizeof c->path, "%s/ztcp0.conf", c->dir);
  FILE *f = fopen(c->path, "w");
  if (!f) abort();
  fprintf(f, "[eni]\ninterface = lo\n[engine]\nmode = thread\ncores = %u,%u\n", cores[0], cores[1]);
  fclose(f);
  unsetenv("HARP_IFNAME");
  unsetenv("HARP_ENGINE");
  setenv("HARP_CONF_DIR", c->dir, 1);
  return true;
}

static inline void cores_conf_close(struct cores_conf *c) {
  unlink(c->path);
  rmdir(c->dir);
  unsetenv("HARP_CONF_DIR");
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* See netns.h. */
#include "lib/netns.h"

#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

bool netns_enter(void) {
  return !unshare(CLONE_NEWNET) && !system("ip link set dev lo up 2>/dev/null");
}

void netns_run(const char *format, ...) {
  char command[500];
  va_list ap;
  va_start(ap, format);
  vsnprintf(command, sizeof command, format, ap);
  va_end(ap);
  int status = system(command);
  if (status) fail_msg("%s: status %d", command, status);
}

unsigned netns_index(const char *ifname) {
  unsigned index = if_nametoindex(ifname);
  if (!index) fail_msg("there is no interface %s", ifname);
  return index;
}

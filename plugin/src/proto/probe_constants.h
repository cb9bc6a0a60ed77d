/* SPDX-License-Identifier: Apache-2.0 */
/* The constants of the probe timers, which path_probe.c, path_timers.c, path_health.c, path_probing.c,
 * path_pairs.c and send_tcp.c use. RFC 9002 names the probe timeout's formula and its doubling; where the
 * reason names no RFC, the value is our own. */
#ifndef HARP_PROBE_CONSTANTS_H
#define HARP_PROBE_CONSTANTS_H

#include "base/base.h"

/* ---- the probe timeout of a path that is UP ---- */

/* Constant                  value          effect, and reason */
#define HARP_PTO_MARGIN_NS     HARP_MS(1)   /* it is longer than RFC 9002's by this: peers share cores */
#define HARP_PTO_MARGIN_TCP_NS HARP_MS(10)  /* the same on a tcp path: its kernel resends first */
#define HARP_PTO_MAX_NS        HARP_MS(100) /* its doublings end here */
#define HARP_PTO_TCP_MIN_NS    HARP_MS(20)  /* a tcp path's RTT counts as this at most, */
#define HARP_PTO_TCP_MAX_NS    HARP_MS(250) /* or as twice its least RTT, up to this */
/* Timeouts, and probes of paths that are not UP, double FIRST times, stay for STEADY times, and double on.
 * Where 30 % are lost both ways half of all probes get no answer, and six in a row are common; RFC 9002
 * doubles on, which takes a third of a second then. One probe each 8 ms or so is less than what any path may
 * send (HARP_CC_LEAST_NS). */
enum { HARP_PROBE_DOUBLINGS_FIRST = 3, HARP_PROBE_STEADY = 16, HARP_PROBE_DOUBLINGS_MAX = 10 };

/* Timeouts in a row after which something happens. */
enum {
  HARP_PATH_DOUBTFUL_PTOS = 2, /* the path is doubtful; a new one after so many probes */
  HARP_PATH_SILENT_PTOS = 3,   /* the path is silent: only probes go out until something is acknowledged */
  HARP_PATH_STANDBY_PTOS = 6,  /* all standby paths are tried, 34 ms: one of them may be all that is left */
  HARP_PATH_GIVE_UP_PTOS = 6, /* each timeout gives up the whole flight: its ring must not fill with probes */
  HARP_PATH_CONNECT_PTOS = 8, /* tcp paths are woken, 50 ms: a process that lacks a core is silent, too */
};
/* A path that is silent for so long while another answers goes DOWN; at once if a standby path is to replace
 * it. */
#define HARP_PATH_DOWN_NS HARP_MS(30)

/* ---- the probes of a path that is not UP ---- */

#define HARP_PROBE_FIRST_NS HARP_MS(2)  /* the first interval; intervals double */
#define HARP_PROBE_MAX_NS   HARP_MS(50) /* the longest interval of the first OFTEN_COUNT probes */
#define HARP_PROBE_RARE_NS  HARP_SEC(1) /* the longest interval later, of standby paths, and while idle */
enum {
  HARP_PROBE_OFTEN_COUNT = 100,
  /* A new path is silent after so many probes, 300 ms, if its answer may take long: that of a tcp path waits
   * for its connection. */
  HARP_PATH_LATE_PROBES = 20,
};

/* ---- the probes of a path that idles, or does not progress ---- */

#define HARP_PROBE_IDLE_NS     HARP_MS(500) /* they keep RTT and state fresh while there is work */
#define HARP_PROBE_DETOUR_NS   HARP_SEC(5)  /* the same, where others between the same ENIs make no detour */
#define HARP_PROBE_PROGRESS_NS HARP_MS(100) /* a progressing tcp path owes an answer for so long */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/limits.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/limits.h"

bool harp_limit_is(int error) {
  return error == HARP_ELINKS || error == HARP_EPEERS || error == HARP_ESTREAMS || error == HARP_EPEERFILES ||
         harp_limit_is_hosts(error);
}

bool harp_limit_is_hosts(int error) {
  return error == HARP_EPORTS || error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

static unsigned long long files_max(void) {
  struct rlimit limit = {0};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

const char *harp_limit_text(int error, char text[HARP_LIMIT_TEXT_BYTES]) {
  size_t bytes = HARP_LIMIT_TEXT_BYTES;
  switch (error) {
  case HARP_ELINKS:
    snprintf(text, bytes, "it has all %d connections that an engine can have: set NCCL_MAX_NCHANNELS lower",
             HARP_ENGINE_LINKS_MAX);
    break;
  case HARP_ESTREAMS:
    snprintf(text, bytes,
             "it has all %d connections to that peer that it can have: set NCCL_MAX_NCHANNELS lower",
             HARP_STREAMS_MAX);
    break;
  case HARP_EPEERS:
    snprintf(
        text, bytes,
        "it has all %d peers that an engine can have, handshakes included: let fewer ranks connect to it",
        HARP_ENGINE_PEERS_MAX);
    break;
  case HARP_EPEERFILES:
    snprintf(text, bytes, "its process has all files open that it may: raise the limit there (ulimit -n)");
    break;
  case EMFILE:
    snprintf(text, bytes, "the process has all %llu files open that it may: raise the limit (ulimit -n)",
             files_max());
    break;
  case HARP_EFEWFILES:
    snprintf(text, bytes,
             "the process has three quarters of the %llu files open that it may: raise the limit (ulimit -n)",
             files_max());
    break;
  case ENFILE:
    snprintf(text, bytes, "the host has all files open that it may: raise the limit (sysctl fs.file-max)");
    break;
  case ENOMEM:
    snprintf(text, bytes, "no memory: see the limits of its cgroup (memory.max) and of its address space");
    break;
  case ENOBUFS:
    snprintf(text, bytes, "no memory for sockets: see sysctl net.ipv4.tcp_mem and the cgroup's memory.max");
    break;
  case EADDRINUSE:
    snprintf(text, bytes, "no local port is free: widen sysctl net.ipv4.ip_local_port_range");
    break;
  case HARP_EPORTS:
    snprintf(text, bytes,
             "no local port is free (widen sysctl net.ipv4.ip_local_port_range), or the address is gone");
    break;
  case HARP_ETHREADS:
    snprintf(text, bytes,
             "no more threads: raise the limit of processes (ulimit -u), or pids.max of the cgroup");
    break;
  default:
    snprintf(text, bytes, "%s", strerror(error));
  }
  return text;
}

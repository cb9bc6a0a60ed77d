/* SPDX-License-Identifier: Apache-2.0 */
/* See shortage.h. */
#include "base/shortage.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text_file.h"

enum { WORD_BYTES = 48, CGROUP_BYTES = 128, PATH_BYTES = 512 };

static unsigned long long limit_of(int resource) {
  struct rlimit limit = {0};
  (void)getrlimit(resource, &limit);
  return limit.rlim_cur;
}

/* Reads the words of a file; without it "?". Returns text. */
static const char *read_words(const char *path, char *text, size_t bytes) {
  if (harp_text_file_read(path, text, bytes) <= 0) snprintf(text, bytes, "?");
  text[strcspn(text, "\n")] = 0;
  for (char *c = text; *c; c++)
    if (isspace((unsigned char)*c)) *c = ' ';
  return text;
}

/* Writes what this process's cgroup has of something, and how much it may have: from the files NAME.current
 * and NAME.max, where the kernel has them (cgroups of version 2). Returns text. */
static const char *cgroup_use(const char *name, char text[CGROUP_BYTES]) {
  char line[PATH_BYTES], current[2 * PATH_BYTES], most[2 * PATH_BYTES], used[WORD_BYTES], limit[WORD_BYTES];
  const char *path = read_words("/proc/self/cgroup", line, sizeof line);
  path = strncmp(path, "0::", 3) ? "" : path + 3;
  snprintf(current, sizeof current, "/sys/fs/cgroup%s/%s.current", path, name);
  snprintf(most, sizeof most, "/sys/fs/cgroup%s/%s.max", path, name);
  read_words(current, used, sizeof used);
  if (strcmp(read_words(most, limit, sizeof limit), "?") == 0)
    snprintf(text, CGROUP_BYTES, "at most %s.max", name);
  else
    snprintf(text, CGROUP_BYTES, "%s of at most %s (%s.max)", used, limit, name);
  return text;
}

/* Writes how much address space the process may have, in MiB. */
static const char *address_space(char text[WORD_BYTES]) {
  unsigned long long limit = limit_of(RLIMIT_AS);
  if (limit == RLIM_INFINITY)
    snprintf(text, WORD_BYTES, "unlimited");
  else
    snprintf(text, WORD_BYTES, "%llu MiB", limit >> 20);
  return text;
}

static unsigned long long mapped_mib(void) {
  char text[WORD_BYTES];
  unsigned long long pages = 0;
  if (sscanf(read_words("/proc/self/statm", text, sizeof text), "%llu", &pages) != 1) return 0;
  return pages * (unsigned long long)sysconf(_SC_PAGESIZE) >> 20;
}

/* Writes the limit on the processes of its user, and that of its cgroup. */
static void put_threads(char *text, size_t bytes) {
  char cgroup[CGROUP_BYTES], users[WORD_BYTES];
  unsigned long long limit = limit_of(RLIMIT_NPROC);
  if (limit == RLIM_INFINITY)
    snprintf(users, sizeof users, "any number");
  else
    snprintf(users, sizeof users, "%llu", limit);
  snprintf(text, bytes,
           "no more threads: raise what its cgroup may have, %s (`docker run --pids-limit`), or its user, %s "
           "(ulimit -u)",
           cgroup_use("pids", cgroup), users);
}

static void put_memory(char *text, size_t bytes) {
  char cgroup[CGROUP_BYTES], space[WORD_BYTES];
  snprintf(text, bytes,
           "no memory: raise what the process may map, %llu MiB of at most %s (ulimit -v), or its cgroup may "
           "have, %s",
           mapped_mib(), address_space(space), cgroup_use("memory", cgroup));
}

/* Returns how many pages the host's TCP connections take. */
static unsigned long long tcp_pages(void) {
  char text[PATH_BYTES];
  unsigned long long pages = 0;
  (void)harp_text_file_read("/proc/net/sockstat", text, sizeof text);
  const char *at = strstr(text, "TCP: ");
  at = at ? strstr(at, " mem ") : NULL;
  return at && sscanf(at, " mem %llu", &pages) == 1 ? pages : 0;
}

static void put_socket_memory(char *text, size_t bytes) {
  char most[WORD_BYTES];
  snprintf(text, bytes,
           "no memory for sockets: TCP has %llu of at most %s pages (raise sysctl net.ipv4.tcp_mem)",
           tcp_pages(), read_words("/proc/sys/net/ipv4/tcp_mem", most, sizeof most));
}

static void put_ports(char *text, size_t bytes, const char *or_else) {
  char range[WORD_BYTES];
  snprintf(text, bytes, "no local port of the range %s is free: widen sysctl net.ipv4.ip_local_port_range%s",
           read_words("/proc/sys/net/ipv4/ip_local_port_range", range, sizeof range), or_else);
}

static void put_locked(char *text, size_t bytes) {
  unsigned long long limit = limit_of(RLIMIT_MEMLOCK);
  char most[WORD_BYTES];
  if (limit == RLIM_INFINITY)
    snprintf(most, sizeof most, "unlimited");
  else
    snprintf(most, sizeof most, "%llu KiB", limit >> 10);
  snprintf(text, bytes,
           "its user may lock no more memory: raise the limit, %s (ulimit -l), or give CAP_IPC_LOCK", most);
}

const char *harp_shortage_text(int error, char text[HARP_SHORTAGE_TEXT_BYTES]) {
  size_t bytes = HARP_SHORTAGE_TEXT_BYTES;
  char word[WORD_BYTES];
  switch (error) {
  case EMFILE:
    snprintf(text, bytes, "the process has all %llu files open that it may: raise the limit (ulimit -n)",
             limit_of(RLIMIT_NOFILE));
    break;
  case HARP_EFEWFILES:
    snprintf(text, bytes,
             "the process has three quarters of the %llu files open that it may: raise the limit (ulimit -n)",
             limit_of(RLIMIT_NOFILE));
    break;
  case ENFILE:
    snprintf(text, bytes, "the host has all files open that it may, %s: raise the limit (sysctl fs.file-max)",
             read_words("/proc/sys/fs/file-max", word, sizeof word));
    break;
  case ENOMEM:
    put_memory(text, bytes);
    break;
  case ENOBUFS:
    put_socket_memory(text, bytes);
    break;
  case EADDRINUSE:
    put_ports(text, bytes, "");
    break;
  case HARP_EPORTS:
    put_ports(text, bytes, "; or the address is gone");
    break;
  case HARP_ETHREADS:
    put_threads(text, bytes);
    break;
  case HARP_EWATCHES:
    snprintf(text, bytes,
             "its user watches all %s files that it may: raise the limit (sysctl fs.epoll.max_user_watches)",
             read_words("/proc/sys/fs/epoll/max_user_watches", word, sizeof word));
    break;
  case HARP_ELOCKED:
    put_locked(text, bytes);
    break;
  default:
    snprintf(text, bytes, "%s", strerror(error));
  }
  return text;
}

int harp_shortage_set(struct harp_error *error, int rc, const char *fmt, ...) {
  char what[HARP_ERROR_BYTES - HARP_SHORTAGE_TEXT_BYTES - 2], text[HARP_SHORTAGE_TEXT_BYTES];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  return harp_error_set(error, rc, "%s: %s", what, harp_shortage_text(-rc, text));
}

void harp_shortage_warn_memory(const char *what) {
  char text[HARP_SHORTAGE_TEXT_BYTES];
  HARP_WARN("cannot %s: %s", what, harp_shortage_text(ENOMEM, text));
}

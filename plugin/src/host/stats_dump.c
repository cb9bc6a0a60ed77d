/* SPDX-License-Identifier: Apache-2.0 */
#include "host/stats_dump.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

enum { PATH_BYTES = HARP_STATS_DIR_BYTES + HARP_DUMP_NAME_BYTES, NAMES_MAX = 4096, HOST_CHARS = 64 };
#define PREFIX "harp-"
#define SUFFIX ".trace"

struct harp_stats_dump {
  const struct harp_stats_header *from;
  int engine;
  size_t bytes; /* header and tables */
  _Alignas(8) unsigned char image[];
};

/* ---- contents ---- */

static void copy_header(struct harp_stats_header *h, const struct harp_stats_header *from) {
  size_t changing = offsetof(struct harp_stats_header, updated_ns);
  memcpy(h, from, changing);
  h->updated_ns = atomic_load_explicit(&from->updated_ns, memory_order_relaxed);
  h->schema_at = from->schema_at;
  h->schema_bytes = from->schema_bytes;
  memcpy(h->version, from->version, sizeof h->version);
  memcpy(h->host, from->host, sizeof h->host);
  h->table_count = from->table_count;
  h->rings = from->rings;
  h->rings.fd = -1;
  memcpy((char *)h + h->schema_at, (const char *)from + h->schema_at, h->schema_bytes);
  memcpy((char *)h + h->rings.events_at, (const char *)from + h->rings.events_at, h->rings.events_bytes);
}

struct harp_stats_dump *harp_stats_dump_begin(const struct harp_stats_file *file, int engine) {
  const struct harp_stats_header *from = harp_stats_file_header(file);
  uint32_t used[HARP_STATS_TABLE_COUNT];
  size_t bytes = from->header_bytes;
  for (unsigned t = 0; t < HARP_STATS_TABLE_COUNT; t++) {
    used[t] = atomic_load_explicit(&from->tables[t].used, memory_order_relaxed);
    bytes += (size_t)used[t] * from->tables[t].entry_bytes;
  }
  struct harp_stats_dump *d = calloc(1, sizeof *d + bytes);
  if (!d) return NULL;
  d->from = from;
  d->engine = engine;
  d->bytes = bytes;
  struct harp_stats_header *h = (struct harp_stats_header *)d->image;
  copy_header(h, from);
  uint64_t at = from->header_bytes;
  for (unsigned t = 0; t < HARP_STATS_TABLE_COUNT; t++) {
    struct harp_stats_table_header *to = &h->tables[t];
    to->at = at;
    to->entry_bytes = from->tables[t].entry_bytes;
    to->entry_max = used[t];
    to->used = used[t];
    at += (uint64_t)used[t] * to->entry_bytes;
  }
  harp_stats_dump_add(d, HARP_STATS_ENGINES, engine, 1);
  return d;
}

void harp_stats_dump_add(struct harp_stats_dump *d, enum harp_stats_table table, int first, unsigned count) {
  const struct harp_stats_header *h = (const struct harp_stats_header *)d->image;
  const struct harp_stats_table_header *to = &h->tables[table], *from = &d->from->tables[table];
  if (first < 0 || (uint32_t)first + count > to->entry_max) return; /* taken after harp_stats_dump_begin */
  size_t at = (size_t)first * to->entry_bytes;
  memcpy(d->image + to->at + at, (const char *)d->from + from->at + at, (size_t)count * to->entry_bytes);
}

static void finish_header(struct harp_stats_dump *d, const char *why, harp_ns now) {
  struct harp_stats_rings_header *r = &((struct harp_stats_header *)d->image)->rings;
  struct timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  r->at = d->bytes + sizeof((struct harp_trace_ring *)0)->heads;
  /* before the ring: a dump may be truncated */
  r->heads_at = -(int32_t)sizeof((struct harp_trace_ring *)0)->heads;
  r->ring_count = 1;
  r->first = (uint32_t)d->engine;
  r->dumped_ns = (int64_t)now;
  r->dumped_unix_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
  snprintf(r->why, sizeof r->why, "%s", why);
}

/* ---- the directory ---- */

static bool is_dump_name(const char *name) {
  size_t n = strlen(name), suffix = strlen(SUFFIX);
  return n > suffix && !strncmp(name, PREFIX, strlen(PREFIX)) && !strcmp(name + n - suffix, SUFFIX);
}

/* Returns when a dump of this user was written, in ns; -1: the file is no such dump. */
static int64_t written_ns(int dir_fd, const char *name) {
  char magic[sizeof HARP_STATS_MAGIC - 1];
  struct stat st;
  int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return -1;
  bool ours = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
              read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
              !memcmp(magic, HARP_STATS_MAGIC, sizeof magic);
  close(fd);
  return ours ? (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : -1;
}

/* Puts a time into the list of the newest, which is descending. */
static void keep_newest(int64_t newest_ns[HARP_DUMPS_MAX], int64_t at) {
  for (unsigned i = 0; i < HARP_DUMPS_MAX; i++) {
    if (at <= newest_ns[i]) continue;
    int64_t older = newest_ns[i];
    newest_ns[i] = at;
    at = older;
  }
}

/* Removes the oldest dumps, so that there is room for a new one among HARP_DUMPS_MAX: also those that
 * processes have left there which wrote theirs at the same time. */
static void make_room(const char *dir) {
  int64_t newest_ns[HARP_DUMPS_MAX] = {0};
  const struct dirent *entry;
  DIR *d = opendir(dir);
  if (!d) return;
  for (unsigned i = 0; i < NAMES_MAX && (entry = readdir(d)); i++)
    if (is_dump_name(entry->d_name)) keep_newest(newest_ns, written_ns(dirfd(d), entry->d_name));
  int64_t limit_ns = newest_ns[HARP_DUMPS_MAX - 1]; /* 0: there is room */
  unsigned equal = 0;                               /* dumps of that time that stay */
  while (newest_ns[HARP_DUMPS_MAX - 2 - equal] == limit_ns && equal < HARP_DUMPS_MAX - 2) equal++;
  rewinddir(d);
  for (unsigned i = 0; i < NAMES_MAX && limit_ns && (entry = readdir(d)); i++) {
    int64_t at = is_dump_name(entry->d_name) ? written_ns(dirfd(d), entry->d_name) : -1;
    if (at == limit_ns && equal > 0)
      equal--;
    else if (at >= 0 && at <= limit_ns)
      unlinkat(dirfd(d), entry->d_name, 0);
  }
  closedir(d);
}

/* ---- writing ---- */

static int write_all(int fd, const void *data, size_t bytes) {
  for (const char *at = data, *end = at + bytes; at < end;) {
    ssize_t n = write(fd, at, (size_t)(end - at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n ? -errno : -EIO;
    at += n;
  }
  return 0;
}

static void make_name(const struct harp_stats_header *h, char name[HARP_DUMP_NAME_BYTES]) {
  static _Atomic unsigned number;
  char host[HOST_CHARS + 1];
  snprintf(host, sizeof host, "%.*s", HOST_CHARS, h->host);
  for (char *c = host; *c; c++)
    if (*c == '/') *c = '_';
  snprintf(name, HARP_DUMP_NAME_BYTES, PREFIX "%s-%lld-%lld-%u" SUFFIX, host, (long long)h->pid,
           (long long)h->start_ticks, atomic_fetch_add(&number, 1) + 1);
}

int harp_stats_dump_write(struct harp_stats_dump *d, const struct harp_trace_ring *ring, const char *why,
                          harp_ns now, const char *dir, char name[HARP_DUMP_NAME_BYTES]) {
  char path[PATH_BYTES];
  finish_header(d, why, now);
  make_name((const struct harp_stats_header *)d->image, name);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  if (mkdir(dir, 0755) && errno != EEXIST) return -errno;
  make_room(dir);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -errno;
  int err = write_all(fd, d->image, d->bytes);
  if (!err) err = write_all(fd, ring->heads, sizeof ring->heads);
  if (!err) err = write_all(fd, ring, offsetof(struct harp_trace_ring, heads));
  if (close(fd) && !err) err = -errno;
  if (err) unlink(path);
  return err;
}

void harp_stats_dump_drop(struct harp_stats_dump *d) {
  free(d);
}

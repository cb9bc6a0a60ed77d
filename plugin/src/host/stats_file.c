/* SPDX-License-Identifier: Apache-2.0 */
#include "host/stats_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/text_file.h"

enum {
  PATH_BYTES = HARP_STATS_DIR_BYTES + 64,
  TABLE_ALIGN = 65536, /* the alignment of a table in the file: no system's pages are larger */
  GROW_BYTES = 32768,  /* unit of a table's disk space */
  ENTRIES_MAX = 65536,
  SWEEP_NAMES_MAX = 1 << 17, /* the most names of the directory that are read */
  SWEEP_FILES_MAX = 4096,    /* the most of these that are examined */
  RING_BYTES = (sizeof(struct harp_trace_ring) + 4095) & ~4095u,
};
#define STALE_NS (int64_t) HARP_SEC(600)

static const struct {
  const char *name;
  uint32_t entry_bytes, entry_max;
} tables[] = {
#define X(id, name, count) {#name, sizeof(struct harp_stats_##name), count},
    HARP_STATS_TABLES(X)
#undef X
};

struct harp_stats_file {
  int fd;
  pid_t pid;
  size_t bytes;
  struct harp_stats_header *header; /* the mapping */
  int rings_fd;                     /* the same file, or one in memory */
  char *rings;                      /* the mapping of ring 0 */
  size_t rings_backed_bytes;
  pthread_mutex_t lock; /* guards what follows */
  int64_t id_next;
  bool logged_full[HARP_STATS_TABLE_COUNT], logged_no_ring;
  size_t backed_bytes[HARP_STATS_TABLE_COUNT]; /* disk space of each table */
  uint64_t taken[HARP_STATS_TABLE_COUNT][ENTRIES_MAX / 64];
  char path[PATH_BYTES];
};

/* ---- removal at exit ---- */

/* The file of this process. Static, because the process may exit while the plugin's threads run; the path
 * does not change while pid is set. */
static struct {
  _Atomic pid_t pid; /* 0: there is none */
  char path[PATH_BYTES];
} own;

/* A forked child inherits the path but has another process id. */
__attribute__((destructor)) static void remove_stats_at_exit(void) {
  if (atomic_load(&own.pid) == getpid()) unlink(own.path);
}

/* ---- processes ---- */

/* Returns when a process started, in clock ticks since boot; -1: there is no such process. */
static int64_t start_ticks_of(int64_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  if (harp_text_file_read(path, text, sizeof text) <= 0) return -1;
  char *at = strrchr(text, ')'); /* the process's name before it may contain ')' */
  for (unsigned field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  return at ? atoll(at + 1) : -1;
}

static int64_t pid_namespace(void) {
  struct stat st;
  return stat("/proc/self/ns/pid", &st) ? 0 : (int64_t)st.st_ino;
}

/* ---- stale files ---- */

/* Returns whether the process that made a file has ended. Of another PID namespace its number says nothing,
 * but nobody has its lock then; where files cannot be locked, that it is old has to do. */
static bool has_ended(int fd, const struct harp_stats_header *h, int64_t namespace) {
  if (h->pid_namespace == namespace) return start_ticks_of(h->pid) != h->start_ticks;
  return !flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK;
}

/* Returns whether to remove a file: it has this format, it is old, and its process has ended. */
static bool is_stale(int dir_fd, const char *name, int64_t namespace) {
  struct harp_stats_header h;
  struct stat st;
  int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool is_known = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                  read(fd, &h, sizeof h) == (ssize_t)sizeof h && !memcmp(h.magic, HARP_STATS_MAGIC, 8) &&
                  h.format == HARP_STATS_FORMAT;
  int64_t age_ns = (int64_t)harp_clock_ns() - atomic_load_explicit(&h.updated_ns, memory_order_relaxed);
  bool is_old = is_known && (age_ns < 0 || age_ns >= STALE_NS); /* negative: of another boot */
  bool is_removed = is_old && has_ended(fd, &h, namespace);
  close(fd);
  return is_removed;
}

static bool has_suffix(const char *name, const char *suffix) {
  size_t n = strlen(name), m = strlen(suffix);
  return n > m && !strcmp(name + n - m, suffix);
}

/* Removes stale files. Of a directory with more names than are examined, those from another one on each time,
 * so that all are examined in the end, whatever else is in it. */
static void sweep_directory(const char *dir) {
  DIR *d = opendir(dir);
  int64_t namespace = pid_namespace();
  const struct dirent *entry;
  unsigned count = 0;
  if (!d) return;
  while (count < SWEEP_NAMES_MAX && readdir(d)) count++;
  unsigned first = count > SWEEP_FILES_MAX ? (unsigned)(harp_clock_ns() % count) : 0;
  rewinddir(d);
  for (unsigned i = 0; i < count && (entry = readdir(d)); i++)
    if ((i + count - first) % count < SWEEP_FILES_MAX && has_suffix(entry->d_name, ".stats") &&
        is_stale(dirfd(d), entry->d_name, namespace))
      unlinkat(dirfd(d), entry->d_name, 0);
  closedir(d);
}

/* ---- open and close ---- */

static int64_t unix_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns whether the file is in memory, so that writing to its mapping never blocks on a disk. */
static bool is_in_memory(int fd) {
  struct statfs fs;
  return !fstatfs(fd, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static void fill_rings_header(struct harp_stats_header *h, uint64_t at) {
  h->rings = (struct harp_stats_rings_header){
      .at = at,
      .ring_bytes = RING_BYTES,
      .ring_count = tables[HARP_STATS_ENGINES].entry_max,
      .head_bytes = sizeof(struct harp_trace_head),
      .entry_bytes = sizeof(struct harp_trace_entry),
      .heads_at = (int32_t)offsetof(struct harp_trace_ring, heads),
      .events_at = HARP_STATS_EVENTS_AT,
      .events_bytes = harp_trace_schema_bytes,
      .fd = -1,
  };
  HARP_ASSERT(HARP_STATS_EVENTS_AT + harp_trace_schema_bytes <= HARP_STATS_HEADER_BYTES);
  memcpy((char *)h + HARP_STATS_EVENTS_AT, harp_trace_schema, harp_trace_schema_bytes);
}

static void fill_header(struct harp_stats_header *h) {
  uint64_t at = TABLE_ALIGN;
  memcpy(h->magic, HARP_STATS_MAGIC, sizeof h->magic);
  h->format = HARP_STATS_FORMAT;
  h->header_bytes = HARP_STATS_HEADER_BYTES;
  h->pid = getpid();
  h->start_ticks = start_ticks_of(h->pid);
  h->pid_namespace = pid_namespace();
  h->created_unix_ns = unix_ns();
  h->created_ns = (int64_t)harp_clock_ns();
  atomic_store_explicit(&h->updated_ns, h->created_ns, memory_order_relaxed);
  h->schema_at = HARP_STATS_SCHEMA_AT;
  h->schema_bytes = harp_stats_schema_bytes;
  snprintf(h->version, sizeof h->version, "%s", harp_version());
  if (gethostname(h->host, sizeof h->host - 1)) h->host[0] = 0;
  h->table_count = HARP_STATS_TABLE_COUNT;
  for (unsigned t = 0; t < HARP_STATS_TABLE_COUNT; t++) {
    h->tables[t].at = at;
    h->tables[t].entry_bytes = tables[t].entry_bytes;
    h->tables[t].entry_max = tables[t].entry_max;
    at += harp_align_up((uint64_t)tables[t].entry_bytes * tables[t].entry_max, TABLE_ALIGN);
  }
  memcpy((char *)h + HARP_STATS_SCHEMA_AT, harp_stats_schema, harp_stats_schema_bytes);
  fill_rings_header(h, at);
}

/* Returns the file's size without the rings. */
static size_t file_bytes(void) {
  size_t bytes = TABLE_ALIGN;
  for (unsigned t = 0; t < HARP_STATS_TABLE_COUNT; t++)
    bytes += harp_align_up((uint64_t)tables[t].entry_bytes * tables[t].entry_max, TABLE_ALIGN);
  return bytes;
}

/* Allocates disk space; returns 0 or -errno. */
static int allocate_space(int fd, uint64_t at, size_t bytes) {
  int err;
  do err = posix_fallocate(fd, (off_t)at, (off_t)bytes);
  while (err == EINTR);
  return -err;
}

/* Maps the rings, whose memory is allocated when they are taken. Unless the file is in memory they are in a
 * memfd, so that writing to them never blocks on a disk. */
static int map_rings(struct harp_stats_file *file) {
  struct harp_stats_rings_header *h = &file->header->rings;
  size_t bytes = (size_t)h->ring_count * RING_BYTES;
  file->rings_fd = file->fd;
  if (!is_in_memory(file->fd)) {
    file->rings_fd = memfd_create("harp-trace", MFD_CLOEXEC);
    if (file->rings_fd < 0) return -errno;
    harp_files_own(file->rings_fd);
    h->fd = file->rings_fd;
    h->at = 0;
  }
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->rings_fd, (off_t)h->at);
  if (at == MAP_FAILED) return -errno;
  file->rings = at;
  madvise(at, bytes, MADV_DONTFORK);
  return 0;
}

/* Sizes, maps and fills in a new file, which has no reader yet. */
static int map_file(struct harp_stats_file *file) {
  if (ftruncate(file->fd, (off_t)file->bytes)) return -errno;
  int err = allocate_space(file->fd, 0, HARP_STATS_HEADER_BYTES);
  if (err) return err;
  void *at = mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
  if (at == MAP_FAILED) return -errno;
  file->header = at;
  madvise(at, file->bytes, MADV_DONTFORK);
  fill_header(at);
  return map_rings(file);
}

static int create_in_memory(struct harp_stats_file *file) {
  file->fd = memfd_create("harp-stats", MFD_CLOEXEC);
  if (file->fd < 0) return -errno;
  harp_files_own(file->fd);
  return map_file(file);
}

/* Creates the file under a temporary name that readers ignore, then renames it. */
static int create_file(struct harp_stats_file *file, const char *dir) {
  char temporary[PATH_BYTES];
  long long start = (long long)start_ticks_of(file->pid);
  snprintf(temporary, sizeof temporary, "%s/.%d-%lld.new", dir, file->pid, start);
  snprintf(file->path, sizeof file->path, "%s/%d-%lld.stats", dir, file->pid, start);
  if (mkdir(dir, 0755) && errno != EEXIST) return -errno;
  unlink(temporary);
  file->fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file->fd < 0) return -errno;
  harp_files_own(file->fd);
  (void)!flock(file->fd, LOCK_EX | LOCK_NB); /* the lock holds until the process ends; see has_ended() */
  int err = map_file(file);
  if (!err && rename(temporary, file->path)) err = -errno;
  if (err) unlink(temporary);
  return err;
}

static void release_file(struct harp_stats_file *file) {
  if (file->rings) munmap(file->rings, (size_t)tables[HARP_STATS_ENGINES].entry_max * RING_BYTES);
  if (file->rings_fd >= 0 && file->rings_fd != file->fd) harp_files_close(file->rings_fd);
  if (file->header) munmap(file->header, file->bytes);
  if (file->fd >= 0) harp_files_close(file->fd);
  pthread_mutex_destroy(&file->lock);
  free(file);
}

int harp_stats_file_open(struct harp_stats_file **out, const char *dir, struct harp_error *error) {
  struct harp_stats_file *file = calloc(1, sizeof *file);
  int err = -ENOMEM;
  if (file) {
    *file = (struct harp_stats_file){
        .fd = -1, .rings_fd = -1, .pid = getpid(), .bytes = file_bytes(), .id_next = 1};
    pthread_mutex_init(&file->lock, NULL);
    if (dir) sweep_directory(dir);
    err = dir ? create_file(file, dir) : create_in_memory(file);
    if (err) release_file(file);
  }
  if (err)
    return harp_error_set(error, err, "no statistics file in %s: %s", dir ? dir : "memory", strerror(-err));
  if (dir) {
    memcpy(own.path, file->path, sizeof own.path);
    atomic_store(&own.pid, file->pid);
  }
  *out = file;
  return 0;
}

void harp_stats_file_close(struct harp_stats_file *file) {
  if (file->pid == getpid()) {
    atomic_store(&own.pid, 0);
    if (file->path[0]) unlink(file->path);
  }
  release_file(file);
}

const struct harp_stats_header *harp_stats_file_header(const struct harp_stats_file *file) {
  return file->header;
}

void harp_stats_file_touch_mt(struct harp_stats_file *file, harp_ns now) {
  atomic_store_explicit(&file->header->updated_ns, (int64_t)now, memory_order_relaxed);
}

/* ---- entries ---- */

static bool is_taken(const struct harp_stats_file *file, enum harp_stats_table table, unsigned i) {
  return file->taken[table][i / 64] >> i % 64 & 1;
}

static void mark_entries(struct harp_stats_file *file, enum harp_stats_table table, unsigned first,
                         unsigned count, bool taken) {
  for (unsigned i = first; i < first + count; i++) {
    uint64_t bit = 1ull << i % 64, *word = &file->taken[table][i / 64];
    *word = taken ? *word | bit : *word & ~bit;
  }
}

/* Finds the first run of free entries; -1: there is none. */
static int find_free_run(const struct harp_stats_file *file, enum harp_stats_table table, unsigned count) {
  for (unsigned i = 0, run = 0; i < tables[table].entry_max; i++) {
    run = is_taken(file, table, i) ? 0 : run + 1;
    if (run == count) return (int)(i + 1 - count);
  }
  return -1;
}

/* Allocates the disk space of the entries before `end`. */
static int grow_table(struct harp_stats_file *file, enum harp_stats_table table, unsigned end) {
  size_t *backed = &file->backed_bytes[table], bytes = (size_t)end * tables[table].entry_bytes;
  if (bytes <= *backed) return 0;
  bytes = harp_align_up(bytes, GROW_BYTES);
  int err = allocate_space(file->fd, file->header->tables[table].at + *backed, bytes - *backed);
  if (!err) *backed = bytes;
  return err;
}

static void begin_use(struct harp_stats_file *file, enum harp_stats_table table, int first, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    struct harp_stats_head *head = harp_stats_entry(file, table, first + (int)i);
    harp_stats_begin(head);
    memset(head + 1, 0, tables[table].entry_bytes - sizeof *head);
    head->id = file->id_next++;
    harp_stats_end(head);
  }
  mark_entries(file, table, (unsigned)first, count, true);
  struct harp_stats_table_header *t = &file->header->tables[table];
  uint32_t used = atomic_load_explicit(&t->used, memory_order_relaxed);
  atomic_store_explicit(&t->used, HARP_MAX(used, (uint32_t)first + count), memory_order_release);
}

static void log_full(struct harp_stats_file *file, enum harp_stats_table table, int err) {
  if (file->logged_full[table]) return;
  file->logged_full[table] = true;
  HARP_INFO("%s: not all entries of the table `%s` are in the statistics: %s", file->path, tables[table].name,
            err ? strerror(-err) : "it is full");
}

int harp_stats_take(struct harp_stats_file *file, enum harp_stats_table table, unsigned count) {
  int err = 0;
  pthread_mutex_lock(&file->lock);
  int first = find_free_run(file, table, count);
  if (first >= 0 && (err = grow_table(file, table, (unsigned)first + count))) first = -1;
  if (first >= 0)
    begin_use(file, table, first, count);
  else
    atomic_fetch_add_explicit(&file->header->tables[table].missing, count, memory_order_relaxed);
  if (first < 0) log_full(file, table, err);
  pthread_mutex_unlock(&file->lock);
  return first;
}

void harp_stats_give(struct harp_stats_file *file, enum harp_stats_table table, int first, unsigned count) {
  pthread_mutex_lock(&file->lock);
  if (first < 0) atomic_fetch_sub_explicit(&file->header->tables[table].missing, count, memory_order_relaxed);
  for (unsigned i = 0; first >= 0 && i < count; i++) {
    struct harp_stats_head *head = harp_stats_entry(file, table, first + (int)i);
    harp_stats_begin(head);
    head->id = 0;
    harp_stats_end(head);
  }
  if (first >= 0) mark_entries(file, table, (unsigned)first, count, false);
  pthread_mutex_unlock(&file->lock);
}

void *harp_stats_entry(const struct harp_stats_file *file, enum harp_stats_table table, int index) {
  HARP_ASSERT(index >= 0 && (uint32_t)index < tables[table].entry_max);
  return (char *)file->header + file->header->tables[table].at + (size_t)index * tables[table].entry_bytes;
}

/* ---- rings ---- */

struct harp_trace_ring *harp_stats_file_ring(struct harp_stats_file *file, int engine) {
  size_t end = ((size_t)engine + 1) * RING_BYTES;
  int err = 0;
  pthread_mutex_lock(&file->lock);
  if (end > file->rings_backed_bytes)
    err = allocate_space(file->rings_fd, file->header->rings.at + file->rings_backed_bytes,
                         end - file->rings_backed_bytes);
  if (!err) file->rings_backed_bytes = HARP_MAX(file->rings_backed_bytes, end);
  bool must_log = err && !file->logged_no_ring;
  file->logged_no_ring |= must_log;
  pthread_mutex_unlock(&file->lock);
  if (must_log) HARP_INFO("%s: no room for the flight recorder: %s", file->path, strerror(-err));
  if (err) return NULL;
  struct harp_trace_ring *ring = (struct harp_trace_ring *)(file->rings + (size_t)engine * RING_BYTES);
  harp_trace_init(ring);
  return ring;
}

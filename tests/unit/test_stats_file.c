/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics file: entries, readers beside a writer, exits, forks, left files, full and read-only
 * disks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "host/stats_file.h"

static char dir[64], log_text[4096];
static struct harp_error error;

static void keep_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  size_t n = strlen(log_text);
  snprintf(log_text + n, sizeof log_text - n, "%s %s\n", level == HARP_LOG_INFO ? "INFO" : "WARN", text);
}

static int setup(void **state) {
  (void)state;
  snprintf(dir, sizeof dir, "/tmp/harp-stats-XXXXXX");
  log_text[0] = 0;
  harp_log_set_sink(keep_line);
  return mkdtemp(dir) ? 0 : -1;
}

static unsigned file_count(void) {
  unsigned count = 0;
  DIR *d = opendir(dir);
  assert_non_null(d);
  for (const struct dirent *e; (e = readdir(d));) count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
  closedir(d);
  return count;
}

static int teardown(void **state) {
  (void)state;
  char command[96];
  harp_log_set_sink(NULL);
  snprintf(command, sizeof command, "rm -rf %s", dir);
  return system(command);
}

static struct harp_stats_file *open_it(void) {
  struct harp_stats_file *file;
  assert_int_equal(harp_stats_file_open(&file, dir, &error), 0);
  return file;
}

static int is_file(const struct dirent *e) {
  return e->d_name[0] != '.';
}

/* Opens the only file, as another process would. */
static int open_for_reading(void) {
  struct dirent **names;
  char path[512];
  int count = scandir(dir, &names, is_file, alphasort);
  assert_int_equal(count, 1);
  snprintf(path, sizeof path, "%s/%s", dir, names[0]->d_name);
  free(names[0]);
  free(names);
  return open(path, O_RDONLY);
}

static void read_at(uint64_t at, void *to, size_t bytes) {
  int fd = open_for_reading();
  assert_true(fd >= 0);
  assert_int_equal(pread(fd, to, bytes, (off_t)at), bytes);
  close(fd);
}

static struct harp_stats_header header_of(void) {
  struct harp_stats_header h;
  read_at(0, &h, sizeof h);
  return h;
}

static void test_header_and_end(void **state) {
  (void)state;
  char schema[HARP_STATS_HEADER_BYTES];
  struct stat st;
  struct harp_stats_file *file = open_it();
  struct harp_stats_header h = header_of();
  assert_memory_equal(h.magic, HARP_STATS_MAGIC, 8);
  assert_int_equal(h.format, HARP_STATS_FORMAT);
  assert_int_equal(h.pid, getpid());
  assert_true(h.start_ticks > 0 && h.pid_namespace > 0 && h.created_unix_ns > 0);
  assert_int_equal(h.table_count, HARP_STATS_TABLE_COUNT);
  assert_int_equal(h.tables[HARP_STATS_SESSIONS].entry_bytes, sizeof(struct harp_stats_session));
  read_at(h.schema_at, schema, h.schema_bytes);
  assert_memory_equal(schema, harp_stats_schema, harp_stats_schema_bytes);
  int fd = open_for_reading();
  assert_int_equal(fstat(fd, &st), 0);
  close(fd);
  assert_int_equal(st.st_mode & 0777, 0600);
  harp_stats_file_close(file);
  assert_int_equal(file_count(), 0);
}

static void test_entries(void **state) {
  (void)state;
  struct harp_stats_file *file = open_it();
  assert_int_equal(harp_stats_take(file, HARP_STATS_PATHS, 3), 0);
  assert_int_equal(harp_stats_take(file, HARP_STATS_PATHS, 2), 3);
  harp_stats_give(file, HARP_STATS_PATHS, 0, 3);
  assert_int_equal(harp_stats_take(file, HARP_STATS_PATHS, 4), 5);
  assert_int_equal(harp_stats_take(file, HARP_STATS_PATHS, 2), 0);
  struct harp_stats_header h = header_of();
  assert_int_equal(h.tables[HARP_STATS_PATHS].used, 9);
  assert_int_equal(h.tables[HARP_STATS_STREAMS].used, 0);
  struct harp_stats_path p[9];
  read_at(h.tables[HARP_STATS_PATHS].at, p, sizeof p);
  const int64_t ids[] = {10, 11, 0, 4, 5, 6, 7, 8, 9};
  for (unsigned i = 0; i < 9; i++) {
    assert_int_equal(p[i].head.id, ids[i]);
    assert_int_equal(p[i].head.sequence % 2, 0);
  }
  harp_stats_file_close(file);
}

/* What does not fit is counted while it is there, and logged once. */
static void test_full_table(void **state) {
  (void)state;
  struct harp_stats_file *file = open_it();
  assert_int_equal(harp_stats_take(file, HARP_STATS_SESSIONS, 2047), 0);
  assert_int_equal(harp_stats_take(file, HARP_STATS_SESSIONS, 2), -1);
  assert_int_equal(harp_stats_take(file, HARP_STATS_SESSIONS, 3), -1);
  assert_int_equal(header_of().tables[HARP_STATS_SESSIONS].missing, 5);
  harp_stats_give(file, HARP_STATS_SESSIONS, -1, 2);
  assert_int_equal(header_of().tables[HARP_STATS_SESSIONS].missing, 3);
  assert_non_null(strstr(log_text, "INFO "));
  assert_non_null(
      strstr(log_text, "not all entries of the table `session` are in the statistics: it is full\n"));
  assert_null(strstr(strchr(log_text, '\n') + 1, "statistics"));
  harp_stats_file_close(file);
}

/* All paths of a rank with 256 others, all-to-all over eight interfaces. */
static void test_paths_of_a_whole_cluster(void **state) {
  (void)state;
  struct harp_stats_file *file = open_it();
  for (int peer = 0; peer < 256; peer++)
    assert_int_equal(harp_stats_take(file, HARP_STATS_PATHS, 64), 64 * peer);
  assert_int_equal(header_of().tables[HARP_STATS_PATHS].missing, 0);
  harp_stats_file_close(file);
}

/* ---- readers ---- */

static _Atomic bool done;

static void *write_hot(void *arg) {
  struct harp_stats_session *s = arg;
  for (int64_t i = 1; !atomic_load_explicit(&done, memory_order_relaxed); i++) {
    harp_stats_begin(&s->head);
    s->engine = s->peer_pid = s->rtt_ns = s->sent_bytes = s->lost_packets = s->stalls = i;
    harp_stats_end(&s->head);
  }
  return NULL;
}

/* Returns whether an entry was whole, by the rule of stats_layout.h. */
static bool read_whole(const struct harp_stats_session *s, struct harp_stats_session *copy) {
  uint64_t before = atomic_load_explicit((_Atomic uint64_t *)&s->head.sequence, memory_order_acquire);
  memcpy(copy, (const void *)s, sizeof *copy);
  atomic_thread_fence(memory_order_acquire); /* (M) */
  return before % 2 == 0 &&
         atomic_load_explicit((_Atomic uint64_t *)&s->head.sequence, memory_order_relaxed) == before;
}

static void test_no_reader_sees_a_torn_entry(void **state) {
  (void)state;
  enum { READS = 20000, WHOLE = 200 };
  pthread_t writer;
  struct harp_stats_file *file = open_it();
  int entry = harp_stats_take(file, HARP_STATS_SESSIONS, 1);
  struct harp_stats_session *s = harp_stats_entry(file, HARP_STATS_SESSIONS, entry), copy;
  atomic_store(&done, false);
  assert_int_equal(pthread_create(&writer, NULL, write_hot, s), 0);
  unsigned whole = 0;
  for (unsigned i = 0; i < READS || whole < WHOLE; i++) {
    if (!read_whole(s, &copy)) continue;
    whole++;
    assert_int_equal(copy.engine, copy.stalls);
    assert_int_equal(copy.peer_pid, copy.stalls);
    assert_int_equal(copy.rtt_ns, copy.stalls);
    assert_int_equal(copy.sent_bytes, copy.stalls);
    assert_int_equal(copy.lost_packets, copy.stalls);
  }
  atomic_store(&done, true);
  pthread_join(writer, NULL);
  harp_stats_file_close(file);
}

/* ---- processes ---- */

static int exit_code_of(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void test_a_child_neither_has_nor_removes_it(void **state) {
  (void)state;
  struct harp_stats_file *file = open_it();
  pid_t child = fork();
  if (!child) exit(0); /* with all destructors */
  assert_int_equal(exit_code_of(child), 0);
  assert_int_equal(file_count(), 1);
  child = fork();
  if (!child) {
    harp_stats_file_close(file);
    _exit(0);
  }
  assert_int_equal(exit_code_of(child), 0);
  assert_int_equal(file_count(), 1);
  harp_stats_file_close(file);
}

/* A process that opens the file and ends: in order, or as one that is killed. */
static void leave(bool in_order, harp_ns updated_ns) {
  struct harp_stats_file *file;
  pid_t child = fork();
  if (!child) {
    if (harp_stats_file_open(&file, dir, &error)) _exit(1);
    harp_stats_file_touch_mt(file, updated_ns);
    if (in_order) exit(0);
    _exit(0);
  }
  assert_int_equal(exit_code_of(child), 0);
}

static void test_exit_removes_it(void **state) {
  (void)state;
  leave(true, harp_clock_ns());
  assert_int_equal(file_count(), 0);
}

static void test_left_files_are_removed_when_they_are_old(void **state) {
  (void)state;
  leave(false, harp_clock_ns());
  assert_int_equal(file_count(), 1);
  leave(false, harp_clock_ns() + HARP_SEC(100000)); /* the file is of an earlier boot */
  assert_int_equal(file_count(), 2);
  struct harp_stats_file *file = open_it();
  assert_int_equal(file_count(), 2); /* the first, and our own */
  harp_stats_file_close(file);
}

/* A sweep examines some thousands of names; here are more that are never removed. */
static void test_left_files_among_many_others_are_removed_in_the_end(void **state) {
  (void)state;
  enum { OTHERS = 10000, LEFT = 8, SWEEPS_MAX = 256 };
  for (unsigned i = 0; i < OTHERS; i++) {
    char path[96];
    snprintf(path, sizeof path, "%s/%u-1.stats", dir, i);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
  }
  for (unsigned i = 0; i < LEFT; i++) leave(false, harp_clock_ns() + HARP_SEC(100000));
  unsigned sweeps = 0;
  while (file_count() > OTHERS && sweeps++ < SWEEPS_MAX) harp_stats_file_close(open_it());
  assert_int_equal(file_count(), OTHERS);
}

/* Leaves an old file in a PID namespace of its own; its process says so, and ends when it is told to. */
static int leave_in_a_namespace(int told, int says) {
  struct harp_stats_file *file;
  char byte = 0;
  if (unshare(CLONE_NEWPID)) return 1;
  pid_t child = fork();
  if (child) return exit_code_of(child);
  if (harp_stats_file_open(&file, dir, &error)) _exit(2);
  harp_stats_file_touch_mt(file, harp_clock_ns() + HARP_SEC(100000));
  _exit(write(says, &byte, 1) == 1 && read(told, &byte, 1) == 0 ? 0 : 3);
}

/* As a container's does whose directory is the host's. */
static void test_left_files_of_other_namespaces(void **state) {
  (void)state;
  int tell[2], hear[2];
  char byte;
  if (geteuid()) skip();
  assert_int_equal(pipe(tell), 0);
  assert_int_equal(pipe(hear), 0);
  pid_t child = fork();
  if (!child) {
    close(tell[1]);
    _exit(leave_in_a_namespace(tell[0], hear[1]));
  }
  assert_int_equal(read(hear[0], &byte, 1), 1);
  harp_stats_file_close(open_it());
  assert_int_equal(file_count(), 1); /* it lives */
  close(tell[1]);
  assert_int_equal(exit_code_of(child), 0);
  harp_stats_file_close(open_it());
  assert_int_equal(file_count(), 0);
  close(tell[0]), close(hear[0]), close(hear[1]);
}

/* ---- disks ---- */

static void test_nowhere(void **state) {
  (void)state;
  struct harp_stats_file *file;
  assert_int_equal(harp_stats_file_open(&file, "/proc/harp", &error), -ENOENT);
  assert_string_equal(error.text, "no statistics file in /proc/harp: No such file or directory");
}

/* Mounts a small file system in a mount namespace of its own; the exit code is what went wrong there. */
static int on_small_disk(const char *options, int (*body)(void)) {
  pid_t child = fork();
  if (!child) {
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) _exit(100);
    if (mount("none", dir, "tmpfs", 0, options)) _exit(101);
    harp_log_set_sink(keep_line); /* a child has none of its parent */
    _exit(body());
  }
  return exit_code_of(child);
}

static int no_room_for_the_file(void) {
  struct harp_stats_file *file;
  int err = harp_stats_file_open(&file, dir, &error);
  return err != -ENOSPC || file_count() ? 1 : 0;
}

static int no_room_for_entries(void) {
  struct harp_stats_file *file;
  if (harp_stats_file_open(&file, dir, &error)) return 1;
  if (harp_stats_take(file, HARP_STATS_ENGINES, 1)) return 2;
  if (harp_stats_take(file, HARP_STATS_PATHS, 4096) != -1) return 3;
  if (!strstr(log_text, "No space left on device")) return 4;
  return header_of().tables[HARP_STATS_PATHS].missing == 4096 ? 0 : 5;
}

static int read_only(void) {
  struct harp_stats_file *file;
  if (mount("none", dir, NULL, MS_REMOUNT | MS_RDONLY, NULL)) return 1;
  return harp_stats_file_open(&file, dir, &error) == -EROFS ? 0 : 2;
}

static void test_bad_disks(void **state) {
  (void)state;
  if (geteuid()) skip();
  assert_int_equal(on_small_disk("size=8k", no_room_for_the_file), 0);
  assert_int_equal(on_small_disk("size=128k", no_room_for_entries), 0);
  assert_int_equal(on_small_disk("size=1m", read_only), 0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_header_and_end),
      TEST(test_entries),
      TEST(test_full_table),
      TEST(test_paths_of_a_whole_cluster),
      TEST(test_no_reader_sees_a_torn_entry),
      TEST(test_a_child_neither_has_nor_removes_it),
      TEST(test_exit_removes_it),
      TEST(test_left_files_are_removed_when_they_are_old),
      TEST(test_left_files_among_many_others_are_removed_in_the_end),
      TEST(test_left_files_of_other_namespaces),
      TEST(test_nowhere),
      TEST(test_bad_disks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

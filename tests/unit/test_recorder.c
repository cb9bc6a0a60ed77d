/* SPDX-License-Identifier: Apache-2.0 */
/* What engines record while messages move between two of them, and the dumps that they leave. */
#include <dirent.h>
#include <fcntl.h>
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

#include "base/log.h"
#include "engine/pass.h"
#include "engine/peer_life.h"
#include "engine/watch/dump.h"
#include "host/stats_dump.h"
#include "host/stats_file.h"
#include "lib/sides.h"

enum { MESSAGES = 16, BYTES = 100000 };

static char stats_dir[1][HARP_STATS_DIR_BYTES], dump_dir[1][HARP_STATS_DIR_BYTES], log_text[8192];

static void keep_line(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  size_t n = strlen(log_text);
  snprintf(log_text + n, sizeof log_text - n, "%s %s\n", level == HARP_LOG_INFO ? "INFO" : "WARN", text);
}

static int setup(void **state) {
  (void)state;
  snprintf(stats_dir[0], sizeof stats_dir[0], "/tmp/harp-stats-XXXXXX");
  snprintf(dump_dir[0], sizeof dump_dir[0], "/tmp/harp-dumps-XXXXXX");
  sides_now_ns = HARP_SEC(1);
  log_text[0] = 0;
  harp_log_set_sink(keep_line);
  return mkdtemp(stats_dir[0]) && mkdtemp(dump_dir[0]) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  char command[2 * HARP_STATS_DIR_BYTES + 16];
  harp_log_set_sink(NULL);
  harp_stats_set_dirs(stats_dir, 0);
  harp_dump_set_dirs(dump_dir, 0);
  snprintf(command, sizeof command, "rm -rf %s %s", dump_dir[0], stats_dir[0]);
  return system(command);
}

static void open_both(struct side *a, struct side *b) {
  harp_dump_set_dirs(dump_dir, 1);
  harp_stats_set_dirs(stats_dir, 1);
  side_open(a, b, false, 1000, 30);
  side_open(b, a, false, 2000, 30);
  harp_stats_join(a->engine);
  harp_stats_join(b->engine);
  sides_connect(a, b, 0);
}

static void move(struct side *a, struct side *b) {
  static uint8_t from[BYTES], to[MESSAGES][BYTES];
  for (unsigned m = 0; m < MESSAGES; m++) {
    side_submit(a->link, m, from, BYTES);
    side_submit(b->link, m, to[m], BYTES);
  }
  for (harp_ns end = sides_now_ns + HARP_MS(500); sides_now_ns < end; sides_now_ns += HARP_US(20)) {
    harp_engine_pass(a->engine);
    harp_engine_pass(b->engine);
  }
  assert_int_equal(atomic_load(&b->link->requests[MESSAGES - 1].state), HARP_REQUEST_DONE);
}

static unsigned count_of(const struct side *side, enum harp_event event) {
  const struct harp_trace_ring *ring = side->engine->recorder.trace.ring;
  enum harp_trace_part part = harp_trace_part_of(event);
  unsigned count = 0;
  for (uint64_t i = 0; i < atomic_load(&ring->heads[part].count); i++)
    count += harp_trace_slot((struct harp_trace_ring *)ring, part, i)->event == event;
  return count;
}

/* Returns how many dumps there are, and the name of one. */
static unsigned dumps(char *name, size_t bytes) {
  unsigned count = 0;
  DIR *d = opendir(dump_dir[0]);
  assert_non_null(d);
  for (const struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    count++;
    snprintf(name, bytes, "%s/%s", dump_dir[0], e->d_name);
  }
  closedir(d);
  return count;
}

static void test_what_is_recorded(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  move(&a, &b);
  assert_int_equal(count_of(&a, HARP_EVENT_SESSION_OPEN), 1);
  assert_int_equal(count_of(&a, HARP_EVENT_STREAM_OPEN), 1);
  assert_true(count_of(&a, HARP_EVENT_PATH_STATE) > 0);
  assert_int_equal(count_of(&a, HARP_EVENT_SEND_POST), MESSAGES);
  assert_int_equal(count_of(&b, HARP_EVENT_RECV_POST), MESSAGES);
  assert_true(count_of(&a, HARP_EVENT_LOST) > 0 && count_of(&a, HARP_EVENT_TX_AGAIN) > 0);
  assert_true(count_of(&b, HARP_EVENT_RX_GAP) > 0);
  assert_int_equal(count_of(&b, HARP_EVENT_RX_DATA), 0);
  assert_int_equal(a.engine->recorder.trace.ring->flow[0].peer, a.link->peer->stats.entry);
  side_close(&a);
  side_close(&b);
  char name[512];
  assert_int_equal(dumps(name, sizeof name), 0);
}

static void fail_session(struct side *side, const char *why) {
  harp_peer_fail(side->link->peer, HARP_ERR_REMOTE, sides_now_ns, "%s", why);
}

/* A dump is the statistics of the engine, and its ring. */
static void test_a_failure_leaves_a_dump(void **state) {
  (void)state;
  char name[512];
  struct stat st;
  struct harp_stats_header h;
  struct harp_stats_session s;
  struct harp_trace_head head;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  move(&a, &b);
  fail_session(&a, "lost it");
  assert_int_equal(dumps(name, sizeof name), 1);
  int fd = open(name, O_RDONLY);
  assert_int_equal(fstat(fd, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_true(st.st_size < 1 << 20);
  assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
  assert_memory_equal(h.magic, HARP_STATS_MAGIC, 8);
  assert_int_equal(h.rings.ring_count, 1);
  assert_int_equal(h.rings.first, a.engine->stats.entry);
  assert_int_equal(h.rings.dumped_ns, sides_now_ns);
  assert_string_equal(h.rings.why, "a session has failed: host (0.0.0.0) process 7");
  uint64_t at = h.tables[HARP_STATS_SESSIONS].at + (uint64_t)a.link->peer->stats.entry * sizeof s;
  assert_int_equal(pread(fd, &s, sizeof s, (off_t)at), sizeof s);
  assert_string_equal(s.state, "failed");
  assert_int_equal(s.mark, a.link->peer->session.sender->paths[0].stats.first_number);
  int64_t heads = (int64_t)h.rings.at + h.rings.heads_at;
  assert_int_equal(pread(fd, &head, sizeof head, heads + HARP_TRACE_STATE * (int64_t)sizeof head),
                   sizeof head);
  struct harp_trace_entry last;
  assert_int_equal(
      pread(fd, &last, sizeof last, (off_t)(h.rings.at + head.at_bytes + (head.count - 1) * sizeof last)),
      sizeof last);
  assert_int_equal(last.event, HARP_EVENT_SESSION_STATE);
  assert_int_equal(st.st_size, h.rings.at + offsetof(struct harp_trace_ring, heads));
  close(fd);
  assert_non_null(strstr(log_text, name));
  side_close(&a);
  side_close(&b);
  assert_int_equal(dumps(name, sizeof name), 1);
}

/* Many sessions that fail at once leave one dump. */
static void test_dumps_keep_their_distance(void **state) {
  (void)state;
  char name[512];
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  move(&a, &b);
  harp_dump_make(a.link->peer, "first", sides_now_ns);
  harp_dump_make(a.link->peer, "second", sides_now_ns + HARP_DUMP_PAUSE_NS - 1);
  assert_int_equal(dumps(name, sizeof name), 1);
  harp_dump_make(a.link->peer, "third", sides_now_ns + HARP_DUMP_PAUSE_NS);
  assert_int_equal(dumps(name, sizeof name), 2);
  harp_ns now = sides_now_ns;
  for (unsigned i = 0; i < 2 * HARP_DUMPS_OF_PROCESS; i++)
    harp_dump_make(a.link->peer, "more", now += 2 * HARP_DUMP_PAUSE_NS);
  assert_true(dumps(name, sizeof name) < HARP_DUMPS_OF_PROCESS); /* tests before this one made some */
  side_close(&a);
  side_close(&b);
}

/* Without statistics there are dumps. */
static void test_dumps_alone(void **state) {
  (void)state;
  struct harp_stats_file *file;
  struct harp_error error = {0};
  char name[HARP_DUMP_NAME_BYTES], found[512];
  assert_int_equal(harp_stats_file_open(&file, NULL, &error), 0);
  assert_int_equal(harp_stats_take(file, HARP_STATS_ENGINES, 1), 0);
  struct harp_trace_ring *ring = harp_stats_file_ring(file, 0);
  assert_non_null(ring);
  struct harp_stats_dump *d = harp_stats_dump_begin(file, 0);
  assert_int_equal(harp_stats_dump_write(d, ring, "why", 1, dump_dir[0], name), 0);
  harp_stats_dump_drop(d);
  assert_int_equal(dumps(found, sizeof found), 1);
  harp_stats_file_close(file);
}

/* The oldest goes when there are too many; files of others stay. */
static void test_as_many_as_there_may_be(void **state) {
  (void)state;
  struct harp_stats_file *file;
  struct harp_error error = {0};
  char name[HARP_DUMP_NAME_BYTES], first[512], path[512], found[512];
  snprintf(path, sizeof path, "%s/harp-strace.trace", dump_dir[0]);
  FILE *other = fopen(path, "w");
  fputs("not ours", other);
  fclose(other);
  assert_int_equal(harp_stats_file_open(&file, NULL, &error), 0);
  assert_int_equal(harp_stats_take(file, HARP_STATS_ENGINES, 1), 0);
  struct harp_trace_ring *ring = harp_stats_file_ring(file, 0);
  for (unsigned i = 0; i < HARP_DUMPS_MAX + 2; i++) {
    struct harp_stats_dump *d = harp_stats_dump_begin(file, 0);
    assert_int_equal(harp_stats_dump_write(d, ring, "why", 1, dump_dir[0], name), 0);
    harp_stats_dump_drop(d);
    if (i) continue;
    snprintf(first, sizeof first, "%s/%s", dump_dir[0], name);
    const struct timespec past[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, first, past, 0), 0);
  }
  assert_int_equal(dumps(found, sizeof found), HARP_DUMPS_MAX + 1);
  assert_int_equal(access(first, F_OK), -1);
  assert_int_equal(access(path, F_OK), 0);
  harp_stats_file_close(file);
}

/* Processes that write at the same time leave too many: the next dump removes all of these. */
static void test_more_than_there_may_be(void **state) {
  (void)state;
  enum { MORE = 40 };
  struct harp_stats_file *file;
  struct harp_error error = {0};
  char name[HARP_DUMP_NAME_BYTES], path[512], found[512];
  assert_int_equal(harp_stats_file_open(&file, NULL, &error), 0);
  assert_int_equal(harp_stats_take(file, HARP_STATS_ENGINES, 1), 0);
  for (unsigned i = 0; i < HARP_DUMPS_MAX + MORE; i++) {
    snprintf(path, sizeof path, "%s/harp-other-%u-1-1.trace", dump_dir[0], i);
    FILE *dump = fopen(path, "w");
    fputs(HARP_STATS_MAGIC, dump);
    fclose(dump);
    const struct timespec past[2] = {{.tv_sec = 1 + i / 3}, {.tv_sec = 1 + i / 3}};
    assert_int_equal(utimensat(AT_FDCWD, path, past, 0), 0);
  }
  struct harp_stats_dump *d = harp_stats_dump_begin(file, 0);
  assert_int_equal(harp_stats_dump_write(d, harp_stats_file_ring(file, 0), "why", 1, dump_dir[0], name), 0);
  harp_stats_dump_drop(d);
  assert_int_equal(dumps(found, sizeof found), HARP_DUMPS_MAX);
  snprintf(path, sizeof path, "%s/harp-other-%u-1-1.trace", dump_dir[0], HARP_DUMPS_MAX + MORE - 1);
  assert_int_equal(access(path, F_OK), 0);
  harp_stats_file_close(file);
}

/* Runs in a child with a file system of its own: 0, or why not. */
static int fail_on(const char *options) {
  struct side a = {0}, b = {0};
  unsigned long flags = !strcmp(options, "ro") ? MS_RDONLY : 0;
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      mount("tmpfs", dump_dir[0], "tmpfs", flags, flags ? NULL : options))
    return 77;
  harp_log_set_sink(keep_line); /* a child has none of its parent */
  open_both(&a, &b);
  move(&a, &b);
  fail_session(&a, "lost it");
  sides_now_ns += 2 * HARP_DUMP_PAUSE_NS;
  fail_session(&b, "lost it");
  const char *line = strstr(log_text, ": no dump"),
             *why = flags ? "Read-only file system" : "No space left on device";
  char name[512];
  if (!line || strstr(line + 5, "no dump")) return 1; /* one of them */
  if (!strstr(line, why) || !strstr(line, "HARP_DUMP_DIR")) return 2;
  if (dumps(name, sizeof name)) return 3;
  return 0;
}

static void test_bad_disks(void **state) {
  (void)state;
  const char *options[] = {"ro", "size=64k"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(options); i++) {
    int status;
    pid_t child = fork();
    if (!child) _exit(fail_on(options[i]));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip(); /* not root */
    assert_int_equal(WEXITSTATUS(status), 0);
  }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_what_is_recorded),          TEST(test_a_failure_leaves_a_dump), TEST(test_dumps_alone),
      TEST(test_as_many_as_there_may_be),   TEST(test_more_than_there_may_be),  TEST(test_bad_disks),
      TEST(test_dumps_keep_their_distance),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Golden traces: short stories on a virtual clock, whose text is the product's own trace of both ends.
 *
 * Each *.trace file is one: a head that sets it up, an empty line, and the trace. Lines of a head, in this
 * order:
 *
 *   # What happens.
 *   N paths of L lines                            of their largest packets; path i joins ENI i to ENI i
 *   path P from ENI A to ENI B[, standby]
 *   message of B bytes at T us                    from the sender to the receiver, which posts it then
 *   lose datagrams N ...                          of data, in the order of sending
 *   delay SHARE ppm of path P by T us
 *   silence path P from T us [to T us]
 *
 * A difference prints the first line that differs. `make check UPDATE=1` writes the traces anew; what changed
 * is then to be read in the diff. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"

enum { STORIES_MAX = 64, LOST_MAX = 8 };

static struct duo duo;
static uint64_t lost[LOST_MAX];
static unsigned lost_count;

static bool drop_lost(void *context, enum simnet_way way, unsigned path, uint64_t nth, const uint8_t *wire,
                      uint32_t bytes, harp_ns now) {
  (void)context, (void)path, (void)wire, (void)bytes, (void)now;
  if (way != SIMNET_THERE) return true;
  for (unsigned i = 0; i < lost_count; i++) {
    if (lost[i] == nth) return false;
  }
  return true;
}

/* ---- the head of a story ---- */

/* Returns false for a line that describes no path. */
static bool read_path(struct duo_config *c, const char *line) {
  unsigned count, lines, path, from, to;
  if (sscanf(line, "%u paths of %u lines", &count, &lines) == 2) {
    c->path_count = count;
    for (unsigned i = 0; i < count; i++)
      c->paths[i] =
          (struct harp_path_config){.lines_max = lines, .local_eni = (uint8_t)i, .remote_eni = (uint8_t)i};
    return true;
  }
  if (sscanf(line, "path %u from ENI %u to ENI %u", &path, &from, &to) != 3) return false;
  c->paths[path].local_eni = (uint8_t)from;
  c->paths[path].remote_eni = (uint8_t)to;
  c->paths[path].standby = strstr(line, ", standby") != NULL;
  return true;
}

static void start(const struct duo_config *c, const char *file) {
  duo_start(&duo, c);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 32});
  snprintf(duo.label, sizeof duo.label, "story %s", file);
  for (unsigned i = 0; i < c->path_count; i++)
    duo.net.links[SIMNET_THERE][i].delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = HARP_US(20 + 10 * i);
  duo.net.filter = drop_lost;
  lost_count = 0;
}

static void read_losses(const char *list) {
  for (char *end; *list; list = end) {
    assert_true(lost_count < LOST_MAX);
    lost[lost_count++] = strtoull(list, &end, 10);
  }
}

static void read_event(const char *line) {
  static const char lose[] = "lose datagrams ";
  unsigned bytes, path, ppm;
  unsigned long long from_us, to_us;
  if (sscanf(line, "message of %u bytes at %llu us", &bytes, &from_us) == 2) {
    duo_add(&duo, bytes, bytes, duo.now + HARP_US(from_us), duo.now + HARP_US(from_us));
  } else if (!strncmp(line, lose, sizeof lose - 1)) {
    read_losses(line + sizeof lose - 1);
  } else if (sscanf(line, "delay %u ppm of path %u by %llu us", &ppm, &path, &from_us) == 3) {
    duo.net.links[SIMNET_THERE][path].late_ppm = ppm;
    duo.net.links[SIMNET_THERE][path].late_ns = HARP_US(from_us);
  } else {
    int read = sscanf(line, "silence path %u from %llu us to %llu us", &path, &from_us, &to_us);
    if (read < 2) fail_msg("not a line of a story: %s", line);
    harp_ns to_ns = read == 3 ? duo.now + HARP_US(to_us) : HARP_NEVER;
    for (unsigned way = 0; way < SIMNET_WAYS; way++)
      simnet_blackhole(&duo.net.links[way][path], duo.now + HARP_US(from_us), to_ns);
  }
}

/* Reads the head of a story; returns what is behind it, and the number of its line. */
static char *set_up(const char *file, char *text, unsigned *line_number) {
  struct duo_config c = {.seed = 1,
                         .first_number = 100,
                         .window_bytes = 1 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64,
                         .is_one_way = true,
                         .trace = true};
  bool is_started = false;
  char *line;
  for (*line_number = 2; (line = strsep(&text, "\n")) && *line; ++*line_number) {
    if (*line == '#' || (!is_started && read_path(&c, line))) continue;
    if (!is_started) start(&c, file);
    is_started = true;
    read_event(line);
  }
  assert_true(is_started && text);
  return text;
}

/* ---- its trace ---- */

static char *slurp(const char *path) {
  FILE *f = fopen(path, "r");
  char *text = NULL;
  size_t room = 0;
  assert_non_null(f);
  assert_true(getdelim(&text, &room, 0, f) > 0);
  fclose(f);
  return text;
}

/* Replaces what is behind the head. */
static void rewrite(const char *file, const char *trace) {
  char *text = slurp(file), *head_end = strstr(text, "\n\n");
  FILE *f = fopen(file, "w");
  assert_non_null(f);
  assert_non_null(head_end);
  fprintf(f, "%.*s\n\n%s", (int)(head_end - text), text, trace);
  fclose(f);
  free(text);
}

/* `line` of the file is the first that is wanted. */
static void compare(const char *file, unsigned line, const char *is, const char *wanted) {
  const char *a = is, *b = wanted;
  if (!strcmp(is, wanted)) return;
  for (;;) {
    size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
    if (na != nb || memcmp(a, b, na)) {
      print_error("%s:%u differs\n  is:  %.*s\n  was: %.*s\n", file, line, (int)na, a, (int)nb, b);
      break;
    }
    a += na + 1, b += nb + 1, line++;
  }
  fail();
}

static void run(void **state) {
  const char *file = *state, *update = getenv("UPDATE");
  char *golden = slurp(file), *text = NULL;
  unsigned line_number;
  size_t bytes = 0;
  const char *wanted = set_up(file, golden, &line_number);
  duo.trace_out = open_memstream(&text, &bytes);
  assert_non_null(duo.trace_out);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
  harp_ns end = duo.now + HARP_US(200); /* and what follows at once */
  while (duo_step(&duo, end)) {
  }
  fclose(duo.trace_out);
  duo.trace_out = NULL;
  duo_check_buffers(&duo);
  if (update && *update == '1')
    rewrite(file, text);
  else
    compare(file, line_number, text, wanted);
  free(golden);
  free(text);
}

int main(void) {
  static const char here[] = __FILE__;
  struct CMUnitTest tests[STORIES_MAX];
  char pattern[512];
  glob_t files;
  snprintf(pattern, sizeof pattern, "%.*s/*.trace", (int)(strrchr(here, '/') - here), here);
  if (glob(pattern, 0, NULL, &files) || files.gl_pathc > STORIES_MAX) abort();
  for (size_t i = 0; i < files.gl_pathc; i++)
    tests[i] = (struct CMUnitTest){
        .name = strrchr(files.gl_pathv[i], '/') + 1, .test_func = run, .initial_state = files.gl_pathv[i]};
  int failed = _cmocka_run_group_tests("golden", tests, files.gl_pathc, NULL, NULL);
  globfree(&files);
  return failed;
}

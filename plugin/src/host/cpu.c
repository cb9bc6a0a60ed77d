/* SPDX-License-Identifier: Apache-2.0 */
/* sched_setaffinity with masks wide enough for any machine. See cpu.h. */
#include "host/cpu.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_file.h"

/* Larger than cpu_set_t (1024 cores), which cannot name the cores of larger machines. */
struct cpu_mask {
  unsigned long words[HARP_CPU_MAX / (8 * sizeof(unsigned long))];
};

enum { WORD_BITS = 8 * sizeof(unsigned long) };

int harp_cpu_pin_self(const uint16_t *cores, unsigned count) {
  struct cpu_mask mask;
  memset(&mask, 0, sizeof mask);
  if (count == 0) return -EINVAL;
  for (unsigned i = 0; i < count; i++) {
    if (cores[i] >= HARP_CPU_MAX) return -EINVAL;
    mask.words[cores[i] / WORD_BITS] |= 1UL << cores[i] % WORD_BITS;
  }
  return sched_setaffinity(0, sizeof mask, (const cpu_set_t *)(const void *)&mask) < 0 ? -errno : 0;
}

/* The second number of schedstat; the first is the time on a core. */
int harp_cpu_delay_ns(harp_ns *delay_ns) {
  char text[96];
  ssize_t n = harp_text_file_read("/proc/thread-self/schedstat", text, sizeof text);
  if (n <= 0) return n ? (int)n : -EIO;
  char *end;
  (void)strtoull(text, &end, 10);
  if (*end != ' ') return -EPROTO;
  *delay_ns = strtoull(end, NULL, 10);
  return 0;
}

struct trial {
  uint16_t *cores;
  unsigned count, usable_count;
};

static void *try_cores(void *arg) {
  struct trial *t = arg;
  uint16_t refused[HARP_CPU_MAX];
  unsigned refused_count = 0;
  for (unsigned i = 0; i < t->count; i++) {
    uint16_t core = t->cores[i];
    if (harp_cpu_pin_self(&core, 1) == 0)
      t->cores[t->usable_count++] = core;
    else
      refused[refused_count++] = core;
  }
  memcpy(t->cores + t->usable_count, refused, refused_count * sizeof refused[0]);
  return NULL;
}

unsigned harp_cpu_sort_usable(uint16_t *cores, unsigned count) {
  struct trial trial = {cores, HARP_MIN(count, (unsigned)HARP_CPU_MAX), 0};
  pthread_t thread;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int err = pthread_create(&thread, NULL, try_cores, &trial);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (err) return count;
  pthread_join(thread, NULL);
  return trial.usable_count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: published vectors, every kernel against the portable one, copies, and the constants recomputed bit
 * by bit. */
#include "wire/crc32c.h"
#include "wire/crc32c_kernel.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN
#endif
#endif

enum {
  LONGEST_BYTES = 4096,
  SLACK_BYTES = 256,
  PAYLOAD_BYTES = 1408, /* the payload of a packet in Ethernet's MTU */
  GUARD = 0xa5,
};

static uint64_t random_state = 0x9e3779b97f4a7c15;

/* xorshift64, a fixed sequence: a failure repeats itself. */
static uint32_t random32(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 32);
}

static void fill_random(uint8_t *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)random32();
}

/* The definition, a bit at a time. */
static uint32_t crc_by_bits(uint32_t seed, const uint8_t *p, size_t bytes) {
  uint32_t crc = ~seed;

  for (size_t i = 0; i < bytes; i++) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

/* Runs `check` once per kernel that this CPU has, and leaves the best one chosen. */
static void for_each_kernel(void (*check)(void)) {
  harp_crc32c_init((uint64_t)getauxval(AT_HWCAP));
  for (unsigned k = 0; k < HARP_CRC32C_COUNT; k++) {
    if (!harp_crc32c_select((enum harp_crc32c_id)k)) {
      print_message("  (no %s here)\n", harp_crc32c_name((enum harp_crc32c_id)k));
      continue;
    }
    assert_int_equal(harp_crc32c_selected(), k);
    print_message("  %s\n", harp_crc32c_name((enum harp_crc32c_id)k));
    check();
  }
  harp_crc32c_init((uint64_t)getauxval(AT_HWCAP));
}

static void *first_call(void *arg) {
  *(uint32_t *)arg = harp_crc32c(0, "123456789", 9);
  return NULL;
}

/* Must run first: nothing has called init yet. */
static void test_first_call_from_many_threads(void **state) {
  pthread_t thread[8];
  uint32_t crc[8];

  (void)state;
  for (size_t i = 0; i < 8; i++) assert_int_equal(pthread_create(&thread[i], NULL, first_call, &crc[i]), 0);
  for (size_t i = 0; i < 8; i++) {
    assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(crc[i], 0xe3069283);
  }
}

static void check_vectors(void) {
  static const uint8_t read_pdu[48] = {
      0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
  uint8_t p[48], copy[48];
  struct {
    uint32_t crc;
    size_t bytes;
    uint8_t data[48];
  } v[6] = {{0x8a9136aa, 32, {0}}, {0x62a8ab43, 32, {0}}, {0x46dd794e, 32, {0}},
            {0x113fdb5c, 32, {0}}, {0xd9963a56, 48, {0}}, {0xe3069283, 9, "123456789"}};

  for (size_t i = 0; i < 32; i++) {
    v[1].data[i] = 0xff;
    v[2].data[i] = (uint8_t)i;
    v[3].data[i] = (uint8_t)(31 - i);
  }
  memcpy(v[4].data, read_pdu, 48);
  for (size_t i = 0; i < HARP_ARRAY_COUNT(v); i++) {
    memcpy(p, v[i].data, 48);
    assert_int_equal(crc_by_bits(0, p, v[i].bytes), v[i].crc);
    assert_int_equal(harp_crc32c(0, p, v[i].bytes), v[i].crc);
    assert_int_equal(harp_crc32c_copy(0, copy, p, v[i].bytes), v[i].crc);
    assert_memory_equal(copy, p, v[i].bytes);
  }
  assert_int_equal(harp_crc32c(0x12345678, p, 0), 0x12345678);
  assert_int_equal(harp_crc32c_copy(0x12345678, copy, p, 0), 0x12345678);
}

static void test_vectors(void **state) {
  (void)state;
  for_each_kernel(check_vectors);
}

static void check_all_lengths(void) {
  static uint8_t src[LONGEST_BYTES + SLACK_BYTES], dst[LONGEST_BYTES + 2 * SLACK_BYTES];

  fill_random(src, sizeof(src));
  for (size_t n = 0; n <= LONGEST_BYTES; n++) {
    const uint8_t *from = src + random32() % 128;
    size_t at = SLACK_BYTES / 2 + random32() % 128;
    size_t before = at, after;
    uint32_t seed = n % 16 ? random32() : 0;
    uint32_t expected = harp_crc32c_portable.crc(seed, from, n);

    assert_int_equal(harp_crc32c(seed, from, n), expected);
    memset(dst, GUARD, sizeof(dst));
    assert_int_equal(harp_crc32c_copy(seed, dst + at, from, n), expected);
    assert_memory_equal(dst + at, from, n);
    while (before && dst[before - 1] == GUARD) before--;
    for (after = at + n; after < sizeof(dst) && dst[after] == GUARD; after++) {
    }
    assert_int_equal(before, 0);
    assert_int_equal(after, sizeof(dst));
  }
}

static void test_all_lengths(void **state) {
  (void)state;
  for_each_kernel(check_all_lengths);
}

/* Each way that dst and src can stand in a cache line, at lengths on both sides of every kernel's
 * thresholds. */
static void check_all_alignments(void) {
  static const size_t lengths[] = {127, 128, 191, 192, 255, 256, 320,
                                   511, 512, 515, 575, 576, 768, PAYLOAD_BYTES};
  static uint8_t src[2048], dst[2048];

  fill_random(src, sizeof(src));
  for (size_t i = 0; i < HARP_ARRAY_COUNT(lengths); i++)
    for (size_t at = 0; at < 64; at++)
      for (size_t from = 0; from < 64; from += 7) {
        uint32_t seed = random32();
        memset(dst, GUARD, sizeof(dst));
        assert_int_equal(harp_crc32c_copy(seed, dst + 64 + at, src + from, lengths[i]),
                         harp_crc32c_portable.crc(seed, src + from, lengths[i]));
        assert_memory_equal(dst + 64 + at, src + from, lengths[i]);
        assert_int_equal(dst[64 + at - 1], GUARD);
        assert_int_equal(dst[64 + at + lengths[i]], GUARD);
      }
}

static void test_all_alignments(void **state) {
  (void)state;
  for_each_kernel(check_all_alignments);
}

/* Inputs of none to three braids, a few bytes more and less. */
static void check_braids(void) {
  static uint8_t src[3 * HARP_CRC32C_BRAID_BYTES + 2 * SLACK_BYTES];

  fill_random(src, sizeof(src));
  for (size_t braids = 1; braids <= 3; braids++)
    for (size_t more = 0; more < 2 * SLACK_BYTES; more += 1 + more / 5) {
      const uint8_t *from = src + random32() % 64;
      size_t n = braids * HARP_CRC32C_BRAID_BYTES + more - SLACK_BYTES;
      uint32_t seed = random32();

      assert_int_equal(harp_crc32c(seed, from, n), harp_crc32c_portable.crc(seed, from, n));
    }
}

static void test_braids(void **state) {
  (void)state;
  for_each_kernel(check_braids);
}

static void check_continuation(void) {
  static uint8_t p[9000], copy[9000];

  fill_random(p, sizeof(p));
  for (int round = 0; round < 200; round++) {
    uint32_t whole = crc_by_bits(7, p, 3000), crc = 7;
    size_t done = 0;

    while (done < 3000) {
      size_t n = random32() % 1500;
      if (n > 3000 - done) n = 3000 - done;
      crc = random32() % 2 ? harp_crc32c(crc, p + done, n) : harp_crc32c_copy(crc, copy + done, p + done, n);
      done += n;
    }
    assert_int_equal(crc, whole);
    p[random32() % 3000]++;
  }
  assert_int_equal(harp_crc32c(0, p, 9000), crc_by_bits(0, p, 9000));
  assert_int_equal(harp_crc32c_copy(0, copy, p, 8832), crc_by_bits(0, p, 8832));
}

static void test_continuation(void **state) {
  (void)state;
  for_each_kernel(check_continuation);
}

/* Both buffers end, and begin, at a page that can't be touched. */
static void check_page_edges(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *map = mmap(NULL, 6 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint8_t *src = map + page, *dst = map + 4 * page;

  assert_true(map != MAP_FAILED);
  assert_int_equal(mprotect(src, page, PROT_READ | PROT_WRITE), 0);
  assert_int_equal(mprotect(dst, page, PROT_READ | PROT_WRITE), 0);
  fill_random(src, page);
  for (size_t n = 0; n <= 1500; n++) {
    uint32_t at_start = harp_crc32c_portable.crc(n & 1, src, n);
    uint32_t at_end = harp_crc32c_portable.crc(n & 1, src + page - n, n);

    assert_int_equal(harp_crc32c(n & 1, src, n), at_start);
    assert_int_equal(harp_crc32c(n & 1, src + page - n, n), at_end);
    assert_int_equal(harp_crc32c_copy(n & 1, dst, src, n), at_start);
    assert_int_equal(harp_crc32c_copy(n & 1, dst + page - n, src + page - n, n), at_end);
    assert_int_equal(harp_crc32c_copy(n & 1, dst + page - n, src, n), at_start);
    assert_int_equal(harp_crc32c_copy(n & 1, dst, src + page - n, n), at_end);
  }
  munmap(map, 6 * page);
}

static void test_page_edges(void **state) {
  (void)state;
  for_each_kernel(check_page_edges);
}

struct scribbler {
  uint8_t *target; /* written by the thread without any lock: that is the point */
  size_t bytes;
  bool stop;
};

__attribute__((no_sanitize("thread"))) static void *scribble(void *arg) {
  struct scribbler *s = arg;
  uint64_t n = 0;

  while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED))
    for (size_t i = 0; i < s->bytes; i += 8)
      __atomic_store_n((uint64_t *)(void *)(s->target + i), n++, __ATOMIC_RELAXED);
  return NULL;
}

/* While a thread keeps changing the source, the checksum is still that of what was stored. Goes on until
 * enough copies had the source change under them; on a busy machine that waits for the thread to get a
 * CPU. */
static void check_changing_source(void) {
  enum { ENOUGH_CHANGED = 20, YIELD_EVERY = 4096, MOST_SECONDS = 60 };
  static HARP_CACHE_ALIGNED uint8_t src[PAYLOAD_BYTES], dst[PAYLOAD_BYTES + 64];
  static const size_t lengths[] = {44, 100, 128, 300, PAYLOAD_BYTES - 1, PAYLOAD_BYTES};
  struct scribbler s = {.target = src, .bytes = sizeof(src)};
  pthread_t thread;
  int changed = 0;
  time_t give_up = time(NULL) + MOST_SECONDS;

  assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
  for (int round = 0; changed < ENOUGH_CHANGED; round++) {
    if (round % YIELD_EVERY == YIELD_EVERY - 1) {
      if (time(NULL) > give_up) break;
      sched_yield();
    }
    size_t n = lengths[(size_t)round % HARP_ARRAY_COUNT(lengths)], at = (size_t)round % 64;
    uint32_t crc = harp_crc32c_copy(1, dst + at, src, n);

    changed += memcmp(dst + at, src, n) != 0;
    assert_int_equal(crc, harp_crc32c(1, dst + at, n));
  }
  __atomic_store_n(&s.stop, true, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  assert_true(changed > 0);
}

static void test_changing_source(void **state) {
  (void)state;
#ifdef UNDER_TSAN
  skip(); /* the race is wanted */
#endif
  for_each_kernel(check_changing_source);
}

/* Returns x^power mod P, reflected. */
static uint32_t x_to_the(unsigned power) {
  uint32_t r = 0x80000000;

  while (power--) r = (r >> 1) ^ (r & 1 ? 0x82f63b78u : 0);
  return r;
}

static void test_constants(void **state) {
  (void)state;
  for (unsigned d = 1; d <= 16; d++) {
    assert_int_equal(harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(d)][0], x_to_the(64 * (2 * d + 1) - 33));
    assert_int_equal(harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(d)][1], x_to_the(64 * (2 * d) - 33));
  }
  assert_int_equal(harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(0)][0], 0);
  assert_int_equal(harp_crc32c_fold[HARP_CRC32C_FOLD_ROW(0)][1], 0);
  for (unsigned m = 1; m < HARP_CRC32C_JOIN_COUNT; m++)
    assert_int_equal(harp_crc32c_join[m], x_to_the(64 * 8 * m - 33));
  assert_int_equal(harp_crc32c_braid[0], x_to_the(8 * HARP_CRC32C_BRAID_CHAIN_BYTES - 33));
  assert_int_equal(harp_crc32c_braid[1], x_to_the(8 * HARP_CRC32C_BRAID_BYTES - 33));
}

static void test_choice(void **state) {
  (void)state;
  harp_crc32c_init((uint64_t)getauxval(AT_HWCAP));
  assert_true(harp_crc32c_select(HARP_CRC32C_PORTABLE));
  assert_int_equal(harp_crc32c_selected(), HARP_CRC32C_PORTABLE);
#if defined(__x86_64__)
  assert_false(harp_crc32c_select(HARP_CRC32C_ARM64));
#else
  assert_false(harp_crc32c_select(HARP_CRC32C_AVX512));
#endif
  assert_int_equal(harp_crc32c_selected(), HARP_CRC32C_PORTABLE);
#if defined(__aarch64__)
  harp_crc32c_init(0);
  assert_int_equal(harp_crc32c_selected(), HARP_CRC32C_PORTABLE);
#endif
  for (unsigned k = 0; k < HARP_CRC32C_COUNT; k++)
    assert_true(strlen(harp_crc32c_name((enum harp_crc32c_id)k)) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_first_call_from_many_threads),
      cmocka_unit_test(test_vectors),
      cmocka_unit_test(test_constants),
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_all_lengths),
      cmocka_unit_test(test_all_alignments),
      cmocka_unit_test(test_braids),
      cmocka_unit_test(test_continuation),
      cmocka_unit_test(test_page_edges),
      cmocka_unit_test(test_changing_source),
  };
  return cmocka_run_group_tests_name("crc32c", tests, NULL, NULL);
}

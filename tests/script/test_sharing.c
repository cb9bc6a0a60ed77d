/* SPDX-License-Identifier: Apache-2.0 */
/* Several connections that share a bottleneck, on the virtual clock: fairness among themselves and towards a
 * flow that gives way only to loss, incast, and how long the queue grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/crowd.h"

enum { FLOWS = 8, MESSAGES = 128, GBIT = 125000000 };
static struct duo duos[FLOWS];
static struct simnet_wire wire;

/* `count` connections of `bytes` messages over one wire; flow i begins i * stagger_ns later. */
static void start(unsigned count, uint32_t lines, harp_ns delay_ns, uint32_t in_flight, uint32_t bytes,
                  harp_ns stagger_ns) {
  for (unsigned i = 0; i < count; i++) {
    struct duo_config c = {.seed = 100 + i,
                           .path_count = 1,
                           .paths = {{.lines_max = lines}},
                           .window_bytes = 4 << 20,
                           .cc = &harp_cc_target,
                           .superframe_packets = 64,
                           .is_one_way = true};
    duo_start(&duos[i], &c);
    snprintf(duos[i].label, sizeof duos[i].label, "flow %u", i);
    duo_open(&duos[i], &(struct duo_stream_config){.in_flight_max = in_flight});
    duos[i].net.links[SIMNET_THERE][0].wire = &wire;
    duos[i].net.links[SIMNET_THERE][0].delay_ns = duos[i].net.links[SIMNET_BACK][0].delay_ns = delay_ns;
    harp_ns at = duos[i].now + stagger_ns * i;
    for (unsigned k = 0; k < MESSAGES; k++) duo_add(&duos[i], bytes, bytes, at, at);
  }
}

/* Runs to `until`; fills in what each flow received from `from` on. */
static void measure(unsigned count, harp_ns from, harp_ns until, uint64_t *got) {
  crowd_run(duos, count, from);
  for (unsigned i = 0; i < count; i++) got[i] = crowd_received_bytes(&duos[i]);
  crowd_run(duos, count, until);
  for (unsigned i = 0; i < count; i++) got[i] = crowd_received_bytes(&duos[i]) - got[i];
}

struct net {
  uint64_t rate_bytes_s;
  uint32_t queue_bytes, lines;
  harp_ns delay_ns;
};
static const struct net nets[] = {
    {1 * (uint64_t)GBIT, 256 << 10, 11, HARP_US(50)},  {1 * (uint64_t)GBIT, 1 << 20, 11, HARP_US(50)},
    {1 * (uint64_t)GBIT, 4 << 20, 11, HARP_US(50)},    {2 * (uint64_t)GBIT, 1 << 20, 69, HARP_US(50)},
    {10 * (uint64_t)GBIT, 512 << 10, 69, HARP_US(20)}, {10 * (uint64_t)GBIT, 4 << 20, 11, HARP_US(100)},
};

static void print_case(const char *what, const struct net *n) {
  print_message("%s, %llu Gbit/s, queue %u KiB, %u lines:", what, (unsigned long long)n->rate_bytes_s / GBIT,
                n->queue_bytes >> 10, n->lines);
}

static void test_equal_flows_share(void **state) {
  (void)state;
  for (size_t k = 0; k < HARP_ARRAY_COUNT(nets); k++) {
    const struct net *n = &nets[k];
    uint64_t got[FLOWS], sum = 0;
    wire = (struct simnet_wire){.rate_bytes_s = n->rate_bytes_s, .queue_bytes = n->queue_bytes};
    harp_ns span = (harp_ns)(220u << 20) * 1000 / (n->rate_bytes_s / 1000000), stagger = span / 100;
    start(FLOWS, n->lines, n->delay_ns, 16, 256 << 10, stagger);
    harp_ns begin = duos[0].now + span / 4;
    measure(FLOWS, begin, begin + span / 2, got);
    for (unsigned i = 0; i < FLOWS; i++) sum += got[i];
    uint32_t jain = crowd_jain_permille(got, FLOWS);
    uint32_t used = (uint32_t)(sum * HARP_MS(1) / (span / 2) * HARP_MS(1) / n->rate_bytes_s);
    print_case("8 equal flows", n);
    print_message(" Jain %u, used %u permille, queue at most %llu KiB, %llu drops\n", jain, used,
                  (unsigned long long)wire.queue_max_bytes >> 10, (unsigned long long)wire.drops);
    assert_true(jain >= 950);
    assert_true(used >= 900);
  }
}

static void test_nobody_is_starved_by_loss_based_flows(void **state) {
  (void)state;
  for (size_t k = 0; k < HARP_ARRAY_COUNT(nets); k++) {
    const struct net *n = &nets[k];
    uint64_t got[2];
    wire = (struct simnet_wire){.rate_bytes_s = n->rate_bytes_s, .queue_bytes = n->queue_bytes};
    harp_ns span = (harp_ns)(40u << 20) * 1000 / (n->rate_bytes_s / 1000000);
    start(2, n->lines, n->delay_ns, 32, 320 << 10, 0);
    duos[0].ends[0].sender->paths[0].cc.ops = &harp_cc_reno;
    measure(2, duos[0].now + span / 8, duos[0].now + span, got);
    uint64_t sum = got[0] + got[1];
    print_case("beside reno", n);
    print_message(" reno %llu, delay %llu permille, used %llu\n", (unsigned long long)(got[0] * 1000 / sum),
                  (unsigned long long)(got[1] * 1000 / sum),
                  (unsigned long long)(sum * HARP_MS(1) / (span * 7 / 8) * HARP_MS(1) / n->rate_bytes_s));
    assert_true(got[0] * 10 >= sum * 3);
  }
}

static int by_size(const void *a, const void *b) {
  const harp_ns *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Eight senders, one receiver, 64 KiB at a time with two under way. */
static void test_incast_is_orderly(void **state) {
  (void)state;
  static harp_ns took[FLOWS * MESSAGES];
  for (size_t k = 0; k < HARP_ARRAY_COUNT(nets); k++) {
    const struct net *n = &nets[k];
    wire = (struct simnet_wire){.rate_bytes_s = n->rate_bytes_s, .queue_bytes = n->queue_bytes};
    start(FLOWS, n->lines, n->delay_ns, 2, 64 << 10, 0);
    harp_ns begin = duos[0].now, end = 0;
    assert_true(crowd_run(duos, FLOWS, begin + HARP_SEC(20)));
    size_t count = 0;
    for (unsigned i = 0; i < FLOWS; i++) {
      for (unsigned m = 0; m < MESSAGES; m++) {
        took[count++] = duos[i].messages[m].received_at - duos[i].messages[m].posted_at;
        end = HARP_MAX(end, duos[i].messages[m].received_at);
      }
    }
    qsort(took, count, sizeof *took, by_size);
    harp_ns median = took[count / 2], p99 = took[count * 99 / 100];
    uint64_t total = (uint64_t)count * (64 << 10);
    uint32_t used = (uint32_t)(total * HARP_MS(1) / (end - begin) * HARP_MS(1) / n->rate_bytes_s);
    print_case("incast", n);
    print_message(" used %u permille, 64 KiB in %llu us, p99 %llu us, queue at most %llu KiB, %llu drops\n",
                  used, (unsigned long long)median / 1000, (unsigned long long)p99 / 1000,
                  (unsigned long long)wire.queue_max_bytes >> 10, (unsigned long long)wire.drops);
    assert_true(used >= 900);
    assert_true(p99 < 5 * median);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_flows_share),
      cmocka_unit_test(test_nobody_is_starved_by_loss_based_flows),
      cmocka_unit_test(test_incast_is_orderly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ENIs that a connection joins, and by how many paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/rng.h"
#include "proto/pairing.h"

static struct harp_pairing out[HARP_PATHS_MAX];

static struct harp_endpoint host(unsigned enis, unsigned ports, const uint32_t *speeds) {
  struct harp_endpoint e = {.path_count = (uint16_t)ports, .eni_count = (uint16_t)enis};
  for (unsigned i = 0; i < enis; i++) {
    e.enis[i] = (struct harp_endpoint_eni){
        .family = 4, .mtu = 1500, .port_count = 16, .speed_mbps = speeds ? speeds[i] : 0};
  }
  return e;
}

/* The primary paths between two ENIs. */
static unsigned primaries(unsigned count, unsigned client_eni, unsigned server_eni) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++)
    n += out[i].client_eni == client_eni && out[i].server_eni == server_eni && !out[i].standby;
  return n;
}

static unsigned pairs_with_a_path(unsigned count) {
  uint64_t seen = 0;
  for (unsigned i = 0; i < count; i++) seen |= 1ull << (out[i].client_eni * 8 + out[i].server_eni);
  return harp_popcount(seen);
}

static void test_one_pair_has_its_ports(void **state) {
  (void)state;
  struct harp_endpoint a = host(1, 4, NULL), b = host(1, 8, NULL);
  assert_int_equal(harp_pairing_make(&a, &b, out), 4);
  for (unsigned i = 0; i < 4; i++) {
    assert_false(out[i].standby);
    assert_int_equal(out[i].client_port, i);
    assert_int_equal(out[i].server_port, i);
  }
  a.enis[0].port_count = 1; /* the other side's ports distinguish them */
  assert_int_equal(harp_pairing_make(&a, &b, out), 4);
  assert_int_equal(out[3].client_port, 0);
  assert_int_equal(out[3].server_port, 3);
}

/* ENIs with one port each have one path, whatever others of the endpoint have. */
static void test_no_two_paths_have_the_same_ports(void **state) {
  (void)state;
  struct harp_endpoint a = host(3, 8, NULL), b = host(2, 8, NULL);
  a.enis[1].port_count = b.enis[0].port_count = b.enis[1].port_count = 1;
  a.enis[2].port_count = 3;
  unsigned n = harp_pairing_make(&a, &b, out);
  for (unsigned i = 0; i < n; i++)
    for (unsigned k = 0; k < i; k++) assert_memory_not_equal(&out[i], &out[k], sizeof out[i] - 1);
  assert_true(pairs_with_a_path(n) == 6);
}

static void test_equals_pair_by_index(void **state) {
  (void)state;
  struct harp_endpoint a = host(4, 2, NULL), b = host(4, 2, NULL);
  unsigned n = harp_pairing_make(&a, &b, out);
  assert_int_equal(n, 8 + 12 * 2);
  for (unsigned i = 0; i < 4; i++) {
    assert_int_equal(primaries(n, i, i), 2);
    assert_int_equal(out[i].client_eni, i); /* the first paths use every ENI */
    assert_false(out[i].standby);
  }
  assert_int_equal(pairs_with_a_path(n), 16);
}

/* Whatever the order, as networks may join only those of one subnet. */
static void test_similar_addresses_pair(void **state) {
  (void)state;
  struct harp_endpoint a = host(4, 1, NULL), b = host(4, 1, NULL);
  for (unsigned turn = 0; turn < 4; turn++) {
    for (unsigned i = 0; i < 4; i++) {
      memcpy(a.enis[i].addr, (const uint8_t[]){10, 77, (uint8_t)i, 1}, 4);
      memcpy(b.enis[i].addr, (const uint8_t[]){10, 77, (uint8_t)((i + turn) % 4), 2}, 4);
    }
    unsigned n = harp_pairing_make(&a, &b, out);
    for (unsigned i = 0; i < 4; i++) {
      assert_int_equal(primaries(n, (i + turn) % 4, i), 1);
      assert_int_equal(out[i].client_eni, i); /* the client's first has the first path */
    }
  }
  struct harp_endpoint one = host(1, 1, NULL), two = host(2, 1, NULL);
  one.enis[0].addr[15] = 5;
  two.enis[0].addr[15] = 2, two.enis[1].addr[15] = 4;
  assert_int_equal(primaries(harp_pairing_make(&one, &two, out), 0, 1), 1);
}

static void test_eight_by_eight_is_complete(void **state) {
  (void)state;
  struct harp_endpoint a = host(8, 1, NULL), b = host(8, 1, NULL);
  assert_int_equal(harp_pairing_make(&a, &b, out), 64);
  assert_int_equal(pairs_with_a_path(64), 64);
  a.path_count = b.path_count = 16; /* half of the places are for standby pairs, evenly */
  assert_int_equal(harp_pairing_make(&a, &b, out), 64);
  unsigned by_client[8] = {0}, by_server[8] = {0};
  for (unsigned i = 0; i < 64; i++) {
    by_client[out[i].client_eni] += out[i].standby;
    by_server[out[i].server_eni] += out[i].standby;
  }
  for (unsigned i = 0; i < 8; i++) {
    assert_int_equal(primaries(64, i, i), 4);
    assert_in_range(by_client[i], 3, 5);
    assert_in_range(by_server[i], 3, 5);
  }
}

static void test_two_serve_eight(void **state) {
  (void)state;
  struct harp_endpoint a = host(2, 1, NULL), b = host(8, 1, NULL);
  unsigned n = harp_pairing_make(&a, &b, out), load[2] = {0};
  assert_int_equal(n, 16);
  assert_int_equal(pairs_with_a_path(n), 16);
  for (unsigned s = 0; s < 8; s++) {
    assert_int_equal(primaries(n, 0, s) + primaries(n, 1, s), 1);
    load[primaries(n, 1, s)]++;
  }
  assert_int_equal(load[0], 4);
  assert_int_equal(harp_pairing_make(&b, &a, out), 16); /* and the other way round */
  for (unsigned c = 0; c < 8; c++) assert_int_equal(primaries(16, c, 0) + primaries(16, c, 1), 1);
}

static void test_speeds_weigh(void **state) {
  (void)state;
  const uint32_t slow_fast[] = {1000, 4000}, fast_slow[] = {4000, 1000};
  struct harp_endpoint a = host(2, 1, slow_fast), b = host(2, 1, fast_slow);
  unsigned n = harp_pairing_make(&a, &b, out);
  assert_int_equal(primaries(n, 1, 0), 1);
  assert_int_equal(primaries(n, 0, 1), 1);
  assert_int_equal(primaries(n, 0, 0) + primaries(n, 1, 1), 0);
  const uint32_t one_to_four[] = {1000, 4000};
  struct harp_endpoint few = host(2, 1, one_to_four), many = host(5, 1, NULL);
  for (unsigned i = 0; i < 5; i++) many.enis[i].speed_mbps = 1000;
  n = harp_pairing_make(&few, &many, out);
  unsigned slow = 0;
  for (unsigned s = 0; s < 5; s++) slow += primaries(n, 0, s);
  assert_int_equal(slow, 1);
  /* An unknown speed is no reason to leave an ENI out. */
  many.enis[4].speed_mbps = 0;
  n = harp_pairing_make(&few, &many, out);
  assert_int_equal(primaries(n, 0, 4) + primaries(n, 1, 4), 1);
}

static void test_families_do_not_mix(void **state) {
  (void)state;
  struct harp_endpoint a = host(2, 2, NULL), b = host(2, 2, NULL);
  a.enis[0].family = b.enis[1].family = 6;
  unsigned n = harp_pairing_make(&a, &b, out);
  assert_int_equal(n, 4);
  assert_int_equal(primaries(n, 0, 1), 2);
  assert_int_equal(primaries(n, 1, 0), 2);
  b.enis[1].family = 4;
  a.enis[1].family = 6;
  assert_int_equal(harp_pairing_make(&a, &b, out), 0);
}

/* What holds for every two hosts, and that both sides come to the same whoever counts more ENIs. */
static void test_every_eni_has_a_partner(void **state) {
  (void)state;
  struct rng r = {7};
  for (unsigned round = 0; round < 3000; round++) {
    struct harp_endpoint e[2];
    for (unsigned k = 0; k < 2; k++) {
      e[k] = host((unsigned)rng_between(&r, 1, 8), (unsigned)rng_between(&r, 1, 16), NULL);
      for (unsigned i = 0; i < e[k].eni_count; i++) {
        e[k].enis[i].family = rng_below(&r, 4) ? 4 : 6;
        e[k].enis[i].speed_mbps = (uint32_t)rng_below(&r, 4) * 25000;
        e[k].enis[i].port_count = (uint16_t)rng_between(&r, 1, 16);
      }
    }
    unsigned n = harp_pairing_make(&e[0], &e[1], out), used[2] = {0};
    bool standby = false;
    for (unsigned i = 0; i < n; i++) {
      const struct harp_endpoint_eni *c = &e[0].enis[out[i].client_eni], *s = &e[1].enis[out[i].server_eni];
      assert_true(out[i].client_eni < e[0].eni_count && out[i].server_eni < e[1].eni_count);
      assert_true(out[i].client_port < c->port_count && out[i].server_port < s->port_count);
      assert_int_equal(c->family, s->family);
      assert_true(out[i].standby >= standby);
      standby = out[i].standby;
      if (standby) continue;
      used[0] |= 1u << out[i].client_eni;
      used[1] |= 1u << out[i].server_eni;
    }
    for (unsigned k = 0; k < 2; k++) {
      for (unsigned i = 0; i < e[k].eni_count; i++) {
        bool partner = false;
        for (unsigned j = 0; j < e[!k].eni_count; j++) partner |= e[!k].enis[j].family == e[k].enis[i].family;
        assert_int_equal(used[k] >> i & 1, partner);
      }
    }
  }
}

/* One for each primary pair whose ENIs both accept them, behind all others. */
static void test_tcp_paths_come_last(void **state) {
  (void)state;
  struct harp_endpoint a = host(3, 2, NULL), b = host(2, 2, NULL);
  unsigned without = harp_pairing_make(&a, &b, out);
  a.enis[0].tcp_port = a.enis[1].tcp_port = a.enis[2].tcp_port = b.enis[0].tcp_port = 1000;
  unsigned count = harp_pairing_make(&a, &b, out);
  assert_true(count > without);
  for (unsigned i = 0; i < count; i++) {
    assert_int_equal(out[i].is_tcp, i >= without);
    if (!out[i].is_tcp) continue;
    assert_int_equal(out[i].server_eni, 0);
    assert_false(out[i].standby);
    assert_true(primaries(without, out[i].client_eni, 0) > 0);
  }
  /* Both sides see the same. */
  static struct harp_pairing other[HARP_PATHS_MAX];
  memcpy(other, out, sizeof other);
  assert_int_equal(harp_pairing_make(&b, &a, out), count);
  for (unsigned i = without; i < count; i++) assert_int_equal(out[i].client_eni, other[i].server_eni);
}

/* However many datagram paths there are. */
static void test_tcp_paths_find_room(void **state) {
  (void)state;
  struct harp_endpoint a = host(8, 16, NULL), b = host(8, 16, NULL);
  for (unsigned i = 0; i < 8; i++) a.enis[i].tcp_port = b.enis[i].tcp_port = 1;
  unsigned count = harp_pairing_make(&a, &b, out), tcp = 0;
  assert_true(count <= HARP_PATHS_MAX);
  for (unsigned i = 0; i < count; i++) tcp += out[i].is_tcp;
  assert_int_equal(tcp, 8);
}

/* An ENI without datagram ports has tcp paths alone, standby ones too; with one that has no TCP, none. */
static void test_tcp_alone(void **state) {
  (void)state;
  struct harp_endpoint a = host(2, 2, NULL), b = host(2, 2, NULL);
  for (unsigned i = 0; i < 2; i++) {
    a.enis[i].port_count = 0;
    a.enis[i].tcp_port = b.enis[i].tcp_port = 1000;
  }
  unsigned count = harp_pairing_make(&a, &b, out);
  assert_int_equal(count, 6);
  for (unsigned i = 0; i < count; i++) {
    assert_true(out[i].is_tcp);
    assert_int_equal(out[i].standby, i >= 4);
    assert_int_equal(out[i].standby, out[i].client_eni != out[i].server_eni);
  }
  b.enis[1].tcp_port = 0;
  count = harp_pairing_make(&a, &b, out);
  assert_int_equal(count, 3); /* two of a primary pair, one of a standby pair */
  b.enis[0].tcp_port = 0;
  assert_int_equal(harp_pairing_make(&a, &b, out), 0);
}

/* As many connections as paths of datagrams, for networks that cap each flow; the first of all pairs
 * first. */
static void test_several_tcp_paths(void **state) {
  (void)state;
  struct harp_endpoint a = host(4, 5, NULL), b = host(4, 5, NULL);
  for (unsigned i = 0; i < 4; i++) a.enis[i].tcp_port = b.enis[i].tcp_port = 1000;
  unsigned count = harp_pairing_make(&a, &b, out), first = 0, tcp[4] = {0}, standby[4] = {0};
  while (!out[first].is_tcp) standby[out[first].client_eni] += out[first].standby, first++;
  assert_int_equal(count, HARP_PATHS_MAX);
  for (unsigned i = first; i < count; i++) {
    assert_true(out[i].is_tcp && !out[i].standby);
    assert_int_equal(out[i].client_eni, out[i].server_eni);
    assert_int_equal(out[i].client_eni, (i - first) % 4);
    tcp[out[i].client_eni]++;
  }
  for (unsigned i = 0; i < 4; i++) {
    assert_int_equal(tcp[i], 5);
    assert_true(standby[i] >= 3); /* one to each other ENI of the server at least */
  }
}

/* Those with an address are joined as if there were no others, which then take the least loaded. */
static void test_enis_without_an_address_come_last(void **state) {
  (void)state;
  struct harp_endpoint a = host(2, 1, NULL), b = host(2, 1, NULL);
  b.enis[1].is_unnumbered = true;
  unsigned n = harp_pairing_make(&a, &b, out);
  assert_int_equal(primaries(n, 0, 0), 1);
  assert_int_equal(primaries(n, 1, 0), 1);
  assert_int_equal(primaries(n, 0, 1), 1);
  a.enis[0].is_unnumbered = true; /* one on each side: the others are partners */
  n = harp_pairing_make(&a, &b, out);
  assert_int_equal(primaries(n, 1, 0), 1);
  assert_int_equal(primaries(n, 0, 1), 1);
  assert_int_equal(primaries(n, 0, 0) + primaries(n, 1, 1), 0);
  b = host(1, 1, NULL);
  n = harp_pairing_make(&a, &b, out);
  assert_int_equal(primaries(n, 0, 0) + primaries(n, 1, 0), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_several_tcp_paths),
      cmocka_unit_test(test_tcp_alone),
      cmocka_unit_test(test_tcp_paths_come_last),
      cmocka_unit_test(test_tcp_paths_find_room),
      cmocka_unit_test(test_one_pair_has_its_ports),
      cmocka_unit_test(test_no_two_paths_have_the_same_ports),
      cmocka_unit_test(test_equals_pair_by_index),
      cmocka_unit_test(test_similar_addresses_pair),
      cmocka_unit_test(test_eight_by_eight_is_complete),
      cmocka_unit_test(test_two_serve_eight),
      cmocka_unit_test(test_speeds_weigh),
      cmocka_unit_test(test_families_do_not_mix),
      cmocka_unit_test(test_every_eni_has_a_partner),
      cmocka_unit_test(test_enis_without_an_address_come_last),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The handle: which addresses it carries in which room, and what is no handle. */
#include "engine/control/handle.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lib/addresses.h"

/* A listener with up to eight addresses. */
static struct harp_contact contact_of(unsigned count, const char *const *texts) {
  struct harp_contact c = {.engine_id = 0x01020304,
                           .engine_number = 3,
                           .engine_count = 16,
                           .port = 4000,
                           .count = count,
                           .secret = "secret"};
  for (unsigned i = 0; i < count; i++) c.at[i] = address(texts[i], 4000);
  return c;
}

/* Carries it in a handle of so many bytes; what follows in memory stays as it is. */
static struct harp_contact carried(const struct harp_contact *c, size_t bytes) {
  uint8_t memory[HARP_HANDLE_BYTES + 1];
  struct harp_contact out;
  struct harp_error error = {0};
  memset(memory, 0x5a, sizeof memory);
  harp_handle_encode(memory, bytes, c);
  for (size_t i = bytes; i < sizeof memory; i++) assert_int_equal(memory[i], 0x5a);
  assert_true(harp_handle_decode(memory, bytes, &out, &error));
  return out;
}

static void assert_addresses(const struct harp_contact *c, const char *text) {
  char have[HARP_CONTACT_TEXT_BYTES];
  assert_string_equal(harp_contact_text(c, have), text);
}

static void test_all_is_carried(void **state) {
  (void)state;
  static const char *const texts[] = {"10.0.0.1", "10.0.1.1"};
  struct harp_contact c = contact_of(2, texts), out = carried(&c, HARP_HANDLE_BYTES);
  assert_int_equal(out.engine_id, 0x01020304);
  assert_int_equal(out.engine_number, 3);
  assert_int_equal(out.engine_count, 16);
  assert_int_equal(out.port, 4000);
  assert_memory_equal(out.secret, c.secret, sizeof c.secret);
  assert_addresses(&out, "10.0.0.1:4000, 10.0.1.1:4000");
}

/* All IPv4 addresses fit, and of the IPv6 ones the first. */
static void test_what_fits(void **state) {
  (void)state;
  static const char *const four[] = {"10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1",
                                     "10.0.4.1", "10.0.5.1", "10.0.6.1", "10.0.7.1"};
  static const char *const six[] = {"fd00::1", "fd01::1", "fd02::1", "fd03::1",
                                    "fd04::1", "fd05::1", "fd06::1", "fd07::1"};
  static const char *const both[] = {"fd00::1",  "fd01::1",  "10.0.0.1", "fd02::1",
                                     "10.0.1.1", "10.0.2.1", "10.0.3.1", "10.0.4.1"};
  struct harp_contact c = contact_of(8, four), out = carried(&c, HARP_HANDLE_BYTES);
  assert_int_equal(out.count, 8);
  out = carried(&c, HARP_HANDLE_BYTES_V4);
  assert_addresses(&out, "10.0.0.1:4000, 10.0.1.1:4000, 10.0.2.1:4000, 10.0.3.1:4000, 10.0.4.1:4000, "
                         "10.0.5.1:4000");
  c = contact_of(8, six);
  out = carried(&c, HARP_HANDLE_BYTES);
  assert_addresses(&out, "[fd00::1]:4000, [fd01::1]:4000, [fd02::1]:4000, [fd03::1]:4000, [fd04::1]:4000");
  out = carried(&c, HARP_HANDLE_BYTES_V4);
  assert_addresses(&out, "[fd00::1]:4000");
  c = contact_of(8, both);
  out = carried(&c, HARP_HANDLE_BYTES);
  assert_int_equal(out.count, 8);
  out = carried(&c, HARP_HANDLE_BYTES_V4); /* its first one, whatever the family */
  assert_addresses(&out, "10.0.0.1:4000, 10.0.1.1:4000, [fd00::1]:4000");
}

/* A handle that came through a smaller room gives what is left of it. */
static void test_cut_handle(void **state) {
  (void)state;
  static const char *const texts[] = {"10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.3.1",
                                      "10.0.4.1", "10.0.5.1", "10.0.6.1"};
  uint8_t memory[HARP_HANDLE_BYTES];
  struct harp_contact c = contact_of(7, texts), out;
  struct harp_error error = {0};
  harp_handle_encode(memory, sizeof memory, &c);
  assert_true(harp_handle_decode(memory, HARP_HANDLE_BYTES_V4, &out, &error));
  assert_int_equal(out.count, 6);
}

static void test_addresses_are_found(void **state) {
  (void)state;
  static const char *const texts[] = {"10.0.0.1", "fd00::1"};
  struct harp_contact c = contact_of(2, texts);
  struct sockaddr_storage second = address("fd00::1", 0), other = address("10.0.0.2", 4000);
  assert_true(harp_contact_has(&c, &second));
  assert_false(harp_contact_has(&c, &other));
}

static bool is_refused(const struct harp_handle *h, const char *why) {
  struct harp_contact out;
  struct harp_error error = {0};
  return !harp_handle_decode(h, sizeof *h, &out, &error) && strstr(error.text, why);
}

static void test_what_is_no_handle(void **state) {
  (void)state;
  static const char *const texts[] = {"10.0.0.1"};
  struct harp_contact c = contact_of(1, texts);
  struct harp_handle good, bad;
  harp_handle_encode(&good, sizeof good, &c);
  bad = good;
  bad.magic = harp_to_be32(0);
  assert_true(is_refused(&bad, "not one of HARP's"));
  bad = good;
  bad.layout = harp_to_be16(1);
  assert_true(is_refused(&bad, "layout 1"));
  bad = good;
  bad.port = harp_to_be16(0);
  assert_true(is_refused(&bad, "damaged"));
  bad = good;
  bad.ip4_count = 0;
  assert_true(is_refused(&bad, "damaged"));
  bad = good;
  bad.ip6_count = HARP_HANDLE_ADDRESSES_MAX;
  assert_true(is_refused(&bad, "damaged"));
  assert_false(is_refused(&good, ""));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_is_carried),    cmocka_unit_test(test_what_fits),
      cmocka_unit_test(test_cut_handle),        cmocka_unit_test(test_addresses_are_found),
      cmocka_unit_test(test_what_is_no_handle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

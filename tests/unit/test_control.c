/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: framing, MAC, and what an endpoint may contain. */
#include "wire/control.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t key[HARP_MAC_KEY_BYTES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const struct harp_final a_final = {.reason = 3};
static const struct harp_close a_close = {
    .stream = 0x0789, .is_sender = true, .reason = 3, .delivered = 0xfffffffe, .detail = {70000, 1u << 31}};

static struct harp_endpoint an_endpoint(void) {
  return (struct harp_endpoint){
      .token = 0x0123456789abcdef,
      .first_line = 0xffffff00,
      .first_message = 7,
      .first_number = 0x80000001,
      .attempt = 0xfffffffd,
      .window_bytes = 4 << 20,
      .path_count = 8,
      .eni_count = 2,
      .enis = {{.family = 4, .addr = {10, 0, 0, 1}, .mtu = 9001, .port_count = 2, .ports = {1, 65535}},
               {.family = 6,
                .addr = {0xfd, [15] = 1},
                .mtu = 1280,
                .speed_mbps = 25000,
                .port_count = 1,
                .ports = {4791}}},
      .auth = HARP_AUTH_KIND_MAC,
      .pid = 4242,
      .name = "gpu-7.example",
      .build = "HARP 1.0.0-12-gabc1234",
  };
}

/* The frames of FINAL and CLOSE above, number 2 of their direction. The MACs are what `openssl mac -macopt
 * hexkey:000102...0f -macopt size:8 -in FILE SIPHASH` prints for all bytes before them, in reverse order. */
static const uint8_t final_frame[HARP_CONTROL_FINAL_BYTES] = {
    0x48, 0x41, 0x52, 0x50, 0x07, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x7a, 0xd6, 0xb8, 0x83, 0xa0, 0x8e, 0x6a, 0xd7};
static const uint8_t close_frame[HARP_CONTROL_CLOSE_BYTES] = {
    0x48, 0x41, 0x52, 0x50, 0x0a, 0x00, 0x00, 0x2c, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00,
    0x00, 0x07, 0x89, 0x00, 0x01, 0x00, 0x00, 0x00, 0x03, 0xff, 0xff, 0xff, 0xfe, 0x00, 0x01,
    0x11, 0x70, 0x80, 0x00, 0x00, 0x00, 0x01, 0x6b, 0x79, 0x79, 0xe7, 0x1f, 0x1a, 0x59};

static void test_final_has_the_documented_bytes(void **state) {
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  (void)state;
  assert_int_equal(harp_control_encode_final(out, key, 2, &a_final), sizeof final_frame);
  assert_memory_equal(out, final_frame, sizeof final_frame);
  assert_int_equal(harp_control_encode_close(out, key, 2, &a_close), sizeof close_frame);
  assert_memory_equal(out, close_frame, sizeof close_frame);
}

static void test_words_about_streams_come_back(void **state) {
  static const struct harp_open open = {.stream = 4095,
                                        .port = 65535,
                                        .first_line = 0xfffffff0,
                                        .first_message = 1,
                                        .attempt = 0x80000002,
                                        .proof = {1, 2, 3, 4, 5, 6, 7, 8}};
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  struct harp_control_message m;
  (void)state;
  int n = (int)harp_control_encode_open(out, key, 5, &open);
  assert_int_equal(harp_control_decode(out, (size_t)n, key, &m), n);
  assert_int_equal(m.type, HARP_CONTROL_OPEN);
  assert_memory_equal(&m.open, &open, sizeof open);
  for (unsigned refusal = 0; refusal < 17; refusal++) {
    struct harp_opened opened = {.stream = 7, .refusal = (enum harp_refusal)refusal};
    n = (int)harp_control_encode_opened(out, key, 6, &opened);
    assert_int_equal(harp_control_decode(out, (size_t)n, key, &m), n);
    assert_int_equal(m.type, HARP_CONTROL_OPENED);
    assert_int_equal(m.opened.stream, 7);
    assert_int_equal(m.opened.refusal, refusal <= HARP_REFUSAL_MACS ? refusal : HARP_REFUSAL_PEER);
  }
  assert_int_equal(harp_control_decode(close_frame, sizeof close_frame, key, &m), sizeof close_frame);
  assert_int_equal(m.type, HARP_CONTROL_CLOSE);
  assert_int_equal(m.close.stream, a_close.stream);
  assert_true(m.close.is_sender);
  assert_int_equal(m.close.reason, a_close.reason);
  assert_int_equal(m.close.delivered, a_close.delivered);
  assert_memory_equal(m.close.detail, a_close.detail, sizeof a_close.detail);
}

static void test_wanted_paths_come_back(void **state) {
  const struct harp_want want = {.paths = 0x8000000000000102};
  struct harp_control_message m;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  (void)state;
  int n = (int)harp_control_encode_want(out, key, 4, &want);
  assert_int_equal(n, HARP_CONTROL_WANT_BYTES);
  assert_int_equal(harp_control_decode(out, (size_t)n, key, &m), n);
  assert_int_equal(m.type, HARP_CONTROL_WANT);
  assert_int_equal(m.count, 4);
  assert_true(m.want.paths == want.paths);
  out[n - 1] ^= 1;
  assert_int_equal(harp_control_decode(out, (size_t)n, key, &m), -EBADMSG);
}

static void test_an_address_comes_back(void **state) {
  static const struct harp_numbered told = {.index = 3,
                                            .eni = {.family = 4,
                                                    .addr = {10, 0, 0, 9},
                                                    .mtu = 1500,
                                                    .tcp_port = 7,
                                                    .answer_port = 6,
                                                    .port_count = 1,
                                                    .ports = {8}}};
  struct harp_control_message m;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  (void)state;
  int n = (int)harp_control_encode_address(out, key, 4, &told);
  assert_int_equal(n, HARP_CONTROL_ADDRESS_BYTES);
  assert_int_equal(harp_control_decode(out, (size_t)n, key, &m), n);
  assert_int_equal(m.type, HARP_CONTROL_ADDRESS);
  assert_int_equal(m.numbered.index, 3);
  assert_false(m.numbered.eni.is_unnumbered);
  assert_memory_equal(m.numbered.eni.addr, told.eni.addr, sizeof told.eni.addr);
  assert_int_equal(m.numbered.eni.ports[0], 8);
  assert_int_equal(m.numbered.eni.tcp_port, 7);
  assert_int_equal(m.numbered.eni.answer_port, 6);
  memset(out + HARP_CONTROL_HEADER_BYTES + offsetof(struct harp_wire_address, eni.addr), 0,
         16); /* has none */
  n = (int)harp_control_seal(out, key, HARP_CONTROL_ADDRESS, 4, sizeof(struct harp_wire_address));
  assert_int_equal(harp_control_decode(out, (size_t)n, key, &m), -EBADMSG);
}

/* Any other secret, token or field makes another proof. */
static void test_a_proof_is_of_one_opening(void **state) {
  struct harp_open open = {.stream = 1, .port = 2, .first_line = 3, .first_message = 4};
  uint8_t proof[HARP_CONTROL_MAC_BYTES], other[HARP_CONTROL_MAC_BYTES];
  uint8_t secret[HARP_SECRET_BYTES] = {9};
  (void)state;
  harp_control_open_proof(&open, secret, 5, 6, proof);
  harp_control_open_proof(&open, secret, 5, 6, other);
  assert_true(harp_control_mac_equal(proof, other));
  harp_control_open_proof(&open, secret, 6, 5, other);
  assert_false(harp_control_mac_equal(proof, other));
  for (unsigned i = 0; i < 5; i++) {
    struct harp_open changed = open;
    if (i == 0) changed.stream++;
    if (i == 1) changed.port++;
    if (i == 2) changed.first_line++;
    if (i == 3) changed.first_message++;
    if (i == 4) changed.attempt++;
    harp_control_open_proof(&changed, secret, 5, 6, other);
    assert_false(harp_control_mac_equal(proof, other));
  }
  secret[15]++;
  harp_control_open_proof(&open, secret, 5, 6, other);
  assert_false(harp_control_mac_equal(proof, other));
}

static void test_messages_come_back(void **state) {
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  struct harp_control_message m;
  (void)state;
  size_t at = harp_control_encode_ping(out, key, 1);
  at += harp_control_encode_pong(out + at, key, 2);
  at += harp_control_encode_final(out + at, key, 0xffffffff, &a_final);
  assert_int_equal(harp_control_decode(out, at, key, &m), HARP_CONTROL_PING_BYTES);
  assert_int_equal(m.type, HARP_CONTROL_PING);
  assert_int_equal(m.count, 1);
  assert_int_equal(harp_control_decode(out + 24, at - 24, key, &m), HARP_CONTROL_PING_BYTES);
  assert_int_equal(m.type, HARP_CONTROL_PONG);
  assert_int_equal(m.count, 2);
  assert_int_equal(harp_control_decode(out + 48, at - 48, key, &m), HARP_CONTROL_FINAL_BYTES);
  assert_int_equal(m.type, HARP_CONTROL_FINAL);
  assert_int_equal(m.count, 0xffffffff);
  assert_memory_equal(&m.final, &a_final, sizeof a_final);
}

static void test_a_part_of_a_frame_waits(void **state) {
  struct harp_control_message m;
  (void)state;
  for (size_t n = 0; n < sizeof final_frame; n++)
    assert_int_equal(harp_control_decode(final_frame, n, key, &m), 0);
}

static void test_every_changed_bit_is_noticed(void **state) {
  struct harp_control_message m;
  uint8_t frame[HARP_CONTROL_MAX_BYTES];
  (void)state;
  for (size_t bit = 0; bit < sizeof final_frame * 8; bit++) {
    memset(frame, 0, sizeof frame);
    memcpy(frame, final_frame, sizeof final_frame);
    frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
    /* The zeros behind complete a frame whose length grew. */
    assert_int_equal(harp_control_decode(frame, sizeof frame, key, &m), -EBADMSG);
  }
}

static void test_another_key_is_noticed(void **state) {
  struct harp_control_message m;
  uint8_t other[HARP_MAC_KEY_BYTES];
  (void)state;
  memcpy(other, key, sizeof other);
  other[15] ^= 0x80;
  assert_int_equal(harp_control_decode(final_frame, sizeof final_frame, other, &m), -EBADMSG);
}

static void test_garbage_is_noticed_at_its_first_byte(void **state) {
  struct harp_control_message m;
  static const struct {
    const char *bytes;
    size_t wrong_at;
  } cases[] = {
      {"GET / HTTP/1.1\r\n", 0},
      {"HTTP/1.1", 1},
      {"HARQ", 3},
      {"HARP\x0d", 4},
      {"HARP\x01", 4},
      {"HARP\x05\x00\x05", 6},
      {"HARP\x05\x00\x04\x01", 7},
      {"HARP\x05\x00\x00\x17", 7},
  };
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
    assert_int_equal(harp_control_decode(bytes, cases[i].wrong_at, key, &m), 0);
    assert_int_equal(harp_control_decode(bytes, cases[i].wrong_at + 1, key, &m), -EBADMSG);
  }
}

static void test_body_may_grow_but_not_shrink(void **state) {
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  struct harp_control_message m;
  (void)state;
  memcpy(out, final_frame, sizeof final_frame);
  assert_int_equal(harp_control_seal(out, key, HARP_CONTROL_FINAL, 2, 8 + 5), HARP_CONTROL_FINAL_BYTES + 5);
  assert_int_equal(harp_control_decode(out, sizeof out, key, &m), HARP_CONTROL_FINAL_BYTES + 5);
  assert_memory_equal(&m.final, &a_final, sizeof a_final);
  assert_int_equal(harp_control_seal(out, key, HARP_CONTROL_FINAL, 2, 7), HARP_CONTROL_FINAL_BYTES - 1);
  assert_int_equal(harp_control_decode(out, sizeof out, key, &m), -EBADMSG);
  assert_int_equal(harp_control_seal(out, key, HARP_CONTROL_PING, 2, 1000), HARP_CONTROL_MAX_BYTES);
  assert_int_equal(harp_control_decode(out, sizeof out, key, &m), HARP_CONTROL_MAX_BYTES);
}

static void test_counts_only_rise(void **state) {
  uint32_t next = 0;
  (void)state;
  assert_true(harp_control_count_ok(&next, 0));
  assert_false(harp_control_count_ok(&next, 0));
  assert_true(harp_control_count_ok(&next, 1));
  assert_true(harp_control_count_ok(&next, 9));
  assert_false(harp_control_count_ok(&next, 8));
  assert_false(harp_control_count_ok(&next, 9));
  assert_int_equal(next, 10);
}

/* ---- endpoints ---- */

static size_t encode(uint8_t *body, const struct harp_endpoint *e) {
  static const struct harp_hello hello = {
      .version_min = 1, .version_max = 2, .version = 0, .nonce = {9, [15] = 8}};
  memset(body, 0xee, HARP_CONTROL_MAX_BYTES);
  return harp_control_put_hello(body, &hello, e);
}

static void assert_same_endpoint(const struct harp_endpoint *a, const struct harp_endpoint *b) {
  uint8_t body[2][HARP_CONTROL_MAX_BYTES]; /* structs have padding, encodings don't */
  assert_int_equal(encode(body[0], a), encode(body[1], b));
  assert_memory_equal(body[0], body[1], sizeof body[0]);
  assert_string_equal(a->name, b->name);
  assert_string_equal(a->build, b->build);
}

static bool accepted(const struct harp_endpoint *e) {
  uint8_t body[HARP_CONTROL_MAX_BYTES];
  struct harp_endpoint back;
  size_t bytes = encode(body, e);
  return harp_control_get_endpoint(body, bytes, &back);
}

static void test_hello_comes_back(void **state) {
  uint8_t body[HARP_CONTROL_MAX_BYTES], version_min, version_max;
  struct harp_endpoint e = an_endpoint(), back;
  struct harp_hello hello;
  (void)state;
  size_t bytes = encode(body, &e);
  assert_int_equal(bytes, sizeof(struct harp_wire_hello) + 2 * sizeof(struct harp_wire_eni) +
                              sizeof(struct harp_wire_build));
  assert_true(harp_control_get_versions(body, bytes, &version_min, &version_max));
  assert_int_equal(version_min, 1);
  assert_int_equal(version_max, 2);
  assert_true(harp_control_get_hello(body, bytes, &hello));
  assert_int_equal(hello.nonce[0], 9);
  assert_int_equal(hello.nonce[15], 8);
  assert_true(harp_control_get_endpoint(body, bytes, &back));
  assert_same_endpoint(&back, &e);
  for (size_t n = 0; n < bytes; n++) assert_false(harp_control_get_endpoint(body, n, &back));
  for (size_t n = 0; n < sizeof(struct harp_wire_hello); n++)
    assert_false(harp_control_get_hello(body, n, &hello));
  assert_false(harp_control_get_versions(body, 1, &version_min, &version_max));
}

/* Ports that answer are behind all else; who does not send them has none. */
static void test_ports_that_answer_come_back(void **state) {
  uint8_t body[HARP_CONTROL_MAX_BYTES];
  struct harp_endpoint none = an_endpoint(), e = an_endpoint(), back;
  (void)state;
  e.enis[1].answer_port = 0x1234;
  size_t least = encode(body, &none), bytes = encode(body, &e);
  assert_int_equal(bytes, least + sizeof(struct harp_wire_answers));
  assert_true(harp_control_get_endpoint(body, bytes, &back));
  assert_int_equal(back.enis[0].answer_port, 0);
  assert_int_equal(back.enis[1].answer_port, 0x1234);
  assert_same_endpoint(&back, &e);
  for (size_t n = least; n < bytes; n++) {
    assert_true(harp_control_get_endpoint(body, n, &back));
    assert_same_endpoint(&back, &none);
  }
}

static void test_the_largest_hello_fits(void **state) {
  uint8_t frame[HARP_CONTROL_HEADER_BYTES + HARP_CONTROL_MAX_BYTES];
  struct harp_endpoint e = an_endpoint();
  (void)state;
  e.eni_count = HARP_ENDPOINT_ENIS_MAX;
  for (unsigned i = 0; i < e.eni_count; i++) {
    e.enis[i] = e.enis[0];
    e.enis[i].port_count = HARP_ENDPOINT_PORTS_MAX;
    e.enis[i].answer_port = 40000;
    for (unsigned k = 0; k < HARP_ENDPOINT_PORTS_MAX; k++) e.enis[i].ports[k] = (uint16_t)(40000 + k);
  }
  e.path_count = HARP_ENDPOINT_PATHS_MAX;
  assert_true(accepted(&e));
  size_t bytes = encode(frame + HARP_CONTROL_HEADER_BYTES, &e);
  assert_int_equal(harp_control_seal(frame, key, HARP_CONTROL_HELLO, 0, bytes), HARP_CONTROL_HELLO_MAX_BYTES);
}

static void test_senseless_endpoints_are_refused(void **state) {
  struct harp_endpoint e;
  (void)state;
#define REFUSED(change)                                                                                      \
  do {                                                                                                       \
    e = an_endpoint();                                                                                       \
    assert_true(accepted(&e));                                                                               \
    change;                                                                                                  \
    assert_false(accepted(&e));                                                                              \
  } while (0)
  REFUSED(e.path_count = 0);
  REFUSED(e.path_count = HARP_ENDPOINT_PATHS_MAX + 1);
  REFUSED(e.eni_count = 0);
  REFUSED(e.enis[1].family = 0);
  REFUSED(e.enis[1].family = 5);
  REFUSED(e.enis[0].family = 5; memset(e.enis[0].addr, 0, 16));
  REFUSED(e.enis[0].addr[0] = 0);
  REFUSED(e.enis[0].addr[0] = 224);
  REFUSED(e.enis[0].addr[0] = 255);
  REFUSED(e.enis[1].addr[0] = 0xff);
  REFUSED(memset(e.enis[0].addr, 0, 16); memset(e.enis[1].addr, 0, 16));
  REFUSED(e.enis[0].mtu = 0);
  REFUSED(e.enis[0].mtu = 1279);
  REFUSED(e.enis[0].port_count = 0);
  REFUSED(e.enis[0].ports[1] = 0);
#undef REFUSED
}

/* What our own encoder cannot be made to write. */
static void test_senseless_bytes_are_refused(void **state) {
  uint8_t good[HARP_CONTROL_MAX_BYTES], body[HARP_CONTROL_MAX_BYTES];
  struct harp_endpoint e = an_endpoint(), back;
  const size_t eni = sizeof(struct harp_wire_hello), endpoint = offsetof(struct harp_wire_hello, endpoint);
  const size_t build = eni + e.eni_count * sizeof(struct harp_wire_eni);
  const struct {
    size_t at, bytes;
    uint8_t value;
  } cases[] = {
      {endpoint + offsetof(struct harp_wire_endpoint, eni_count) + 1, 1, 3}, /* one more than follow */
      {endpoint + offsetof(struct harp_wire_endpoint, eni_count) + 1, 1, 9},
      {endpoint + offsetof(struct harp_wire_endpoint, eni_count), 1, 0xff},
      {endpoint + offsetof(struct harp_wire_endpoint, name), HARP_ENDPOINT_NAME_BYTES, 'x'},
      {build, HARP_ENDPOINT_BUILD_BYTES, 'x'},
      {eni + offsetof(struct harp_wire_eni, port_count), 1, 17},
      {eni + offsetof(struct harp_wire_eni, port_count), 1, 0},
      {eni + offsetof(struct harp_wire_eni, addr) + 15, 1, 1}, /* an IPv4 address of 16 bytes */
  };
  (void)state;
  size_t bytes = encode(good, &e);
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    memcpy(body, good, sizeof body);
    memset(body + cases[i].at, cases[i].value, cases[i].bytes);
    assert_false(harp_control_get_endpoint(body, bytes, &back));
  }
}

static void test_further_bytes_mean_nothing(void **state) {
  uint8_t body[HARP_CONTROL_MAX_BYTES];
  struct harp_endpoint e = an_endpoint(), back;
  (void)state;
  e.enis[0].answer_port = 1;
  size_t bytes = encode(body, &e);
  assert_true(harp_control_get_endpoint(body, bytes + 40, &back));
  assert_same_endpoint(&back, &e);
}

static void test_names_are_safe_to_print(void **state) {
  uint8_t body[HARP_CONTROL_MAX_BYTES];
  struct harp_endpoint e = an_endpoint(), back;
  (void)state;
  strcpy(e.name, "a\x1b[31m\xc3\xa4\x7f\n~ ");
  strcpy(e.build, "HARP\n2");
  size_t bytes = encode(body, &e);
  body[offsetof(struct harp_wire_hello, endpoint) + offsetof(struct harp_wire_endpoint, name) + 20] = 'Z';
  assert_true(harp_control_get_endpoint(body, bytes, &back));
  assert_string_equal(back.name, "a?[31m????~ ");
  assert_int_equal(back.name[20], 0);
  assert_string_equal(back.build, "HARP?2");
  memset(e.name, 'n', sizeof e.name); /* ours, too long: cut */
  memset(e.build, 'n', sizeof e.build);
  assert_true(accepted(&e));
}

static void test_refuse_comes_back(void **state) {
  uint8_t body[HARP_CONTROL_MAX_BYTES];
  struct harp_refuse r = {.version_min = 2, .version_max = 3, .reason = HARP_REFUSAL_VERSION}, back;
  (void)state;
  memset(r.hello_mac, 0x5a, sizeof r.hello_mac);
  assert_int_equal(harp_control_put_refuse(body, &r), sizeof(struct harp_wire_refuse));
  assert_true(harp_control_get_refuse(body, 16, &back));
  assert_int_equal(back.version_min, 2);
  assert_int_equal(back.version_max, 3);
  assert_int_equal(back.reason, HARP_REFUSAL_VERSION);
  assert_memory_equal(back.hello_mac, r.hello_mac, sizeof r.hello_mac);
  assert_false(harp_control_get_refuse(body, 15, &back));
  r.reason = HARP_REFUSAL_BUSY;
  harp_control_put_refuse(body, &r);
  assert_true(harp_control_get_refuse(body, 16, &back));
  assert_int_equal(back.reason, HARP_REFUSAL_BUSY);
  r.reason = HARP_REFUSAL_CROSSED;
  harp_control_put_refuse(body, &r);
  assert_true(harp_control_get_refuse(body, 16, &back));
  assert_int_equal(back.reason, HARP_REFUSAL_CROSSED);
  body[2] = 1; /* reason 262 */
  assert_true(harp_control_get_refuse(body, 16, &back));
  assert_int_equal(back.reason, HARP_REFUSAL_PEER);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_final_has_the_documented_bytes),
      cmocka_unit_test(test_words_about_streams_come_back),
      cmocka_unit_test(test_a_proof_is_of_one_opening),
      cmocka_unit_test(test_messages_come_back),
      cmocka_unit_test(test_a_part_of_a_frame_waits),
      cmocka_unit_test(test_every_changed_bit_is_noticed),
      cmocka_unit_test(test_another_key_is_noticed),
      cmocka_unit_test(test_wanted_paths_come_back),
      cmocka_unit_test(test_an_address_comes_back),
      cmocka_unit_test(test_garbage_is_noticed_at_its_first_byte),
      cmocka_unit_test(test_body_may_grow_but_not_shrink),
      cmocka_unit_test(test_counts_only_rise),
      cmocka_unit_test(test_hello_comes_back),
      cmocka_unit_test(test_ports_that_answer_come_back),
      cmocka_unit_test(test_the_largest_hello_fits),
      cmocka_unit_test(test_senseless_endpoints_are_refused),
      cmocka_unit_test(test_senseless_bytes_are_refused),
      cmocka_unit_test(test_further_bytes_mean_nothing),
      cmocka_unit_test(test_names_are_safe_to_print),
      cmocka_unit_test(test_refuse_comes_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: two peers with one secret agree, everyone else is refused, whatever the pieces the bytes
 * come in. */
#include "proto/handshake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t secret[HARP_SECRET_BYTES] = "our handle's ...";
enum { ALL = 1024 }; /* bytes given at a time: more than any message has */

struct pair {
  struct harp_handshake client, server;
  struct harp_endpoint client_end, server_end;
  uint8_t client_nonce[HARP_NONCE_BYTES], server_nonce[HARP_NONCE_BYTES];
};

/* Fills in what the tests below change before they call start(). */
static void prepare(struct pair *p) {
  memset(p, 0, sizeof *p);
  p->client_end = (struct harp_endpoint){
      .token = 0x1111222233334444,
      .first_line = 100,
      .first_message = 200,
      .first_number = 0xfffffff0,
      .window_bytes = 1 << 20,
      .path_count = 4,
      .eni_count = 1,
      .enis = {{.family = 4, .addr = {10, 0, 0, 1}, .mtu = 1500, .port_count = 4, .ports = {5, 6, 7, 8}}},
      .pid = 11,
      .name = "client",
      .build = "HARP 1.0.0-1-gabcdef1",
  };
  p->server_end = p->client_end;
  p->server_end.token = 0x5555666677778888;
  p->server_end.enis[0].addr[3] = 2;
  strcpy(p->server_end.name, "server");
  memset(p->client_nonce, 0xc1, sizeof p->client_nonce);
  memset(p->server_nonce, 0x5e, sizeof p->server_nonce);
}

static void start(struct pair *p, uint8_t client_min, uint8_t client_max, uint8_t server_min,
                  uint8_t server_max) {
  harp_handshake_init(&p->client, true, secret, p->client_nonce, client_min, client_max, &p->client_end);
  harp_handshake_init(&p->server, false, secret, p->server_nonce, server_min, server_max, &p->server_end);
}

static void start_usual(struct pair *p) {
  prepare(p);
  start(p, 1, 1, 1, 1);
}

/* Feeds as much of `bytes` bytes as h wants, in pieces of at most `piece`; returns how many it took. A right
 * HELLO is answered with `why`. */
static size_t feed_with(struct harp_handshake *h, const uint8_t *data, size_t bytes, size_t piece,
                        enum harp_refusal why) {
  size_t fed = 0;
  for (;;) {
    if (h->state == HARP_HANDSHAKE_WAIT_ANSWER) {
      assert_int_equal(harp_handshake_wants(h), 0);
      harp_handshake_answer(h, why);
    }
    size_t n = HARP_MIN(HARP_MIN(harp_handshake_wants(h), bytes - fed), piece);
    if (!n) return fed;
    harp_handshake_on_bytes(h, data + fed, n);
    fed += n;
  }
}

static size_t feed(struct harp_handshake *h, const uint8_t *data, size_t bytes, size_t piece) {
  return feed_with(h, data, bytes, piece, HARP_REFUSAL_NONE);
}

/* Carries all output of `from`; returns false when `to` did not want all of it. */
static bool carry(struct harp_handshake *from, struct harp_handshake *to, size_t piece) {
  size_t bytes = from->out_bytes - from->out_sent;
  size_t fed = feed(to, from->out + from->out_sent, bytes, piece);
  from->out_sent += (uint32_t)bytes;
  return fed == bytes;
}

static void run(struct pair *p, size_t piece) {
  carry(&p->client, &p->server, piece);
  carry(&p->server, &p->client, piece);
  carry(&p->client, &p->server, piece);
}

static void assert_refused(const struct harp_handshake *h, enum harp_refusal why) {
  assert_int_equal(h->state, HARP_HANDSHAKE_REFUSED);
  assert_int_equal(h->refusal, why);
  assert_int_equal(harp_handshake_wants(h), 0);
}

static void assert_same_endpoint(const struct harp_endpoint *a, const struct harp_endpoint *b) {
  static const struct harp_hello hello = {.version_min = 1, .version_max = 1};
  uint8_t body[2][HARP_CONTROL_MAX_BYTES]; /* structs have padding, encodings don't */
  size_t bytes = harp_control_put_hello(body[0], &hello, a);
  assert_int_equal(harp_control_put_hello(body[1], &hello, b), bytes);
  assert_memory_equal(body[0], body[1], bytes);
}

static void assert_agreed(const struct pair *p) {
  const struct harp_handshake *c = &p->client, *s = &p->server;
  assert_int_equal(c->state, HARP_HANDSHAKE_DONE);
  assert_int_equal(s->state, HARP_HANDSHAKE_DONE);
  assert_int_equal(c->version, s->version);
  assert_same_endpoint(&c->peer, &p->server_end);
  assert_same_endpoint(&s->peer, &p->client_end);
  assert_true(c->keys.tx_token == p->server_end.token && c->keys.rx_token == p->client_end.token);
  assert_true(s->keys.tx_token == p->client_end.token && s->keys.rx_token == p->server_end.token);
  assert_true(c->keys.tx_seed == s->keys.rx_seed && c->keys.rx_seed == s->keys.tx_seed);
  assert_true(c->keys.tx_seed != c->keys.rx_seed);
  assert_memory_equal(c->control.tx, s->control.rx, HARP_MAC_KEY_BYTES);
  assert_memory_equal(c->control.rx, s->control.tx, HARP_MAC_KEY_BYTES);
  assert_memory_not_equal(c->control.tx, c->control.rx, HARP_MAC_KEY_BYTES);
}

static void test_peers_agree_whatever_the_pieces(void **state) {
  struct pair p;
  (void)state;
  for (size_t piece = 1; piece <= HARP_CONTROL_MAX_BYTES; piece += piece < 40 ? 1 : 123) {
    start_usual(&p);
    run(&p, piece);
    assert_agreed(&p);
    assert_int_equal(harp_handshake_wants(&p.client), 0);
    assert_int_equal(harp_handshake_wants(&p.server), 0);
  }
}

/* As docs/reference/wire.md defines them. The numbers come from another implementation of SipHash: `openssl
 * mac -macopt hexkey:SECRET -macopt size:16 -in LABEL+VERSION+NONCES SIPHASH`. */
static void test_keys_are_those_of_the_document(void **state) {
  struct pair p;
  static const uint8_t client_key[] = {0xdc, 0x3a, 0xbf, 0x98, 0xaf, 0x5b, 0x29, 0xd7,
                                       0x43, 0xf6, 0xa2, 0x79, 0x7a, 0x73, 0x25, 0xf1},
                       server_key[] = {0xe3, 0xcd, 0x92, 0xa4, 0x44, 0x08, 0x7f, 0xce,
                                       0x79, 0xe0, 0xdd, 0xde, 0x9d, 0x08, 0xb2, 0x15};
  (void)state;
  start_usual(&p);
  run(&p, ALL);
  assert_memory_equal(p.client.control.tx, client_key, sizeof client_key);
  assert_memory_equal(p.client.control.rx, server_key, sizeof server_key);
  assert_int_equal(p.client.keys.tx_seed, 0x4beda998);
  assert_int_equal(p.client.keys.rx_seed, 0x21ece354);
}

static void test_keys_of_macs_are_those_of_the_document(void **state) {
  static const struct harp_mac_secret client = {.hash = {0x20, 0x8e, 0x59, 0x67, 0x74, 0xa7, 0xb4, 0x11, 0xd9,
                                                         0x54, 0x1f, 0x7d, 0x94, 0x8f, 0x88, 0x35},
                                                .tag = {0xb6, 0x9f, 0x0f, 0xb2, 0x1a, 0x70, 0xe5, 0x77, 0x51,
                                                        0x17, 0xe2, 0x57, 0x3c, 0x8d, 0xf2, 0xd7}},
                                      server = {.hash = {0xb2, 0xb8, 0xba, 0x4c, 0xbb, 0x7e, 0xe7, 0x97, 0x14,
                                                         0x46, 0xef, 0xdd, 0xe1, 0x3b, 0x3b, 0xef},
                                                .tag = {0xd5, 0x13, 0xb2, 0x5d, 0xb5, 0xca, 0x6c, 0x2d, 0x88,
                                                        0x98, 0xf1, 0x7e, 0x34, 0x73, 0x5c, 0xa5}};
  struct pair p;
  (void)state;
  start_usual(&p);
  run(&p, ALL);
  assert_false(p.client.macs.is_on || p.server.macs.is_on);
  prepare(&p);
  p.client_end.auth = p.server_end.auth = HARP_AUTH_KIND_MAC;
  start(&p, 1, 1, 1, 1);
  run(&p, ALL);
  assert_agreed(&p);
  assert_true(p.client.macs.is_on && p.server.macs.is_on);
  assert_memory_equal(&p.client.macs.tx, &client, sizeof client);
  assert_memory_equal(&p.client.macs.rx, &server, sizeof server);
  assert_memory_equal(&p.server.macs.tx, &server, sizeof server);
  assert_memory_equal(&p.server.macs.rx, &client, sizeof client);
}

/* Neither side goes on without what it requires. */
static void test_both_sides_require_the_same_authentication(void **state) {
  enum { LATER = 2 };
  static const struct {
    uint8_t client, server;
    enum harp_refusal why;
  } cases[] = {{HARP_AUTH_KIND_NONE, HARP_AUTH_KIND_MAC, HARP_REFUSAL_NO_MACS},
               {HARP_AUTH_KIND_MAC, HARP_AUTH_KIND_NONE, HARP_REFUSAL_MACS},
               {LATER, HARP_AUTH_KIND_MAC, HARP_REFUSAL_NO_MACS}};
  struct pair p;
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    prepare(&p);
    p.client_end.auth = cases[i].client;
    p.server_end.auth = cases[i].server;
    start(&p, 1, 1, 1, 1);
    harp_handshake_on_bytes(&p.server, p.client.out, HARP_CONTROL_MIN_BYTES);
    harp_handshake_on_bytes(&p.server, p.client.out + HARP_CONTROL_MIN_BYTES,
                            p.client.out_bytes - HARP_CONTROL_MIN_BYTES);
    assert_int_equal(harp_handshake_auth_refusal(&p.server), cases[i].why);
    harp_handshake_answer(&p.server, cases[i].why);
    carry(&p.server, &p.client, ALL);
    assert_refused(&p.client, HARP_REFUSAL_PEER);
    assert_int_equal(p.client.peer_refusal, cases[i].why);
  }
}

/* One who knows the secret and answers without them is refused, too. */
static void test_an_answer_without_macs_is_refused(void **state) {
  struct pair p;
  (void)state;
  prepare(&p);
  p.client_end.auth = HARP_AUTH_KIND_MAC;
  start(&p, 1, 1, 1, 1);
  p.server.local.auth = HARP_AUTH_KIND_MAC;
  carry(&p.client, &p.server, ALL);
  p.server.out[HARP_CONTROL_HEADER_BYTES + offsetof(struct harp_wire_hello, auth)] = HARP_AUTH_KIND_NONE;
  harp_control_seal(p.server.out, p.server.control.tx, HARP_CONTROL_WELCOME, 0,
                    p.server.out_bytes - HARP_CONTROL_MIN_BYTES);
  carry(&p.server, &p.client, ALL);
  assert_refused(&p.client, HARP_REFUSAL_NOT_HARP);
  assert_int_equal(p.client.out_bytes, p.client.out_sent); /* no CONFIRM */
}

static void test_keys_depend_on_both_nonces(void **state) {
  struct pair a, b, c;
  (void)state;
  start_usual(&a);
  run(&a, ALL);
  prepare(&b);
  b.client_nonce[0] ^= 1;
  start(&b, 1, 1, 1, 1);
  run(&b, ALL);
  prepare(&c);
  c.server_nonce[15] ^= 1;
  start(&c, 1, 1, 1, 1);
  run(&c, ALL);
  assert_agreed(&b);
  assert_agreed(&c);
  assert_memory_not_equal(&a.client.control, &b.client.control, sizeof a.client.control);
  assert_memory_not_equal(&a.client.control, &c.client.control, sizeof a.client.control);
  assert_memory_not_equal(&b.client.control, &c.client.control, sizeof a.client.control);
  assert_true(a.client.keys.tx_seed != b.client.keys.tx_seed &&
              a.client.keys.tx_seed != c.client.keys.tx_seed);
}

static void test_nothing_behind_the_handshake_is_swallowed(void **state) {
  struct pair p;
  uint8_t stream[2 * HARP_CONTROL_MIN_BYTES];
  struct harp_control_message m;
  (void)state;
  start_usual(&p);
  carry(&p.client, &p.server, ALL);
  carry(&p.server, &p.client, ALL);
  assert_int_equal(p.client.state, HARP_HANDSHAKE_DONE);
  assert_int_equal(p.client.out_bytes - p.client.out_sent, HARP_CONTROL_MIN_BYTES);
  memcpy(stream, p.client.out + p.client.out_sent, HARP_CONTROL_MIN_BYTES);
  harp_control_encode_ping(stream + HARP_CONTROL_MIN_BYTES, p.client.control.tx, 1);
  assert_int_equal(feed(&p.server, stream, sizeof stream, sizeof stream), HARP_CONTROL_MIN_BYTES);
  assert_int_equal(p.server.state, HARP_HANDSHAKE_DONE);
  assert_int_equal(
      harp_control_decode(stream + HARP_CONTROL_MIN_BYTES, HARP_CONTROL_MIN_BYTES, p.server.control.rx, &m),
      HARP_CONTROL_MIN_BYTES);
  assert_int_equal(m.type, HARP_CONTROL_PING);
}

static void test_another_secret_gets_no_answer(void **state) {
  struct pair p;
  uint8_t other[HARP_SECRET_BYTES];
  (void)state;
  start_usual(&p);
  memcpy(other, secret, sizeof other);
  other[0] ^= 1;
  harp_handshake_init(&p.client, true, other, p.client_nonce, 1, 1, &p.client_end);
  carry(&p.client, &p.server, ALL);
  assert_refused(&p.server, HARP_REFUSAL_SECRET);
  assert_int_equal(p.server.out_bytes, 0);
  assert_int_equal(p.server.peer.eni_count, 0);
  assert_int_equal(p.server.peer_version_max, 0);
}

static void test_recording_is_of_no_use(void **state) {
  struct pair p;
  struct harp_handshake server;
  (void)state;
  start_usual(&p);
  run(&p, ALL);
  assert_agreed(&p);
  uint8_t fresh[HARP_NONCE_BYTES] = {1};
  harp_handshake_init(&server, false, secret, fresh, 1, 1, &p.server_end);
  feed(&server, p.client.out, p.client.out_bytes, ALL); /* HELLO and CONFIRM */
  assert_refused(&server, HARP_REFUSAL_SECRET);

  struct harp_handshake client;
  harp_handshake_init(&client, true, secret, fresh, 1, 1, &p.client_end);
  feed(&client, p.server.out, p.server.out_bytes, ALL); /* WELCOME */
  assert_refused(&client, HARP_REFUSAL_SECRET);
}

static void test_newest_common_version_is_chosen(void **state) {
  static const struct {
    uint8_t client_min, client_max, server_min, server_max, version;
  } cases[] = {
      {1, 1, 1, 1, 1}, {1, 3, 1, 2, 2}, {1, 2, 2, 9, 2}, {3, 255, 1, 200, 200}, {255, 255, 1, 255, 255}};
  struct pair p;
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    prepare(&p);
    start(&p, cases[i].client_min, cases[i].client_max, cases[i].server_min, cases[i].server_max);
    run(&p, ALL);
    assert_agreed(&p);
    assert_int_equal(p.client.version, cases[i].version);
    assert_int_equal(p.client.peer_version_min, cases[i].server_min);
    assert_int_equal(p.server.peer_version_max, cases[i].client_max);
  }
}

static void test_without_common_version_both_know_both_ranges(void **state) {
  static const struct {
    uint8_t client_min, client_max, server_min, server_max;
  } cases[] = {{1, 1, 2, 3}, {4, 9, 2, 3}};
  struct pair p;
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    prepare(&p);
    start(&p, cases[i].client_min, cases[i].client_max, cases[i].server_min, cases[i].server_max);
    assert_true(carry(&p.client, &p.server, 7));
    assert_refused(&p.server, HARP_REFUSAL_VERSION);
    assert_int_equal(p.server.peer_version_min, cases[i].client_min);
    assert_int_equal(p.server.peer_version_max, cases[i].client_max);
    assert_int_equal(p.server.out_bytes, HARP_CONTROL_REFUSE_BYTES);
    assert_true(carry(&p.server, &p.client, 7));
    assert_refused(&p.client, HARP_REFUSAL_VERSION);
    assert_int_equal(p.client.peer_refusal, HARP_REFUSAL_VERSION);
    assert_int_equal(p.client.peer_version_min, cases[i].server_min);
    assert_int_equal(p.client.peer_version_max, cases[i].server_max);
  }
}

/* A later version's HELLO shares two bytes with ours; one of any content must still get our versions. */
static void test_hello_of_a_later_version_is_answered(void **state) {
  struct pair p;
  uint8_t hello[HARP_CONTROL_MAX_BYTES];
  (void)state;
  for (size_t body = 2; body <= HARP_CONTROL_MAX_BYTES - HARP_CONTROL_MIN_BYTES; body += 200) {
    start_usual(&p);
    memset(hello, 0xff, sizeof hello);
    hello[HARP_CONTROL_HEADER_BYTES] = 7;
    hello[HARP_CONTROL_HEADER_BYTES + 1] = 8;
    size_t bytes = harp_control_seal(hello, secret, HARP_CONTROL_HELLO, 0, body);
    assert_int_equal(feed(&p.server, hello, bytes, ALL), bytes);
    assert_refused(&p.server, HARP_REFUSAL_VERSION);
    assert_int_equal(p.server.peer_version_min, 7);
    assert_int_equal(p.server.peer_version_max, 8);
    assert_int_equal(p.server.out_bytes, HARP_CONTROL_REFUSE_BYTES);
  }
  start_usual(&p);
  feed(&p.server, hello, harp_control_seal(hello, secret, HARP_CONTROL_HELLO, 0, 1), ALL);
  assert_refused(&p.server, HARP_REFUSAL_NOT_HARP);
}

static void test_server_may_not_choose_an_older_version(void **state) {
  struct pair p;
  uint8_t welcome[HARP_CONTROL_MAX_BYTES];
  (void)state;
  prepare(&p);
  start(&p, 1, 3, 1, 1);
  carry(&p.client, &p.server, ALL);
  memcpy(welcome, p.server.out, p.server.out_bytes);
  welcome[HARP_CONTROL_HEADER_BYTES + 1] = 3; /* "speaks up to 3", and yet 1 was chosen */
  harp_control_seal(welcome, p.server.control.tx, HARP_CONTROL_WELCOME, 0,
                    p.server.out_bytes - HARP_CONTROL_MIN_BYTES);
  feed(&p.client, welcome, p.server.out_bytes, ALL);
  assert_refused(&p.client, HARP_REFUSAL_VERSION);
}

static void test_old_refusals_do_not_count(void **state) {
  struct pair p, q;
  (void)state;
  prepare(&p);
  start(&p, 1, 1, 2, 2);
  carry(&p.client, &p.server, ALL);
  prepare(&q);
  q.client_nonce[3] ^= 1;
  start(&q, 1, 1, 1, 1);
  carry(&p.server, &q.client, ALL);
  assert_refused(&q.client, HARP_REFUSAL_SECRET);
  assert_int_equal(q.client.peer_version_max, 0);
}

static void test_senseless_endpoints_are_refused_and_reported(void **state) {
  struct pair p;
  (void)state;
  prepare(&p);
  p.client_end.enis[0].mtu = 68;
  start(&p, 1, 1, 1, 1);
  run(&p, ALL);
  assert_refused(&p.server, HARP_REFUSAL_ENDPOINT);
  assert_refused(&p.client, HARP_REFUSAL_PEER);
  assert_int_equal(p.client.peer_refusal, HARP_REFUSAL_ENDPOINT);

  prepare(&p);
  p.server_end.enis[0].ports[2] = 0;
  start(&p, 1, 1, 1, 1);
  carry(&p.client, &p.server, ALL);
  carry(&p.server, &p.client, ALL);
  assert_refused(&p.client, HARP_REFUSAL_ENDPOINT);
  assert_int_equal(p.client.out_bytes, p.client.out_sent); /* no CONFIRM */
}

/* A client that has proved the secret gets the reason; any other gets no answer. The server
 * knows its endpoint. */
static void test_server_sends_the_reason_of_a_refusal(void **state) {
  static const enum harp_refusal whys[] = {HARP_REFUSAL_BUSY, HARP_REFUSAL_CROSSED, HARP_REFUSAL_LIMIT};
  struct pair p;
  uint8_t other[HARP_SECRET_BYTES] = {1};
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(whys); i++) {
    start_usual(&p);
    feed_with(&p.server, p.client.out, p.client.out_bytes, ALL, whys[i]);
    assert_refused(&p.server, whys[i]);
    assert_same_endpoint(&p.server.peer, &p.client_end);
    carry(&p.server, &p.client, ALL);
    assert_refused(&p.client, HARP_REFUSAL_PEER);
    assert_int_equal(p.client.peer_refusal, whys[i]);

    start_usual(&p);
    harp_handshake_init(&p.client, true, other, p.client_nonce, 1, 1, &p.client_end);
    feed_with(&p.server, p.client.out, p.client.out_bytes, ALL, whys[i]);
    assert_refused(&p.server, HARP_REFUSAL_SECRET);
    assert_int_equal(p.server.out_bytes, 0);
  }
}

static void test_unauthenticated_peers_are_refused_at_once(void **state) {
  static const struct {
    const char *bytes;
    size_t wrong_at;
  } cases[] = {
      {"GET / HTTP/1.1\r\n", 0},
      {"\x16\x03\x01\x02", 0},
      {"SSH-2.0", 0},
      {"HTTP", 1},
      {"HARPOON", 4},
      {"HARP\x02\x00\x00\x28", 4}, /* WELCOME, to a server */
      {"HARP\x01\x00\x05", 6},
      {"HARP\x01\x00\x00\x17", 7},
      {"HARP\x01\x00\xff", 6},
  };
  struct pair p;
  (void)state;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
    start_usual(&p);
    feed(&p.server, bytes, cases[i].wrong_at, 1);
    assert_int_equal(p.server.state, HARP_HANDSHAKE_WAIT_HELLO);
    feed(&p.server, bytes + cases[i].wrong_at, 1, 1);
    assert_refused(&p.server, HARP_REFUSAL_NOT_HARP);
    assert_int_equal(p.server.out_bytes, 0);
  }
}

static void test_own_hello_sent_back_is_refused(void **state) {
  struct pair p;
  (void)state;
  start_usual(&p);
  carry(&p.client, &p.client, ALL);
  assert_refused(&p.client, HARP_REFUSAL_NOT_HARP);
}

/* Flips each bit of one of the messages; nobody may come to an end by it. Zeros follow, in case a length
 * grew. */
static void test_every_changed_bit_is_noticed(void **state) {
  struct pair good, p;
  uint8_t changed[2 * HARP_CONTROL_MAX_BYTES];
  (void)state;
  start_usual(&good);
  run(&good, ALL);
  const size_t hello_bytes = good.client.out_bytes - HARP_CONTROL_MIN_BYTES;
  const struct {
    const uint8_t *message;
    size_t bytes;
    bool to_client;
  } cases[] = {{good.client.out, hello_bytes, false},
               {good.server.out, good.server.out_bytes, true},
               {good.client.out + hello_bytes, HARP_CONTROL_MIN_BYTES, false}};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    for (size_t bit = 0; bit < cases[i].bytes * 8; bit++) {
      start_usual(&p);
      if (i == 2) feed(&p.server, good.client.out, hello_bytes, ALL);
      memset(changed, 0, sizeof changed);
      memcpy(changed, cases[i].message, cases[i].bytes);
      changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
      struct harp_handshake *h = cases[i].to_client ? &p.client : &p.server;
      feed(h, changed, sizeof changed, ALL);
      assert_int_equal(h->state, HARP_HANDSHAKE_REFUSED);
    }
  }
}

static void test_every_refusal_has_a_text(void **state) {
  (void)state;
  for (int r = HARP_REFUSAL_NONE; r <= HARP_REFUSAL_MACS; r++) {
    assert_true(strlen(harp_refusal_text((enum harp_refusal)r)) > 5);
    for (int other = HARP_REFUSAL_NONE; other < r; other++)
      assert_string_not_equal(harp_refusal_text((enum harp_refusal)r),
                              harp_refusal_text((enum harp_refusal)other));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_peers_agree_whatever_the_pieces),
      cmocka_unit_test(test_keys_are_those_of_the_document),
      cmocka_unit_test(test_keys_of_macs_are_those_of_the_document),
      cmocka_unit_test(test_both_sides_require_the_same_authentication),
      cmocka_unit_test(test_an_answer_without_macs_is_refused),
      cmocka_unit_test(test_keys_depend_on_both_nonces),
      cmocka_unit_test(test_nothing_behind_the_handshake_is_swallowed),
      cmocka_unit_test(test_another_secret_gets_no_answer),
      cmocka_unit_test(test_recording_is_of_no_use),
      cmocka_unit_test(test_newest_common_version_is_chosen),
      cmocka_unit_test(test_without_common_version_both_know_both_ranges),
      cmocka_unit_test(test_hello_of_a_later_version_is_answered),
      cmocka_unit_test(test_server_may_not_choose_an_older_version),
      cmocka_unit_test(test_old_refusals_do_not_count),
      cmocka_unit_test(test_senseless_endpoints_are_refused_and_reported),
      cmocka_unit_test(test_server_sends_the_reason_of_a_refusal),
      cmocka_unit_test(test_unauthenticated_peers_are_refused_at_once),
      cmocka_unit_test(test_own_hello_sent_back_is_refused),
      cmocka_unit_test(test_every_changed_bit_is_noticed),
      cmocka_unit_test(test_every_refusal_has_a_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

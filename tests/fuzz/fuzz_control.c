/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames: arbitrary bytes, and arbitrary bodies under a good MAC. What decodes must encode to the
 * same, but for what is reserved. */
#include "wire/control.h"

#include <errno.h>

#include "fuzz/fuzz_input.h"

static const uint8_t key[HARP_MAC_KEY_BYTES] = "sixteen bytes...";

/* Returns how many bytes the body of a message has at least; -1: no such message follows the handshake. */
static int body_min_bytes(unsigned type) {
  static const int bytes[] = {
      [HARP_CONTROL_FINAL] = sizeof(struct harp_wire_final),
      [HARP_CONTROL_OPEN] = sizeof(struct harp_wire_open),
      [HARP_CONTROL_OPENED] = sizeof(struct harp_wire_opened),
      [HARP_CONTROL_CLOSE] = sizeof(struct harp_wire_close),
      [HARP_CONTROL_WANT] = sizeof(struct harp_wire_want),
      [HARP_CONTROL_ADDRESS] = sizeof(struct harp_wire_address),
  };
  return type < HARP_CONTROL_PING || type >= sizeof bytes / sizeof bytes[0] ? -1 : bytes[type];
}

static size_t encode(uint8_t *out, const struct harp_control_message *m) {
  switch (m->type) {
  case HARP_CONTROL_PING:
    return harp_control_encode_ping(out, key, m->count);
  case HARP_CONTROL_PONG:
    return harp_control_encode_pong(out, key, m->count);
  case HARP_CONTROL_FINAL:
    return harp_control_encode_final(out, key, m->count, &m->final);
  case HARP_CONTROL_OPEN:
    return harp_control_encode_open(out, key, m->count, &m->open);
  case HARP_CONTROL_OPENED:
    return harp_control_encode_opened(out, key, m->count, &m->opened);
  case HARP_CONTROL_WANT:
    return harp_control_encode_want(out, key, m->count, &m->want);
  case HARP_CONTROL_ADDRESS:
    return harp_control_encode_address(out, key, m->count, &m->numbered);
  default:
    return harp_control_encode_close(out, key, m->count, &m->close);
  }
}

/* A stream of frames under any key. */
static void run_stream(struct fuzz_input *in) {
  struct harp_control_message m;
  while (in->bytes) {
    int n = harp_control_decode(in->data, in->bytes, key, &m);
    FUZZ_CHECK(n == -EBADMSG || (n >= 0 && (size_t)n <= in->bytes));
    if (n <= 0) return;
    FUZZ_CHECK(body_min_bytes(m.type) >= 0);
    in->data += n;
    in->bytes -= (size_t)n;
  }
}

/* One frame with a good MAC: type, count and body from the input. */
static void run_sealed(struct fuzz_input *in) {
  uint8_t frame[HARP_CONTROL_MAX_BYTES], again[HARP_CONTROL_MAX_BYTES];
  struct harp_control_message m;
  unsigned type = fuzz_u8(in);
  uint32_t count = fuzz_u32(in);
  size_t body = fuzz_bytes(in, frame + HARP_CONTROL_HEADER_BYTES, sizeof frame - HARP_CONTROL_MIN_BYTES);
  size_t bytes = harp_control_seal(frame, key, (enum harp_control_type)type, count, body);
  for (size_t cut = 0; cut < bytes; cut += 1 + cut / 8)
    FUZZ_CHECK(harp_control_decode(frame, cut, key, &m) <= 0);
  int n = harp_control_decode(frame, bytes, key, &m);
  if (body_min_bytes(type) < 0 || (int)body < body_min_bytes(type)) {
    FUZZ_CHECK(n == -EBADMSG);
    return;
  }
  if (type == HARP_CONTROL_ADDRESS && n == -EBADMSG) return; /* the address is of no host */
  FUZZ_CHECK(n == (int)bytes && m.type == type && m.count == count);
  size_t length = encode(again, &m);
  FUZZ_CHECK(harp_control_decode(again, length, key, &m) == (int)length && m.count == count);
  FUZZ_CHECK(encode(frame, &m) == length && !memcmp(again, frame, length));
}

/* The body of a HELLO: an endpoint that is accepted must be sound, and the same once encoded and decoded
 * again. */
static void run_endpoint(struct fuzz_input *in) {
  uint8_t body[HARP_CONTROL_MAX_BYTES], body_again[HARP_CONTROL_MAX_BYTES], *exact;
  struct harp_endpoint e, back;
  struct harp_hello hello;
  exact = malloc(in->bytes ? in->bytes : 1);
  FUZZ_CHECK(exact);
  size_t bytes = fuzz_bytes(in, exact, in->bytes);
  if (harp_control_get_endpoint(exact, bytes, &e)) {
    FUZZ_CHECK(harp_control_get_hello(exact, bytes, &hello));
    FUZZ_CHECK(e.eni_count >= 1 && e.eni_count <= HARP_ENDPOINT_ENIS_MAX);
    FUZZ_CHECK(memchr(e.name, 0, sizeof e.name) && memchr(e.build, 0, sizeof e.build));
    for (unsigned i = 0; i < e.eni_count; i++) {
      FUZZ_CHECK(e.enis[i].port_count <= HARP_ENDPOINT_PORTS_MAX);
      FUZZ_CHECK(e.enis[i].port_count || e.enis[i].tcp_port);
      FUZZ_CHECK(e.enis[i].mtu >= HARP_ENDPOINT_MTU_MIN_BYTES);
      FUZZ_CHECK(e.enis[i].family == 4 || e.enis[i].family == 6);
    }
    size_t again = harp_control_put_hello(body, &hello, &e);
    FUZZ_CHECK(again <= bytes && harp_control_get_endpoint(body, again, &back));
    FUZZ_CHECK(harp_control_put_hello(body_again, &hello, &back) == again &&
               !memcmp(body, body_again, again));
  }
  free(exact);
}

static void run_refuse(struct fuzz_input *in) {
  uint8_t body[sizeof(struct harp_wire_refuse)], again[sizeof body];
  struct harp_refuse r, back;
  if (!harp_control_get_refuse(in->data, in->bytes, &r)) return;
  FUZZ_CHECK(harp_control_get_refuse(body, harp_control_put_refuse(body, &r), &back));
  FUZZ_CHECK(harp_control_put_refuse(again, &back) == sizeof body && !memcmp(body, again, sizeof body));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct fuzz_input in = {data, bytes};
  switch (fuzz_u8(&in) % 4) {
  case 0:
    run_stream(&in);
    break;
  case 1:
    run_sealed(&in);
    break;
  case 2:
    run_endpoint(&in);
    break;
  default:
    run_refuse(&in);
  }
  return 0;
}

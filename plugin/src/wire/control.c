/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/control.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "wire/siphash.h"

/* ---- framing ---- */

int harp_control_peek(const uint8_t *buf, size_t bytes) {
  struct harp_wire_control h;
  const struct harp_be32 magic = harp_to_be32(HARP_CONTROL_MAGIC);
  const size_t length_at = offsetof(struct harp_wire_control, length);
  if (memcmp(buf, &magic, HARP_MIN(bytes, sizeof magic))) return -EBADMSG;
  /* The upper half of the length alone may already be too much. */
  if (bytes > length_at && buf[length_at] > HARP_CONTROL_MAX_BYTES >> 8) return -EBADMSG;
  if (bytes < length_at + sizeof h.length) return 0;
  memcpy(&h.length, buf + length_at, sizeof h.length);
  int length = harp_from_be16(h.length);
  return length < HARP_CONTROL_MIN_BYTES || length > HARP_CONTROL_MAX_BYTES ? -EBADMSG : length;
}

static struct harp_be64 mac_of(const uint8_t *frame, size_t bytes, const uint8_t *key) {
  return harp_to_be64(harp_siphash(key, frame, bytes - HARP_CONTROL_MAC_BYTES));
}

size_t harp_control_seal(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], enum harp_control_type type,
                         uint32_t count, size_t body_bytes) {
  size_t bytes = HARP_CONTROL_MIN_BYTES + body_bytes;
  struct harp_wire_control h = {
      .magic = harp_to_be32(HARP_CONTROL_MAGIC),
      .type = (uint8_t)type,
      .length = harp_to_be16((uint16_t)bytes),
      .count = harp_to_be32(count),
  };
  HARP_ASSERT(bytes <= HARP_CONTROL_MAX_BYTES);
  memcpy(out, &h, sizeof h);
  struct harp_be64 mac = mac_of(out, bytes, key);
  memcpy(out + bytes - sizeof mac, &mac, sizeof mac);
  return bytes;
}

bool harp_control_mac_ok(const uint8_t *frame, size_t bytes, const uint8_t key[HARP_MAC_KEY_BYTES]) {
  struct harp_be64 expected = mac_of(frame, bytes, key);
  return harp_control_mac_equal(frame + bytes - HARP_CONTROL_MAC_BYTES, (const uint8_t *)&expected);
}

bool harp_control_mac_equal(const uint8_t a[HARP_CONTROL_MAC_BYTES],
                            const uint8_t b[HARP_CONTROL_MAC_BYTES]) {
  uint64_t x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x ^ y) == 0; /* one comparison of all bits: constant time */
}

/* ---- ENIs ---- */

static struct harp_wire_eni wire_of_eni(const struct harp_endpoint_eni *e) {
  struct harp_wire_eni w = {
      .family = e->family,
      .mtu = harp_to_be16(e->mtu),
      .port_count = e->port_count,
      .tcp_port = harp_to_be16(e->tcp_port),
      .speed = harp_to_be16((uint16_t)HARP_MIN(e->speed_mbps / HARP_ENDPOINT_SPEED_MBPS, UINT16_MAX)),
  };
  HARP_ASSERT(e->port_count <= HARP_ENDPOINT_PORTS_MAX);
  memcpy(w.addr, e->addr, e->family == 4 ? 4 : sizeof w.addr);
  for (uint32_t i = 0; i < e->port_count; i++) w.ports[i] = harp_to_be16(e->ports[i]);
  return w;
}

static bool all_zero(const uint8_t *p, size_t bytes) {
  uint8_t any = 0;
  for (size_t i = 0; i < bytes; i++) any |= p[i];
  return !any;
}

/* Returns whether one host can be meant: neither unspecified nor multicast nor broadcast. */
static bool address_ok(uint8_t family, const uint8_t addr[16]) {
  if (all_zero(addr, 16)) return false;
  if (family == 6) return addr[0] != 0xff;
  return family == 4 && all_zero(addr + 4, 12) && addr[0] != 0 && addr[0] < 224;
}

static bool get_eni(const struct harp_wire_eni *w, struct harp_endpoint_eni *e) {
  *e = (struct harp_endpoint_eni){
      .family = w->family,
      .mtu = harp_from_be16(w->mtu),
      .port_count = w->port_count,
      .tcp_port = harp_from_be16(w->tcp_port),
      .speed_mbps = harp_from_be16(w->speed) * (uint32_t)HARP_ENDPOINT_SPEED_MBPS,
  };
  memcpy(e->addr, w->addr, sizeof e->addr);
  e->is_unnumbered = all_zero(e->addr, sizeof e->addr) && (e->family == 4 || e->family == 6);
  if (!e->is_unnumbered && !address_ok(e->family, e->addr)) return false;
  if (e->mtu < HARP_ENDPOINT_MTU_MIN_BYTES) return false;
  if ((!e->port_count && !e->tcp_port) || e->port_count > HARP_ENDPOINT_PORTS_MAX) return false;
  for (uint32_t i = 0; i < e->port_count && !e->is_unnumbered; i++) {
    e->ports[i] = harp_from_be16(w->ports[i]);
    if (!e->ports[i]) return false;
  }
  return true;
}

/* ---- after the handshake ---- */

size_t harp_control_encode_ping(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count) {
  return harp_control_seal(out, key, HARP_CONTROL_PING, count, 0);
}

size_t harp_control_encode_pong(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count) {
  return harp_control_seal(out, key, HARP_CONTROL_PONG, count, 0);
}

/* Seals a frame with this body. */
static size_t encode_frame(uint8_t *out, const uint8_t *key, enum harp_control_type type, uint32_t count,
                           const void *body, size_t bytes) {
  memcpy(out + HARP_CONTROL_HEADER_BYTES, body, bytes);
  return harp_control_seal(out, key, type, count, bytes);
}

size_t harp_control_encode_final(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                 const struct harp_final *final) {
  struct harp_wire_final w = {.reason = harp_to_be32(final->reason)};
  return encode_frame(out, key, HARP_CONTROL_FINAL, count, &w, sizeof w);
}

static struct harp_wire_open wire_of_open(const struct harp_open *open) {
  return (struct harp_wire_open){.stream = harp_to_be16(open->stream),
                                 .port = harp_to_be16(open->port),
                                 .first_line = harp_to_be32(open->first_line),
                                 .first_message = harp_to_be32(open->first_message),
                                 .attempt = harp_to_be32(open->attempt)};
}

size_t harp_control_encode_open(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                const struct harp_open *open) {
  struct harp_wire_open w = wire_of_open(open);
  memcpy(w.proof, open->proof, sizeof w.proof);
  return encode_frame(out, key, HARP_CONTROL_OPEN, count, &w, sizeof w);
}

#define OPEN_LABEL "HARP open stream"

void harp_control_open_proof(const struct harp_open *open, const uint8_t secret[HARP_SECRET_BYTES],
                             uint64_t opener_token, uint64_t listener_token,
                             uint8_t proof[HARP_CONTROL_MAC_BYTES]) {
  struct {
    char label[sizeof OPEN_LABEL - 1];
    struct harp_be64 opener, listener;
    struct harp_wire_open open; /* but for the proof itself, which is zero here */
  } input = {.opener = harp_to_be64(opener_token),
             .listener = harp_to_be64(listener_token),
             .open = wire_of_open(open)};
  memcpy(input.label, OPEN_LABEL, sizeof input.label);
  _Static_assert(sizeof input == 56, "no padding");
  struct harp_be64 mac = harp_to_be64(harp_siphash(secret, &input, sizeof input));
  memcpy(proof, &mac, sizeof mac);
}

size_t harp_control_encode_opened(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                  const struct harp_opened *opened) {
  struct harp_wire_opened w = {.stream = harp_to_be16(opened->stream),
                               .refusal = harp_to_be16((uint16_t)opened->refusal)};
  return encode_frame(out, key, HARP_CONTROL_OPENED, count, &w, sizeof w);
}

size_t harp_control_encode_close(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                 const struct harp_close *close) {
  struct harp_wire_close w = {
      .stream = harp_to_be16(close->stream),
      .is_sender = harp_to_be16(close->is_sender),
      .reason = harp_to_be32(close->reason),
      .delivered = harp_to_be32(close->delivered),
      .detail = {harp_to_be32(close->detail[0]), harp_to_be32(close->detail[1])},
  };
  return encode_frame(out, key, HARP_CONTROL_CLOSE, count, &w, sizeof w);
}

size_t harp_control_encode_want(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                const struct harp_want *want) {
  struct harp_wire_want w = {.paths = harp_to_be64(want->paths)};
  return encode_frame(out, key, HARP_CONTROL_WANT, count, &w, sizeof w);
}

size_t harp_control_encode_address(uint8_t *out, const uint8_t key[HARP_MAC_KEY_BYTES], uint32_t count,
                                   const struct harp_numbered *numbered) {
  struct harp_wire_address w = {.index = harp_to_be16(numbered->index),
                                .answer_port = harp_to_be16(numbered->eni.answer_port),
                                .eni = wire_of_eni(&numbered->eni)};
  HARP_ASSERT(!numbered->eni.is_unnumbered);
  return encode_frame(out, key, HARP_CONTROL_ADDRESS, count, &w, sizeof w);
}

/* Returns how many bytes the body of a message has at least, -EBADMSG when no such message follows the
 * handshake. */
static int body_min_bytes(unsigned type) {
  switch (type) {
  case HARP_CONTROL_PING:
  case HARP_CONTROL_PONG:
    return 0;
  case HARP_CONTROL_FINAL:
    return sizeof(struct harp_wire_final);
  case HARP_CONTROL_OPEN:
    return sizeof(struct harp_wire_open);
  case HARP_CONTROL_OPENED:
    return sizeof(struct harp_wire_opened);
  case HARP_CONTROL_CLOSE:
    return sizeof(struct harp_wire_close);
  case HARP_CONTROL_WANT:
    return sizeof(struct harp_wire_want);
  case HARP_CONTROL_ADDRESS:
    return sizeof(struct harp_wire_address);
  default:
    return -EBADMSG;
  }
}

static enum harp_refusal known_refusal(unsigned reason) {
  return reason <= HARP_REFUSAL_MACS ? (enum harp_refusal)reason : HARP_REFUSAL_PEER;
}

/* Returns false when the message makes no sense. */
static bool get_address(const uint8_t *body, struct harp_numbered *numbered) {
  struct harp_wire_address w;
  memcpy(&w, body, sizeof w);
  numbered->index = harp_from_be16(w.index);
  if (!get_eni(&w.eni, &numbered->eni) || numbered->eni.is_unnumbered) return false;
  numbered->eni.answer_port = harp_from_be16(w.answer_port);
  return true;
}

/* Returns false when the message makes no sense. */
static bool get_body(const uint8_t *body, struct harp_control_message *out) {
  struct harp_wire_final final;
  struct harp_wire_open open;
  struct harp_wire_opened opened;
  struct harp_wire_close close;
  struct harp_wire_want want;
  switch (out->type) {
  case HARP_CONTROL_FINAL:
    memcpy(&final, body, sizeof final);
    out->final = (struct harp_final){.reason = harp_from_be32(final.reason)};
    break;
  case HARP_CONTROL_OPEN:
    memcpy(&open, body, sizeof open);
    out->open = (struct harp_open){.stream = harp_from_be16(open.stream),
                                   .port = harp_from_be16(open.port),
                                   .first_line = harp_from_be32(open.first_line),
                                   .first_message = harp_from_be32(open.first_message),
                                   .attempt = harp_from_be32(open.attempt)};
    memcpy(out->open.proof, open.proof, sizeof out->open.proof);
    break;
  case HARP_CONTROL_OPENED:
    memcpy(&opened, body, sizeof opened);
    out->opened = (struct harp_opened){.stream = harp_from_be16(opened.stream),
                                       .refusal = known_refusal(harp_from_be16(opened.refusal))};
    break;
  case HARP_CONTROL_CLOSE:
    memcpy(&close, body, sizeof close);
    out->close =
        (struct harp_close){.stream = harp_from_be16(close.stream),
                            .is_sender = harp_from_be16(close.is_sender),
                            .reason = harp_from_be32(close.reason),
                            .delivered = harp_from_be32(close.delivered),
                            .detail = {harp_from_be32(close.detail[0]), harp_from_be32(close.detail[1])}};
    break;
  case HARP_CONTROL_WANT:
    memcpy(&want, body, sizeof want);
    out->want = (struct harp_want){.paths = harp_from_be64(want.paths)};
    break;
  case HARP_CONTROL_ADDRESS:
    return get_address(body, &out->numbered);
  default:
    break; /* PING and PONG have none */
  }
  return true;
}

int harp_control_decode(const uint8_t *buf, size_t bytes, const uint8_t key[HARP_MAC_KEY_BYTES],
                        struct harp_control_message *out) {
  struct harp_wire_control h;
  int length = harp_control_peek(buf, bytes);
  if (length < 0) return length;
  if (bytes <= offsetof(struct harp_wire_control, type)) return 0;
  int body_min = body_min_bytes(harp_control_type_of(buf));
  if (body_min < 0) return body_min;
  if (!length) return 0;
  if (length - HARP_CONTROL_MIN_BYTES < body_min) return -EBADMSG;
  if (bytes < (size_t)length) return 0;
  if (!harp_control_mac_ok(buf, (size_t)length, key)) return -EBADMSG;
  memcpy(&h, buf, sizeof h);
  *out =
      (struct harp_control_message){.type = (enum harp_control_type)h.type, .count = harp_from_be32(h.count)};
  return get_body(buf + sizeof h, out) ? length : -EBADMSG;
}

/* ---- HELLO and WELCOME ---- */

/* Copies as much of a text as fits its field with a NUL; the rest of the field is zero. */
static void put_text(uint8_t *wire, size_t bytes, const char *text) {
  memset(wire, 0, bytes);
  for (size_t i = 0; i + 1 < bytes && text[i]; i++) wire[i] = (uint8_t)text[i];
}

/* Writes the ports that answer, if there are any. Returns the bytes. */
static size_t put_answers(uint8_t *out, const struct harp_endpoint *e) {
  struct harp_wire_answers w = {0};
  bool has_any = false;
  for (uint32_t i = 0; i < e->eni_count; i++) {
    w.ports[i] = harp_to_be16(e->enis[i].answer_port);
    has_any |= e->enis[i].answer_port != 0;
  }
  if (!has_any) return 0;
  memcpy(out, &w, sizeof w);
  return sizeof w;
}

static void get_answers(const uint8_t *wire, size_t bytes, struct harp_endpoint *e) {
  struct harp_wire_answers w;
  if (bytes < sizeof w) return;
  memcpy(&w, wire, sizeof w);
  for (uint32_t i = 0; i < e->eni_count; i++) e->enis[i].answer_port = harp_from_be16(w.ports[i]);
}

size_t harp_control_put_hello(uint8_t *body, const struct harp_hello *hello,
                              const struct harp_endpoint *endpoint) {
  const struct harp_endpoint *e = endpoint;
  struct harp_wire_hello w = {
      .version_min = hello->version_min,
      .version_max = hello->version_max,
      .version = hello->version,
      .auth = e->auth,
      .attempt = harp_to_be32(e->attempt),
      .endpoint =
          {
              .token = harp_to_be64(e->token),
              .first_line = harp_to_be32(e->first_line),
              .first_message = harp_to_be32(e->first_message),
              .first_number = harp_to_be32(e->first_number),
              .window_bytes = harp_to_be32(e->window_bytes),
              .path_count = harp_to_be16(e->path_count),
              .eni_count = harp_to_be16(e->eni_count),
              .pid = harp_to_be32(e->pid),
          },
  };
  HARP_ASSERT(e->eni_count <= HARP_ENDPOINT_ENIS_MAX);
  memcpy(w.nonce, hello->nonce, sizeof w.nonce);
  put_text(w.endpoint.name, sizeof w.endpoint.name, e->name);
  memcpy(body, &w, sizeof w);
  for (uint32_t i = 0; i < e->eni_count; i++) {
    struct harp_wire_eni eni = wire_of_eni(&e->enis[i]);
    memcpy(body + sizeof w + i * sizeof eni, &eni, sizeof eni);
  }
  size_t length = sizeof w + e->eni_count * sizeof(struct harp_wire_eni);
  put_text(body + length, HARP_ENDPOINT_BUILD_BYTES, e->build);
  length += sizeof(struct harp_wire_build);
  return length + put_answers(body + length, e);
}

bool harp_control_get_versions(const uint8_t *body, size_t bytes, uint8_t *version_min,
                               uint8_t *version_max) {
  if (bytes < 2) return false;
  *version_min = body[0];
  *version_max = body[1];
  return true;
}

bool harp_control_get_hello(const uint8_t *body, size_t bytes, struct harp_hello *hello) {
  struct harp_wire_hello w;
  if (bytes < sizeof w) return false;
  memcpy(&w, body, sizeof w);
  *hello =
      (struct harp_hello){.version_min = w.version_min, .version_max = w.version_max, .version = w.version};
  memcpy(hello->nonce, w.nonce, sizeof hello->nonce);
  return true;
}

/* Copies a text that must end within its field; it will be shown to people, so only plain characters pass. */
static bool get_text(const uint8_t *wire, char *text, size_t bytes) {
  memset(text, 0, bytes);
  for (size_t i = 0; i < bytes; i++) {
    if (!wire[i]) return true;
    text[i] = wire[i] >= ' ' && wire[i] <= '~' ? (char)wire[i] : '?';
  }
  return false;
}

bool harp_control_get_endpoint(const uint8_t *body, size_t bytes, struct harp_endpoint *endpoint) {
  struct harp_wire_hello h;
  const struct harp_wire_endpoint *w = &h.endpoint;
  bool any_numbered = false;
  if (bytes < sizeof h) return false;
  memcpy(&h, body, sizeof h);
  *endpoint = (struct harp_endpoint){
      .token = harp_from_be64(w->token),
      .first_line = harp_from_be32(w->first_line),
      .first_message = harp_from_be32(w->first_message),
      .first_number = harp_from_be32(w->first_number),
      .attempt = harp_from_be32(h.attempt),
      .auth = h.auth,
      .window_bytes = harp_from_be32(w->window_bytes),
      .path_count = harp_from_be16(w->path_count),
      .eni_count = harp_from_be16(w->eni_count),
      .pid = harp_from_be32(w->pid),
  };
  if (!get_text(w->name, endpoint->name, sizeof endpoint->name)) return false;
  if (!endpoint->path_count || endpoint->path_count > HARP_ENDPOINT_PATHS_MAX) return false;
  if (!endpoint->eni_count || endpoint->eni_count > HARP_ENDPOINT_ENIS_MAX) return false;
  size_t enis_bytes = endpoint->eni_count * sizeof(struct harp_wire_eni);
  if (bytes - sizeof h < enis_bytes + sizeof(struct harp_wire_build)) return false;
  if (!get_text(body + sizeof h + enis_bytes, endpoint->build, sizeof endpoint->build)) return false;
  for (uint32_t i = 0; i < endpoint->eni_count; i++) {
    struct harp_wire_eni eni;
    memcpy(&eni, body + sizeof h + i * sizeof eni, sizeof eni);
    if (!get_eni(&eni, &endpoint->enis[i])) return false;
    any_numbered |= !endpoint->enis[i].is_unnumbered;
  }
  size_t known_bytes = sizeof h + enis_bytes + sizeof(struct harp_wire_build);
  get_answers(body + known_bytes, bytes - known_bytes, endpoint);
  return any_numbered;
}

/* ---- REFUSE ---- */

size_t harp_control_put_refuse(uint8_t *body, const struct harp_refuse *refuse) {
  struct harp_wire_refuse w = {
      .version_min = refuse->version_min,
      .version_max = refuse->version_max,
      .reason = harp_to_be16((uint16_t)refuse->reason),
  };
  memcpy(w.hello_mac, refuse->hello_mac, sizeof w.hello_mac);
  memcpy(body, &w, sizeof w);
  return sizeof w;
}

bool harp_control_get_refuse(const uint8_t *body, size_t bytes, struct harp_refuse *refuse) {
  struct harp_wire_refuse w;
  if (bytes < sizeof w) return false;
  memcpy(&w, body, sizeof w);
  unsigned reason = harp_from_be16(w.reason);
  bool known = reason == HARP_REFUSAL_VERSION || reason == HARP_REFUSAL_ENDPOINT ||
               reason == HARP_REFUSAL_BUSY || reason == HARP_REFUSAL_CROSSED ||
               reason == HARP_REFUSAL_LIMIT || reason == HARP_REFUSAL_PATHS || reason == HARP_REFUSAL_FILES ||
               reason == HARP_REFUSAL_NO_MACS || reason == HARP_REFUSAL_MACS;
  *refuse = (struct harp_refuse){
      .version_min = w.version_min,
      .version_max = w.version_max,
      .reason = known ? (enum harp_refusal)reason : HARP_REFUSAL_PEER,
  };
  memcpy(refuse->hello_mac, w.hello_mac, sizeof refuse->hello_mac);
  return true;
}

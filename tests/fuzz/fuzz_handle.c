/* SPDX-License-Identifier: Apache-2.0 */
/* The handle: arbitrary bytes, in the room of either version of NCCL's interface.
 *
 * What must hold: nothing behind the room is read, what is accepted has addresses and a port, and to make a
 * handle of it and read that again gives the same. */
#include "engine/control/handle.h"

#include "fuzz/fuzz_input.h"

static void check_again(const struct harp_contact *c, size_t bytes) {
  uint8_t *memory = malloc(bytes); /* exactly as large, so that AddressSanitizer sees its end */
  struct harp_contact again;
  struct harp_error error;
  char text[HARP_CONTACT_TEXT_BYTES];
  FUZZ_CHECK(memory && c->count >= 1 && c->count <= HARP_HANDLE_ADDRESSES_MAX && c->port);
  harp_handle_encode(memory, bytes, c);
  FUZZ_CHECK(harp_handle_decode(memory, bytes, &again, &error));
  FUZZ_CHECK(!memcmp(c, &again, sizeof again));
  FUZZ_CHECK(memchr(harp_contact_text(&again, text), 0, sizeof text));
  free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct fuzz_input in = {data, bytes};
  size_t room = fuzz_u8(&in) & 1 ? HARP_HANDLE_BYTES : HARP_HANDLE_BYTES_V4;
  uint8_t *memory = calloc(1, room);
  struct harp_contact c;
  struct harp_error error = {0};
  FUZZ_CHECK(memory);
  fuzz_bytes(&in, memory, room);
  if (harp_handle_decode(memory, room, &c, &error))
    check_again(&c, room);
  else
    FUZZ_CHECK(error.text[0]);
  free(memory);
  return 0;
}

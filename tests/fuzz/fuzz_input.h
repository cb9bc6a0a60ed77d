/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: reading their input as numbers, checks, and a main() that replays files.
 *
 * Each target defines LLVMFuzzerTestOneInput. With HARP_FUZZ_MAIN it is an ordinary program that runs the
 * files named on its command line: how the corpus is replayed where there is no libFuzzer. */
#ifndef HARP_FUZZ_INPUT_H
#define HARP_FUZZ_INPUT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define FUZZ_CHECK(x)                                                                                        \
  do {                                                                                                       \
    if (!(x)) {                                                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #x);                                 \
      abort();                                                                                               \
    }                                                                                                        \
  } while (0)

/* The rest of the input; behind its end there are zeros. */
struct fuzz_input {
  const uint8_t *data;
  size_t bytes;
};

static inline uint8_t fuzz_u8(struct fuzz_input *in) {
  if (!in->bytes) return 0;
  in->bytes--;
  return *in->data++;
}
static inline uint16_t fuzz_u16(struct fuzz_input *in) {
  unsigned high = fuzz_u8(in);
  return (uint16_t)(high << 8 | fuzz_u8(in));
}
static inline uint32_t fuzz_u32(struct fuzz_input *in) {
  uint32_t high = fuzz_u16(in);
  return high << 16 | fuzz_u16(in);
}
/* Copies up to `bytes` bytes; returns how many there were. */
static inline size_t fuzz_bytes(struct fuzz_input *in, uint8_t *out, size_t bytes) {
  size_t n = bytes < in->bytes ? bytes : in->bytes;
  memcpy(out, in->data, n);
  in->data += n;
  in->bytes -= n;
  return n;
}

#ifdef HARP_FUZZ_MAIN
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
      perror(argv[i]);
      return 1;
    }
    size_t bytes = (size_t)ftell(file);
    uint8_t *data = malloc(bytes ? bytes : 1); /* exactly as large, so that AddressSanitizer sees its end */
    rewind(file);
    if (!data || fread(data, 1, bytes, file) != bytes) {
      perror(argv[i]);
      return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
  }
  printf("%d inputs replayed\n", argc - 1);
  return 0;
}
#endif
#endif

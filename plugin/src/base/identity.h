/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of this build. No state; any thread. */
#ifndef HARP_IDENTITY_H
#define HARP_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARP_BUILD_ID_TEXT_BYTES = 13 }; /* 6 bytes of the id as digits, and the NUL */

/* Returns the version of the source that this was built from, such as "1.0.0-12-gabc1234". */
const char *harp_version(void);

/* Writes the first digits of the id that the linker gave this library or program; "unknown" where it gave
 * none. It differs between any two builds that differ. */
void harp_build_id(char text[HARP_BUILD_ID_TEXT_BYTES]);

/* Returns what the library is called that uses the plugin: "NCCL", or "RCCL" after it was learnt. */
const char *harp_user_name(void);

/* Returns the file name that this library has for that one: "libnccl-net.so" or "librccl-net.so". */
const char *harp_plugin_name(void);

/* Learns the name from an address in that library. Another library than RCCL changes nothing. */
void harp_user_learn(uintptr_t address);

/* Returns whether an address is in the program or in a library that is loaded now. */
bool harp_is_in_library(uintptr_t address);

/* Reads it from a segment of ELF notes. Returns false when that has none or is truncated. */
bool harp_build_id_read(const uint8_t *notes, size_t bytes, char text[HARP_BUILD_ID_TEXT_BYTES]);

#endif

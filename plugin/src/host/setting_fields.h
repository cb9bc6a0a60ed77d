/* SPDX-License-Identifier: Apache-2.0 */
/* The members of struct harp_settings: for the inside of a struct, so this file has no include guard. */
uint64_t set; /* bit 1 << HARP_SETTING_X: X was set in the file or the environment */
#define SETTING(id, kind, type, field, ...) __typeof__(type) field;
#define VARIABLE(id, kind, ...)
#include "host/settings.def"
#undef SETTING
#undef VARIABLE

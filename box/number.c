/* SPDX-License-Identifier: Apache-2.0 */
#include "number.h"

#include <math.h>
#include <string.h>

const struct box_type_info box_types[BOX_TYPE_COUNT] = {
    [BOX_INT8] = {"int8", "i8", 1, true, true, 0},
    [BOX_UINT8] = {"uint8", "u8", 1, true, false, 0},
    [BOX_INT32] = {"int32", "i32", 4, true, true, 0},
    [BOX_UINT32] = {"uint32", "u32", 4, true, false, 0},
    [BOX_INT64] = {"int64", "i64", 8, true, true, 0},
    [BOX_UINT64] = {"uint64", "u64", 8, true, false, 0},
    [BOX_HALF] = {"half", "f16", 2, false, true, 5e-3},
    [BOX_FLOAT] = {"float", "f32", 4, false, true, 1e-5},
    [BOX_DOUBLE] = {"double", "f64", 8, false, true, 1e-12},
    [BOX_BFLOAT16] = {"bfloat16", "bf16", 2, false, true, 3e-2},
    [BOX_FP8_E4M3] = {"f8e4m3", "f8e4m3", 1, false, true, 0.5},
    [BOX_FP8_E5M2] = {"f8e5m2", "f8e5m2", 1, false, true, 0.5},
};

enum box_type box_type_by_name(const char *name) {
  int type = 0;
  while (type < BOX_TYPE_COUNT && strcmp(box_types[type].name, name)) type++;
  return (enum box_type)type;
}

enum box_type box_type_by_kernel(const char *name, size_t length) {
  int type = 0;
  while (type < BOX_TYPE_COUNT &&
         (strlen(box_types[type].kernel) != length || strncmp(box_types[type].kernel, name, length)))
    type++;
  return (enum box_type)type;
}

/* A sign, `exponent` bits, `mantissa` bits. Without infinity all ones are NaN, and the rest are numbers. */
struct format {
  int exponent, mantissa;
  bool has_infinity;
};
static const struct format half = {5, 10, true}, e4m3 = {4, 3, false}, e5m2 = {5, 2, true};

static float widen(struct format f, unsigned bits) {
  unsigned exponent = bits >> f.mantissa & ((1u << f.exponent) - 1),
           mantissa = bits & ((1u << f.mantissa) - 1);
  unsigned top = (1u << f.exponent) - 1, ones = (1u << f.mantissa) - 1;
  int unit = 2 - (1 << (f.exponent - 1)) - f.mantissa; /* the unit of the least numbers, as a power of 2 */
  float value;
  if (exponent == top && f.has_infinity)
    value = mantissa ? NAN : INFINITY;
  else if (exponent == top && mantissa == ones)
    value = NAN;
  else if (!exponent)
    value = ldexpf((float)mantissa, unit);
  else
    value = ldexpf((float)(mantissa + ones + 1), unit + (int)exponent - 1);
  return bits >> (f.exponent + f.mantissa) & 1 ? -value : value;
}

static unsigned narrow(struct format f, float value) {
  unsigned sign = (unsigned)!!signbit(value) << (f.exponent + f.mantissa);
  unsigned top = ((1u << f.exponent) - 1) << f.mantissa, ones = (1u << f.mantissa) - 1;
  int unit = 2 - (1 << (f.exponent - 1)) - f.mantissa;
  if (isnan(value)) return sign | top | ones;
  unsigned most = f.has_infinity ? top : (top | ones) - 1;
  float size = fabsf(value);
  if (isinf(size)) return sign | most;
  if (size == 0) return sign;
  int exponent;
  frexpf(size, &exponent);
  int shift = HARP_MAX(exponent - 1 - f.mantissa, unit); /* what the last bit of the mantissa stands for */
  float rounded = rintf(ldexpf(size, -shift));
  /* Numbers of one format follow one another as integers do: a carry out of the mantissa is right. */
  unsigned bits = ((unsigned)(shift - unit) << f.mantissa) + (unsigned)rounded;
  return sign | HARP_MIN(bits, most);
}

float box_half_widen(uint16_t bits) {
  return widen(half, bits);
}
uint16_t box_half_narrow(float value) {
  return (uint16_t)narrow(half, value);
}
float box_e4m3_widen(uint8_t bits) {
  return widen(e4m3, bits);
}
uint8_t box_e4m3_narrow(float value) {
  return (uint8_t)narrow(e4m3, value);
}
float box_e5m2_widen(uint8_t bits) {
  return widen(e5m2, bits);
}
uint8_t box_e5m2_narrow(float value) {
  return (uint8_t)narrow(e5m2, value);
}

/* The upper half of a float. */
float box_bfloat16_widen(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}
uint16_t box_bfloat16_narrow(float value) {
  enum { QUIET = 0x40 };
  uint32_t wide;
  memcpy(&wide, &value, sizeof wide);
  if (isnan(value)) return (uint16_t)(wide >> 16 | QUIET);
  return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

double box_number_read(enum box_type type, const void *array, size_t i) {
  switch (type) {
  case BOX_INT8:
    return ((const int8_t *)array)[i];
  case BOX_UINT8:
    return ((const uint8_t *)array)[i];
  case BOX_INT32:
    return ((const int32_t *)array)[i];
  case BOX_UINT32:
    return ((const uint32_t *)array)[i];
  case BOX_INT64:
    return (double)((const int64_t *)array)[i];
  case BOX_UINT64:
    return (double)((const uint64_t *)array)[i];
  case BOX_HALF:
    return (double)box_half_widen(((const uint16_t *)array)[i]);
  case BOX_FLOAT:
    return (double)((const float *)array)[i];
  case BOX_DOUBLE:
    return ((const double *)array)[i];
  case BOX_BFLOAT16:
    return (double)box_bfloat16_widen(((const uint16_t *)array)[i]);
  case BOX_FP8_E4M3:
    return (double)box_e4m3_widen(((const uint8_t *)array)[i]);
  case BOX_FP8_E5M2:
    return (double)box_e5m2_widen(((const uint8_t *)array)[i]);
  default:
    return 0;
  }
}

void box_number_write(enum box_type type, void *array, size_t i, double value) {
  switch (type) {
  case BOX_INT8:
    ((int8_t *)array)[i] = (int8_t)value;
    break;
  case BOX_UINT8:
    ((uint8_t *)array)[i] = (uint8_t)value;
    break;
  case BOX_INT32:
    ((int32_t *)array)[i] = (int32_t)value;
    break;
  case BOX_UINT32:
    ((uint32_t *)array)[i] = (uint32_t)value;
    break;
  case BOX_INT64:
    ((int64_t *)array)[i] = (int64_t)value;
    break;
  case BOX_UINT64:
    ((uint64_t *)array)[i] = (uint64_t)value;
    break;
  case BOX_HALF:
    ((uint16_t *)array)[i] = box_half_narrow((float)value);
    break;
  case BOX_FLOAT:
    ((float *)array)[i] = (float)value;
    break;
  case BOX_DOUBLE:
    ((double *)array)[i] = value;
    break;
  case BOX_BFLOAT16:
    ((uint16_t *)array)[i] = box_bfloat16_narrow((float)value);
    break;
  case BOX_FP8_E4M3:
    ((uint8_t *)array)[i] = box_e4m3_narrow((float)value);
    break;
  case BOX_FP8_E5M2:
    ((uint8_t *)array)[i] = box_e5m2_narrow((float)value);
    break;
  default:
    break;
  }
}

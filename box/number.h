/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's element types that C lacks, and all of them as numbers. */
#ifndef HARP_BOX_NUMBER_H
#define HARP_BOX_NUMBER_H

#include "base/base.h"

/* In the order of ncclDataType_t. */
enum box_type {
  BOX_INT8,
  BOX_UINT8,
  BOX_INT32,
  BOX_UINT32,
  BOX_INT64,
  BOX_UINT64,
  BOX_HALF,
  BOX_FLOAT,
  BOX_DOUBLE,
  BOX_BFLOAT16,
  BOX_FP8_E4M3,
  BOX_FP8_E5M2,
  BOX_TYPE_COUNT
};

struct box_type_info {
  const char *name;   /* as nccl-tests writes it */
  const char *kernel; /* as NCCL's kernels are named */
  size_t bytes;
  bool is_integer, is_signed;
  double tolerance; /* the tolerance of an average, as a share */
};
extern const struct box_type_info box_types[BOX_TYPE_COUNT];

/* Return the type of this name, or BOX_TYPE_COUNT. */
enum box_type box_type_by_name(const char *name);
enum box_type box_type_by_kernel(const char *name, size_t length);

/* Small floating-point numbers as floats, and back, rounded to the nearest, ties to even. */
float box_half_widen(uint16_t half);
uint16_t box_half_narrow(float value);
float box_bfloat16_widen(uint16_t bfloat16);
uint16_t box_bfloat16_narrow(float value);
float box_e4m3_widen(uint8_t fp8);
uint8_t box_e4m3_narrow(float value);
float box_e5m2_widen(uint8_t fp8);
uint8_t box_e5m2_narrow(float value);

/* Read and write element `index` of an array. */
double box_number_read(enum box_type type, const void *array, size_t index);
void box_number_write(enum box_type type, void *array, size_t index, double value);

#endif

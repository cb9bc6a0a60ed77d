/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce.h"

#include <string.h>

/* Defines a function of the type box_combine for elements of type T. */
#define COMBINE(name, T, result)                                                                             \
  static void name(void *out_, const void *a_, const void *b_, size_t count, uint64_t argument) {            \
    T *out = out_;                                                                                           \
    const T *a = a_, *b = b_;                                                                                \
    (void)argument;                                                                                          \
    for (size_t i = 0; i < count; i++) out[i] = (T)(result);                                                 \
  }

#define INTEGER(name, T, S)                                                                                  \
  COMBINE(name##_sum, T, a[i] + b[i])                                                                        \
  COMBINE(name##_prod, T, a[i] * b[i])                                                                       \
  static void name##_min_max(void *out_, const void *a_, const void *b_, size_t count, uint64_t argument) {  \
    T *out = out_;                                                                                           \
    const T *a = a_, *b = b_;                                                                                \
    for (size_t i = 0; i < count; i++) {                                                                     \
      T x = (T)(a[i] ^ (T)argument), y = (T)(b[i] ^ (T)argument);                                            \
      out[i] = x < y ? a[i] : b[i];                                                                          \
    }                                                                                                        \
  }                                                                                                          \
  static void name##_before(void *out_, const void *in_, size_t count, uint64_t argument) {                  \
    T *out = out_;                                                                                           \
    const T *in = in_;                                                                                       \
    for (size_t i = 0; i < count; i++) out[i] = (T)(in[i] * (T)argument);                                    \
  }                                                                                                          \
  static void name##_after(void *out_, const void *in_, size_t count, uint64_t argument) {                   \
    T *out = out_;                                                                                           \
    const T *in = in_;                                                                                       \
    uint64_t divisor = HARP_MAX(argument >> 1, 1);                                                           \
    for (size_t i = 0; i < count; i++)                                                                       \
      out[i] = argument & 1 ? (T)((int64_t)(S)in[i] / (int64_t)divisor) : (T)(in[i] / divisor);              \
  }

/* W is the type in which T is computed; in() and out() lead there and back. */
#define REAL(name, T, W, widen, narrow)                                                                      \
  COMBINE(name##_sum, T, narrow(widen(a[i]) + widen(b[i])))                                                  \
  COMBINE(name##_prod, T, narrow(widen(a[i]) * widen(b[i])))                                                 \
  COMBINE(name##_min, T, widen(b[i]) < widen(a[i]) ? b[i] : a[i])                                            \
  COMBINE(name##_max, T, widen(b[i]) > widen(a[i]) ? b[i] : a[i])                                            \
  static void name##_min_max(void *out, const void *a, const void *b, size_t count, uint64_t argument) {     \
    (argument & 1 ? name##_max : name##_min)(out, a, b, count, argument);                                    \
  }                                                                                                          \
  static void name##_before(void *out_, const void *in_, size_t count, uint64_t argument) {                  \
    T *out = out_, scale;                                                                                    \
    const T *in = in_;                                                                                       \
    memcpy(&scale, &argument, sizeof scale);                                                                 \
    W factor = widen(scale);                                                                                 \
    for (size_t i = 0; i < count; i++) out[i] = narrow(widen(in[i]) * factor);                               \
  }                                                                                                          \
  static void name##_after(void *out, const void *in, size_t count, uint64_t argument) {                     \
    (void)argument;                                                                                          \
    memmove(out, in, count * sizeof(T));                                                                     \
  }

#define SAME(x) (x)
INTEGER(int8, uint8_t, int8_t)
INTEGER(int32, uint32_t, int32_t)
INTEGER(int64, uint64_t, int64_t)
REAL(half, uint16_t, float, box_half_widen, box_half_narrow)
REAL(float32, float, float, SAME, SAME)
REAL(float64, double, double, SAME, SAME)
REAL(bfloat16, uint16_t, float, box_bfloat16_widen, box_bfloat16_narrow)
REAL(e4m3, uint8_t, float, box_e4m3_widen, box_e4m3_narrow)
REAL(e5m2, uint8_t, float, box_e5m2_widen, box_e5m2_narrow)

#define REDUCER(name)                                                                                        \
  {                                                                                                          \
    .combine = {[BOX_SUM] = name##_sum,                                                                      \
                [BOX_PROD] = name##_prod,                                                                    \
                [BOX_MIN_MAX] = name##_min_max,                                                              \
                [BOX_PRE_MUL_SUM] = name##_sum,                                                              \
                [BOX_SUM_POST_DIV] = name##_sum},                                                            \
    .before = name##_before, .after = name##_after                                                           \
  }

const struct box_reducer *box_reducer_of(enum box_type type) {
  static const struct box_reducer all[BOX_TYPE_COUNT] = {
      [BOX_INT8] = REDUCER(int8),         [BOX_UINT8] = REDUCER(int8),    [BOX_INT32] = REDUCER(int32),
      [BOX_UINT32] = REDUCER(int32),      [BOX_INT64] = REDUCER(int64),   [BOX_UINT64] = REDUCER(int64),
      [BOX_HALF] = REDUCER(half),         [BOX_FLOAT] = REDUCER(float32), [BOX_DOUBLE] = REDUCER(float64),
      [BOX_BFLOAT16] = REDUCER(bfloat16), [BOX_FP8_E4M3] = REDUCER(e4m3), [BOX_FP8_E5M2] = REDUCER(e5m2),
  };
  return &all[type];
}

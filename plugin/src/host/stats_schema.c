/* SPDX-License-Identifier: Apache-2.0 */
/* The text that describes the tables; see stats_layout.h. */
#include "host/stats_layout.h"

#define COUNTER(name, unit, text) "C " #name " " unit " " text "\n"
#define GAUGE(name, unit, text)   "G " #name " " unit " " text "\n"
#define TEXT(name, bytes, text)   "T " #name " " #bytes " " text "\n"
#define DROP(name, text)          "C drop_" #name " packets packets dropped: " text "\n"
#define FIELDS_OF(fields)         fields(COUNTER, GAUGE, TEXT)

#define NUMBER_BYTES(name, unit, text) +sizeof(int64_t)
#define TEXT_BYTES(name, bytes, text)  +bytes
#define DROP_BYTES(name, text)         +sizeof(int64_t)
#define BYTES_OF(fields)               sizeof(struct harp_stats_head) fields(NUMBER_BYTES, NUMBER_BYTES, TEXT_BYTES)

/* A reader finds a field behind those before it, without padding. */
_Static_assert(sizeof(struct harp_stats_engine) == BYTES_OF(HARP_STATS_ENGINE) HARP_COUNTERS(NUMBER_BYTES)
                                                       HARP_DROPS(DROP_BYTES),
               "no padding");
_Static_assert(sizeof(struct harp_stats_eni) == BYTES_OF(HARP_STATS_ENI), "no padding");
_Static_assert(sizeof(struct harp_stats_session) == BYTES_OF(HARP_STATS_SESSION), "no padding");
_Static_assert(sizeof(struct harp_stats_path) == BYTES_OF(HARP_STATS_PATH), "no padding");
_Static_assert(sizeof(struct harp_stats_stream) == BYTES_OF(HARP_STATS_STREAM), "no padding");

const char harp_stats_schema[] = "table engine\n" FIELDS_OF(HARP_STATS_ENGINE) HARP_COUNTERS(COUNTER)
    HARP_DROPS(DROP) "table eni\n" FIELDS_OF(HARP_STATS_ENI) "table session\n" FIELDS_OF(
        HARP_STATS_SESSION) "table path\n" FIELDS_OF(HARP_STATS_PATH) "table stream\n" FIELDS_OF(HARP_STATS_STREAM);

const uint32_t harp_stats_schema_bytes = sizeof harp_stats_schema - 1;

_Static_assert(HARP_STATS_SCHEMA_AT + sizeof harp_stats_schema <= HARP_STATS_EVENTS_AT,
               "the schema fits the header");

/* SPDX-License-Identifier: Apache-2.0 */
/* Where NCCL keeps what its host code hands to its kernels. The structures change from release to release; so
 * their layout is read from the library's own debug information, once, before the ranks are forked.
 *
 * A field is known by the first word here. One that a release lacks reads as 0. */
#ifndef HARP_BOX_LAYOUT_H
#define HARP_BOX_LAYOUT_H

#include "library.h"

/* X(word, name of the structure in NCCL) */
#define BOX_STRUCTS(X)                                                                                       \
  X(ARGS, "ncclDevKernelArgs")                                                                               \
  X(BATCH, "ncclDevWorkBatch")                                                                               \
  X(COLL, "ncclDevWorkColl")                                                                                 \
  X(COLL_REG, "ncclDevWorkCollReg")                                                                          \
  X(BCAST, "ncclDevWorkBcast")                                                                               \
  X(P2P, "ncclDevWorkP2p")                                                                                   \
  X(WORK, "ncclWork")                                                                                        \
  X(ELEM, "ncclWorkElem")                                                                                    \
  X(ELEM_P2P, "ncclWorkElemP2p")                                                                             \
  X(CONN, "ncclConnInfo")                                                                                    \
  X(FIFO, "ncclConnFifo")                                                                                    \
  X(PEER, "ncclDevChannelPeer")                                                                              \
  X(CHANNEL, "ncclDevChannel")                                                                               \
  X(COMM, "ncclKernelComm")                                                                                  \
  X(COMM_OLD, "ncclDevComm")                                                                                 \
  X(PROFILER, "ncclDevProfiler")

/* X(word, structure, path of the member). Arrays and structures are reached by box_at alone. */
#define BOX_FIELDS(X)                                                                                        \
  X(ARGS_COMM, ARGS, "comm")                                                                                 \
  X(ARGS_CHANNEL_MASK, ARGS, "channelMask")                                                                  \
  X(ARGS_STORAGE, ARGS, "workStorageType")                                                                   \
  X(ARGS_WORK_MASK, ARGS, "workMask")                                                                        \
  X(ARGS_WORK_BUF, ARGS, "workBuf")                                                                          \
  X(BATCH_JUMP, BATCH, "nextJump")                                                                           \
  X(BATCH_EXTENDS, BATCH, "nextExtends")                                                                     \
  X(BATCH_TYPE, BATCH, "workType")                                                                           \
  X(BATCH_FUNC, BATCH, "funcId")                                                                             \
  X(BATCH_BASE, BATCH, "offsetBase")                                                                         \
  X(BATCH_SET, BATCH, "offsetBitset")                                                                        \
  X(COLL_LOW, COLL, "channelLo")                                                                             \
  X(COLL_HIGH, COLL, "channelHi")                                                                            \
  X(COLL_ARG_IS_POINTER, COLL, "redOpArgIsPtr")                                                              \
  X(COLL_REGISTERED, COLL, "regUsed")                                                                        \
  X(COLL_NET_REGISTERED, COLL, "netRegUsed")                                                                 \
  X(COLL_PROFILED, COLL, "profilerEnabled")                                                                  \
  X(COLL_ROOT, COLL, "root")                                                                                 \
  X(COLL_RECV, COLL, "recvbuff")                                                                             \
  X(COLL_SEND, COLL, "sendbuff")                                                                             \
  X(COLL_COUNT_LOW, COLL, "cbd.countLo")                                                                     \
  X(COLL_COUNT_MID, COLL, "cbd.countMid")                                                                    \
  X(COLL_COUNT_HIGH, COLL, "cbd.countHi")                                                                    \
  X(COLL_GRAINS_LOW, COLL, "cbd.chunkGrainsLo")                                                              \
  X(COLL_GRAINS_MID, COLL, "cbd.chunkGrainsMid")                                                             \
  X(COLL_GRAINS_HIGH, COLL, "cbd.chunkGrainsHi")                                                             \
  X(COLL_ARG, COLL, "redOpArg")                                                                              \
  X(BCAST_DEPTH, BCAST, "ringDepth")                                                                         \
  X(BCAST_CHUNK, BCAST, "chunkSize")                                                                         \
  X(BCAST_SEND, BCAST, "sendbuff")                                                                           \
  X(BCAST_RECV, BCAST, "recvbuff")                                                                           \
  X(BCAST_BYTES, BCAST, "bytes")                                                                             \
  X(BCAST_DONE, BCAST, "bytes_done")                                                                         \
  X(P2P_SEND, P2P, "sendAddr")                                                                               \
  X(P2P_RECV, P2P, "recvAddr")                                                                               \
  X(P2P_SEND_BYTES, P2P, "sendBytes")                                                                        \
  X(P2P_RECV_BYTES, P2P, "recvBytes")                                                                        \
  X(P2P_SEND_RANK, P2P, "sendRank")                                                                          \
  X(P2P_RECV_RANK, P2P, "recvRank")                                                                          \
  X(P2P_CHANNELS, P2P, "nP2pChannels")                                                                       \
  X(P2P_CHANNEL_BASE, P2P, "channelBase")                                                                    \
  X(P2P_SEND_CHANNELS, P2P, "nSendChannels")                                                                 \
  X(P2P_RECV_CHANNELS, P2P, "nRecvChannels")                                                                 \
  X(P2P_SEND_CHUNK, P2P, "sendChunkSize_u32fp8")                                                             \
  X(P2P_RECV_CHUNK, P2P, "recvChunkSize_u32fp8")                                                             \
  X(P2P_SEND_LL, P2P, "sendProtoLL")                                                                         \
  X(P2P_RECV_LL, P2P, "recvProtoLL")                                                                         \
  X(P2P_SEND_NET_REG, P2P, "sendNetReg")                                                                     \
  X(P2P_RECV_NET_REG, P2P, "recvNetReg")                                                                     \
  X(P2P_SEND_IPC_REG, P2P, "sendIpcReg")                                                                     \
  X(P2P_RECV_IPC_REG, P2P, "recvIpcReg")                                                                     \
  X(P2P_PROFILED, P2P, "profilerEnabled")                                                                    \
  X(WORK_NEXT, WORK, "header.workNext")                                                                      \
  X(WORK_FUNC, WORK, "header.funcIndex")                                                                     \
  X(WORK_LAST, WORK, "header.isLast")                                                                        \
  X(WORK_IN_FIFO, WORK, "header.inFifo")                                                                     \
  X(WORK_TYPE, WORK, "header.type")                                                                          \
  X(WORK_ELEMS, WORK, "elems")                                                                               \
  X(WORK_P2P_ELEMS, WORK, "p2pElems")                                                                        \
  X(ELEM_USED, ELEM, "isUsed")                                                                               \
  X(ELEM_ARG_IS_POINTER, ELEM, "redOpArgIsPtr")                                                              \
  X(ELEM_REGISTERED, ELEM, "regUsed")                                                                        \
  X(ELEM_ROOT, ELEM, "root")                                                                                 \
  X(ELEM_SEND, ELEM, "sendbuff")                                                                             \
  X(ELEM_RECV, ELEM, "recvbuff")                                                                             \
  X(ELEM_COUNT, ELEM, "count")                                                                               \
  X(ELEM_ARG, ELEM, "redOpArg")                                                                              \
  X(ELEM_CHUNK, ELEM, "chunkCount")                                                                          \
  X(ELEM_WORK_COUNT, ELEM, "workCount")                                                                      \
  X(ELEM_LAST_CHUNK, ELEM, "lastChunkCount")                                                                 \
  X(ELEM_WORK_OFFSET, ELEM, "workOffset")                                                                    \
  X(ELEM_BLOCK, ELEM, "bid")                                                                                 \
  X(ELEM_CHANNELS, ELEM, "nChannels")                                                                        \
  X(ELEM_LAST_CHUNK_SIZE, ELEM, "lastChunkSize")                                                             \
  X(ELEM_P2P_PEER, ELEM_P2P, "peer")                                                                         \
  X(ELEM_P2P_PROTO, ELEM_P2P, "proto")                                                                       \
  X(ELEM_P2P_TYPE, ELEM_P2P, "p2pType")                                                                      \
  X(ELEM_P2P_GROUPS, ELEM_P2P, "ngroups")                                                                    \
  X(ELEM_P2P_BUFFER_HIGH, ELEM_P2P, "buffHi32")                                                              \
  X(ELEM_P2P_BUFFER_LOW, ELEM_P2P, "buffLo32")                                                               \
  X(ELEM_P2P_COUNT_HIGH, ELEM_P2P, "countHi32")                                                              \
  X(ELEM_P2P_COUNT_LOW, ELEM_P2P, "countLo32")                                                               \
  X(ELEM_P2P_CHUNK, ELEM_P2P, "chunkSize")                                                                   \
  X(ELEM_P2P_REGISTERED, ELEM_P2P, "reg")                                                                    \
  X(CONN_BUFFERS, CONN, "buffs")                                                                             \
  X(CONN_TAIL, CONN, "tail")                                                                                 \
  X(CONN_HEAD, CONN, "head")                                                                                 \
  X(CONN_STEP_SIZE, CONN, "stepSize")                                                                        \
  X(CONN_FIFO, CONN, "connFifo")                                                                             \
  X(CONN_SIZES, CONN, "sizesFifo")                                                                           \
  X(CONN_OFFSETS, CONN, "offsFifo")                                                                          \
  X(CONN_STEP, CONN, "step")                                                                                 \
  X(FIFO_MODE, FIFO, "mode")                                                                                 \
  X(FIFO_OFFSET, FIFO, "offset")                                                                             \
  X(FIFO_SIZE, FIFO, "size")                                                                                 \
  X(PEER_SEND, PEER, "send")                                                                                 \
  X(PEER_RECV, PEER, "recv")                                                                                 \
  X(CHANNEL_PEERS, CHANNEL, "peers")                                                                         \
  X(CHANNEL_PREVIOUS, CHANNEL, "ring.prev")                                                                  \
  X(CHANNEL_NEXT, CHANNEL, "ring.next")                                                                      \
  X(CHANNEL_USER_RANKS, CHANNEL, "ring.userRanks")                                                           \
  X(CHANNEL_INDEX, CHANNEL, "ring.index")                                                                    \
  X(CHANNEL_UP, CHANNEL, "tree.up")                                                                          \
  X(CHANNEL_DOWN, CHANNEL, "tree.down")                                                                      \
  X(CHANNEL_WORK_DONE, CHANNEL, "workFifoDone")                                                              \
  X(CHANNEL_WORK_COUNTER, CHANNEL, "workCounter")                                                            \
  X(COMM_ABORT, COMM, "abortFlag")                                                                           \
  X(COMM_RANK, COMM, "rank")                                                                                 \
  X(COMM_RANKS, COMM, "nRanks")                                                                              \
  X(COMM_BUFFER_BYTES, COMM, "buffSizes")                                                                    \
  X(COMM_P2P_CHUNK, COMM, "p2pChunkSize")                                                                    \
  X(COMM_CHANNELS, COMM, "channels")                                                                         \
  X(COMM_WORK_STARTED, COMM, "workStarted")                                                                  \
  X(COMM_WORK_COMPLETED, COMM, "workCompleted")

enum box_struct {
#define X(word, name) BOX_##word,
  BOX_STRUCTS(X)
#undef X
      BOX_STRUCT_COUNT
};

enum box_field {
#define X(word, of, path) BOX_##word,
  BOX_FIELDS(X)
#undef X
      BOX_FIELD_COUNT
};

struct box_place {
  bool known;
  uint32_t bit;   /* from the start of the structure */
  uint32_t width; /* the width of a bit-field in bits, else 0 */
  uint32_t bytes; /* the bytes of its type, 0 for an array */
  uint32_t stars; /* levels of indirection of its type */
};

/* The layout of one library. */
struct box_layout {
  struct box_place places[BOX_FIELD_COUNT];
  size_t struct_bytes[BOX_STRUCT_COUNT];
};
extern struct box_layout box_layouts[BOX_LIBRARIES_MAX];

/* Return what is known of the current library. */
static inline const struct box_place *box_place(enum box_field field) {
  return &box_layouts[box_library_current()].places[field];
}
static inline size_t box_struct_bytes(enum box_struct of) {
  return box_layouts[box_library_current()].struct_bytes[of];
}

/* Reads the layout of all structures of the current library. */
void box_layout_load(const struct box_elf *elf);

/* Returns whether kernels can be run with what was read; without it communicators can be made and
 * destroyed. */
bool box_layout_is_known(void);

static inline bool box_has(enum box_field field) {
  return box_place(field)->known;
}

/* Returns where a field begins. The caller knows that the release has it. */
static inline char *box_at(const void *object, enum box_field field) {
  return (char *)(uintptr_t)object + box_place(field)->bit / 8;
}

/* Return a field's value: unsigned, with its sign, as a pointer. */
uint64_t box_get(const void *object, enum box_field field);
int64_t box_get_signed(const void *object, enum box_field field);
static inline void *box_get_pointer(const void *object, enum box_field field) {
  return (void *)(uintptr_t)box_get(object, field);
}

#endif

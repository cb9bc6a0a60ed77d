/* SPDX-License-Identifier: Apache-2.0 */
/* A NIC with a table of rules, for the tests of what makes some: the program has its own ioctl, which answers
 * the commands for rules and leaves all others to the kernel. The table is shared with forked children.
 *
 * How drivers behave, from their sources: mlx5 replaces a rule silently, says the table's size with the list
 * only, fails a list that is asked for more rules than there are, and answers ENOENT for an empty place; ice
 * and i40e answer EINVAL there and EEXIST for a second rule of the same packets; ENA says that it takes
 * special places and takes none; others (sfc) take no place but a special one. */
#ifndef HARP_TEST_NIC_FAKE_H
#define HARP_TEST_NIC_FAKE_H

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

enum { FAKE_SIZE = 1024 };

struct fake_nic {
  /* how it is */
  uint32_t size;  /* of the table */
  bool has_rules; /* false: the kernel answers, which knows none */
  bool hides_size;
  uint32_t claims;      /* so many rules, whatever it has */
  bool size_with_list;  /* and not with the count */
  bool says_special;    /* and takes a place all the same */
  bool wants_special;   /* and takes no place */
  bool refuses_twins;   /* two rules for the same packets */
  bool chooses;         /* another place than it was given */
  bool adds_ext;        /* FLOW_EXT, with nothing in it */
  bool garbles;         /* tells another mask than it was given */
  bool switched_off;    /* ntuple */
  int empty_errno;      /* of reading an empty place */
  int refusal;          /* errno of making rules, once `room` are there */
  int reading, listing; /* errno of these; listing: once */
  uint32_t room;
  bool has_rival; /* who replaces a rule at once by one for a port with the same place */
  /* what it has */
  bool used[FAKE_SIZE];
  struct ethtool_rx_flow_spec rules[FAKE_SIZE];
  unsigned made, deleted;
};

static struct fake_nic *fake;

static inline void fake_open(void) {
  if (!fake) fake = mmap(NULL, sizeof *fake, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(fake, 0, sizeof *fake);
  *fake = (struct fake_nic){.has_rules = true, .size = FAKE_SIZE, .empty_errno = ENOENT, .room = FAKE_SIZE};
}

static inline uint32_t fake_count(void) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < FAKE_SIZE; i++) count += fake->used[i];
  return count;
}

static inline bool fake_has_twin(const struct ethtool_rx_flow_spec *fs) {
  for (uint32_t i = 0; i < FAKE_SIZE; i++)
    if (fake->used[i] && fake->rules[i].flow_type == fs->flow_type &&
        !memcmp(&fake->rules[i].h_u, &fs->h_u, sizeof fs->h_u) &&
        !memcmp(&fake->rules[i].m_u, &fs->m_u, sizeof fs->m_u))
      return true;
  return false;
}

static inline int fake_list(struct ethtool_rxnfc *c) {
  int listing = fake->listing;
  fake->listing = 0;
  c->data = fake->hides_size ? 0 : fake->size;
  if (listing) return listing;
  if (c->rule_cnt != fake_count()) return c->rule_cnt < fake_count() ? EMSGSIZE : EINVAL;
  uint8_t *to = (uint8_t *)c + offsetof(struct ethtool_rxnfc, rule_locs);
  for (uint32_t i = 0; i < FAKE_SIZE; i++)
    if (fake->used[i]) memcpy(to, &i, sizeof i), to += sizeof i;
  return 0;
}

static inline int fake_insert(struct ethtool_rxnfc *c) {
  struct ethtool_rx_flow_spec *fs = &c->fs;
  if (fake->refusal && fake_count() >= fake->room) return fake->refusal;
  if (fake->wants_special != !!(fs->location & RX_CLS_LOC_SPECIAL)) return EINVAL;
  if (fake->refuses_twins && fake_has_twin(fs)) return EEXIST;
  if (fake->chooses) fs->location = FAKE_SIZE - 1;
  if (fs->location >= fake->size) return ENOSPC;
  fake->used[fs->location] = true;
  fake->rules[fs->location] = *fs;
  if (fake->has_rival) fake->rules[fs->location].h_u.udp_ip4_spec.pdst ^= htons(FAKE_SIZE);
  fake->made++;
  return 0;
}

static inline int fake_read(struct ethtool_rxnfc *c) {
  uint32_t location = c->fs.location;
  if (fake->reading) return fake->reading;
  if (location >= fake->size || !fake->used[location]) return fake->empty_errno;
  c->fs = fake->rules[location];
  if (fake->adds_ext) c->fs.flow_type |= FLOW_EXT;
  if (fake->garbles) c->fs.m_u.udp_ip4_spec.psrc = 0xffff;
  return 0;
}

static inline int fake_answer(struct ethtool_rxnfc *c) {
  switch (c->cmd) {
  case ETHTOOL_GRXCLSRLCNT:
    c->rule_cnt = fake_count();
    if (fake->claims) c->rule_cnt = fake->claims;
    if (!fake->size_with_list) c->data = fake->size | (fake->says_special ? RX_CLS_LOC_SPECIAL : 0);
    return 0;
  case ETHTOOL_GRXCLSRLALL:
    return fake_list(c);
  case ETHTOOL_GRXCLSRULE:
    return fake_read(c);
  case ETHTOOL_SRXCLSRLINS:
    return fake_insert(c);
  case ETHTOOL_SRXCLSRLDEL:
    if (c->fs.location >= fake->size || !fake->used[c->fs.location]) return fake->empty_errno;
    fake->used[c->fs.location] = false;
    fake->deleted++;
    return 0;
  case ETHTOOL_GFLAGS:
    ((struct ethtool_value *)c)->data = fake->switched_off ? 0 : ETH_FLAG_NTUPLE;
    return 0;
  default:
    return -1; /* the kernel's */
  }
}

int ioctl(int fd, unsigned long request, ...) {
  va_list ap;
  va_start(ap, request);
  void *argument = va_arg(ap, void *);
  va_end(ap);
  int err = -1;
  if (request == SIOCETHTOOL && fake && fake->has_rules)
    err = fake_answer((struct ethtool_rxnfc *)(void *)((struct ifreq *)argument)->ifr_data);
  if (err < 0) return (int)syscall(SYS_ioctl, fd, request, argument);
  return err ? (errno = err, -1) : 0;
}

#endif

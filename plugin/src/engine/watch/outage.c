/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/outage.h"

#include <pthread.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "proto/eni_report.h"

/* Outages that engines of this process have logged at one time. Those beyond are logged by each of them. */
enum { NOTICES_MAX = 4096 };
/* A process that lacked a core for a while finds all its paths silent; they answer again one by one. */
#define REPORT_NS HARP_MS(300)
/* An outage of a peer's interface is logged later, so that ours is logged first where it may be either. */
#define REPORT_PEER_NS HARP_MS(1500)
/* The least time between two reviews, each of which visits every path of every link: the paths of an
 * interface that goes down, often hundreds, become silent one by one. */
#define REVIEW_NS HARP_MS(50)
/* The time between two reviews while something is out: a new link, whose paths change nothing by being
 * there, may show that it works. */
#define RECHECK_NS HARP_SEC(1)

/* The outages that engines of this process have logged, so that each is logged once. */
static struct {
  pthread_mutex_t lock;
  unsigned count;
  struct notice {
    bool is_local;
    uint8_t addr[16];
    unsigned holders; /* engines, or peers, that have it as out */
    bool is_back;     /* one of them has logged its end */
  } at[NOTICES_MAX];
} notices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- outages of the process ---- */

/* Returns the notice of an interface, NULL when it has none. */
static struct notice *find_notice(const uint8_t addr[16], bool is_local) {
  for (unsigned i = 0; i < notices.count; i++)
    if (notices.at[i].is_local == is_local && memcmp(notices.at[i].addr, addr, 16) == 0)
      return &notices.at[i];
  return NULL;
}

/* Learns that one more has it as out. Returns whether that one is to log it. */
static bool put_notice(const uint8_t addr[16], bool is_local) {
  pthread_mutex_lock(&notices.lock);
  struct notice *n = find_notice(addr, is_local);
  bool is_news = !n || n->is_back;
  if (!n && notices.count < NOTICES_MAX) {
    n = &notices.at[notices.count++];
    *n = (struct notice){.is_local = is_local};
    memcpy(n->addr, addr, sizeof n->addr);
  }
  if (n) {
    n->holders++;
    n->is_back = false;
  }
  pthread_mutex_unlock(&notices.lock);
  return is_news;
}

/* Learns that one has it as out no more: it is back, or nobody knows. Returns whether that it is back is
 * still to be logged. */
static bool take_notice(const uint8_t addr[16], bool is_local, bool is_back) {
  pthread_mutex_lock(&notices.lock);
  struct notice *n = find_notice(addr, is_local);
  bool is_news = !n || !n->is_back;
  if (n) {
    n->is_back = n->is_back || is_back;
    HARP_ASSERT(n->holders);
    if (!--n->holders) *n = notices.at[--notices.count];
  }
  pthread_mutex_unlock(&notices.lock);
  return is_back && is_news;
}

/* ---- one interface ---- */

static void begin_outage(struct harp_outages *o, struct harp_outage *outage,
                         const struct sockaddr_storage *addr, harp_ns now) {
  HARP_ASSERT(!outage->is_out);
  *outage = (struct harp_outage){.is_out = true, .since_ns = now};
  memcpy(outage->addr, harp_address_ip(addr), harp_ip_bytes(addr->ss_family));
  o->count++;
}

/* Returns whether its end is to be logged. */
static bool end_outage(struct harp_outages *o, struct harp_outage *outage, bool is_local, bool is_back) {
  HARP_ASSERT(outage->is_out && o->count);
  bool is_news = outage->is_reported && take_notice(outage->addr, is_local, is_back);
  *outage = (struct harp_outage){0};
  o->count--;
  return is_news;
}

enum change { CHANGE_NONE, CHANGE_OUT, CHANGE_BACK };

/* The evidence of the paths over an interface. */
struct evidence {
  bool is_used, works, fails;
};

/* Begins or ends the outage of an interface. Returns what is to be logged now. An outage that is not logged
 * is dropped when it is over; one that is, when it is known to be over, or the peer has no paths any more. */
static enum change update_outage(struct harp_outages *o, struct harp_outage *outage, bool is_local,
                                 const struct evidence *seen, const struct sockaddr_storage *addr,
                                 harp_ns now) {
  bool is_out = seen->fails && !seen->works;
  if (!outage->is_out && !is_out) return CHANGE_NONE;
  if (!outage->is_out) begin_outage(o, outage, addr, now);
  harp_ns report_at_ns = outage->since_ns + (is_local ? REPORT_NS : REPORT_PEER_NS);
  if (seen->works) return end_outage(o, outage, is_local, true) ? CHANGE_BACK : CHANGE_NONE;
  if (outage->is_reported ? !seen->is_used && !is_local : !is_out) {
    (void)end_outage(o, outage, is_local, false);
  } else if (!outage->is_reported && now >= report_at_ns) {
    outage->is_reported = true;
    if (put_notice(outage->addr, is_local)) return CHANGE_OUT;
  } else if (!outage->is_reported) {
    o->due_ns = HARP_MIN(o->due_ns, HARP_MAX(report_at_ns, now + REPORT_NS / 8));
  }
  return CHANGE_NONE;
}

static struct evidence evidence_of(const struct harp_eni_report *report, unsigned eni) {
  return (struct evidence){report->used >> eni & 1, report->works >> eni & 1, report->fails >> eni & 1};
}

static bool uses_interfaces(const struct harp_peer *peer) {
  return peer->links && peer->is_multihomed && peer->session.state == HARP_SESSION_OPEN;
}

/* ---- ours ---- */

static void update_ours(struct harp_engine *e, unsigned eni, const struct harp_eni_report *report,
                        harp_ns now) {
  struct harp_outages *o = &e->outages;
  const char *ifname = e->enis[eni].ifname;
  char address[HARP_IP_TEXT_BYTES];
  struct evidence seen = evidence_of(report, eni);
  switch (update_outage(o, &o->ours[eni], true, &seen, &e->enis[eni].addr, now)) {
  case CHANGE_OUT:
    HARP_INFO_LIMITED(
        &o->log, now,
        "%s: nothing gets through on this interface (%s); its connections continue over the others "
        "of %s, and it is used again once it works",
        ifname, harp_address_ip_text(&e->enis[eni].addr, address), e->enis_name);
    return;
  case CHANGE_BACK:
    HARP_INFO_LIMITED(&o->log, now, "%s: this interface works again", ifname);
    return;
  default:
    return;
  }
}

/* Takes in what a peer's paths show of ours. */
static void take_in_ours(struct harp_outages *o, const struct harp_peer *peer) {
  if (!uses_interfaces(peer)) return;
  struct harp_eni_report report = harp_eni_report_of(peer->session.sender, HARP_ENI_LOCAL, 0);
  o->used |= report.used;
  o->works |= report.works & report.used;
  o->fails |= report.fails & report.used;
}

/* After all peers. */
static void review_ours(struct harp_engine *e, harp_ns now) {
  const struct harp_outages *o = &e->outages;
  struct harp_eni_report report = {.used = o->used, .works = o->works, .fails = o->fails};
  for (unsigned eni = 0; eni < e->eni_count; eni++) update_ours(e, eni, &report, now);
}

/* ---- the peers' ---- */

static void update_theirs(struct harp_peer *peer, unsigned eni, const struct harp_eni_report *report,
                          harp_ns now) {
  struct harp_engine *e = peer->engine;
  char address[HARP_IP_TEXT_BYTES];
  struct evidence seen = evidence_of(report, eni);
  if (!seen.is_used) seen.works = seen.fails = false;
  switch (update_outage(&e->outages, &peer->outages[eni], false, &seen, &peer->enis[eni], now)) {
  case CHANGE_OUT:
    HARP_INFO_LIMITED(&peer->log, now,
                      "%s: nothing gets through to the interface %s of %s; the connection continues over the "
                      "others, and it is used again once it works",
                      e->enis_name, harp_address_ip_text(&peer->enis[eni], address), peer->name);
    return;
  case CHANGE_BACK:
    HARP_INFO_LIMITED(&peer->log, now, "%s: the interface %s of %s works again", e->enis_name,
                      harp_address_ip_text(&peer->enis[eni], address), peer->name);
    return;
  default:
    return;
  }
}

static void review_theirs(struct harp_peer *peer, harp_ns now) {
  const struct harp_outages *o = &peer->engine->outages;
  if (!uses_interfaces(peer)) {
    harp_outages_forget_peer(peer);
    return;
  }
  struct harp_eni_report report =
      harp_eni_report_of(peer->session.sender, HARP_ENI_REMOTE, o->fails & ~o->works);
  for (unsigned eni = 0; eni < HARP_ENDPOINT_ENIS_MAX; eni++) update_theirs(peer, eni, &report, now);
}

void harp_outages_forget_peer(struct harp_peer *peer) {
  for (unsigned eni = 0; eni < HARP_ENDPOINT_ENIS_MAX; eni++)
    if (peer->outages[eni].is_out)
      (void)end_outage(&peer->engine->outages, &peer->outages[eni], false, false);
}

/* ---- the engine's ---- */

void harp_outages_expect(struct harp_engine *e, unsigned eni, harp_ns now) {
  struct harp_outages *o = &e->outages;
  begin_outage(o, &o->ours[eni], &e->enis[eni].addr, now);
  if (e->enis[eni].is_unnumbered) /* its name stands for the address */
    memcpy(o->ours[eni].addr, e->enis[eni].ifname, sizeof o->ours[eni].addr);
  o->ours[eni].is_reported = true;
  (void)put_notice(o->ours[eni].addr, true);
}

void harp_outages_forget(struct harp_outages *o) {
  for (unsigned eni = 0; eni < HARP_ENDPOINT_ENIS_MAX; eni++)
    if (o->ours[eni].is_out) (void)end_outage(o, &o->ours[eni], true, false);
  HARP_ASSERT(!o->count);
}

static bool is_due(const struct harp_engine *e, harp_ns now) {
  const struct harp_outages *o = &e->outages;
  uint64_t changes = e->counters.path_up + e->counters.path_down;
  return (harp_unlikely(changes != o->seen) || now >= o->due_ns) && now >= o->next_ns;
}

static void begin_stage(struct harp_engine *e, enum harp_outages_stage stage) {
  struct harp_outages *o = &e->outages;
  o->stage = stage;
  o->slot = 0;
  o->left = e->peer_count;
}

static struct harp_peer *next_peer(struct harp_engine *e) {
  struct harp_outages *o = &e->outages;
  struct harp_peer_walk walk = {.engine = e, .slot = o->slot, .left = o->left};
  struct harp_peer *peer = harp_engine_next_peer(&walk);
  o->slot = walk.slot;
  o->left = walk.left;
  return peer;
}

static void begin_review(struct harp_engine *e, harp_ns now) {
  struct harp_outages *o = &e->outages;
  o->seen = e->counters.path_up + e->counters.path_down;
  o->next_ns = now + REVIEW_NS;
  o->due_ns = HARP_NEVER;
  o->used = o->works = o->fails = 0;
  begin_stage(e, HARP_OUTAGES_OURS);
}

/* Ends a stage, after all peers. */
static void end_stage(struct harp_engine *e, harp_ns now) {
  struct harp_outages *o = &e->outages;
  if (o->stage == HARP_OUTAGES_OURS) {
    review_ours(e, now);
    begin_stage(e, HARP_OUTAGES_THEIRS);
  } else {
    o->stage = HARP_OUTAGES_IDLE;
    if (o->count) o->due_ns = HARP_MIN(o->due_ns, now + RECHECK_NS);
  }
}

void harp_outages_on_pass(struct harp_engine *e, harp_ns now) {
  struct harp_outages *o = &e->outages;
  if (harp_likely(o->stage == HARP_OUTAGES_IDLE)) {
    if (!is_due(e, now)) return;
    begin_review(e, now);
  }
  for (unsigned i = 0; i < HARP_OUTAGE_PEERS_PER_CALL && o->stage != HARP_OUTAGES_IDLE; i++) {
    struct harp_peer *peer = next_peer(e);
    if (!peer)
      end_stage(e, now);
    else if (o->stage == HARP_OUTAGES_OURS)
      take_in_ours(o, peer);
    else
      review_theirs(peer, now);
  }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/outage.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "proto/eni_report.h"

/* An interface that peers use. */
struct party {
  struct harp_outage who;
  const struct harp_peer *peer; /* one that uses it; of a peer's interface, that peer */
  const char *ifname;           /* of ours */
  uint8_t family;
  bool works, fails; /* some path over it is up; some is down */
};

enum { PARTIES_MAX = 128, NOTICES_MAX = 256 };
/* A process that lacked a core for a while finds all its paths silent; they answer again one by one. */
#define REPORT_NS HARP_MS(300)
/* Of a peer's interface later, so that ours is logged first where it may be either. */
#define REPORT_PEER_NS HARP_MS(1500)
/* A review looks at every path of every link: an interface that goes takes hundreds of paths with it, one by
 * one. */
#define REVIEW_NS HARP_MS(50)
/* While something is out: a new link, whose paths change nothing by being there, may show that it works. */
#define RECHECK_NS HARP_SEC(1)

struct review {
  unsigned count;
  struct party parties[PARTIES_MAX];
};

/* The outages that engines of this process have logged, so that each is logged once. */
static struct {
  pthread_mutex_t lock;
  unsigned count;
  struct notice {
    struct harp_outage who;
    unsigned engines; /* that have it as out */
    bool is_back;     /* one of them has logged its end */
  } at[NOTICES_MAX];
} notices = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool same(const struct harp_outage *a, const struct harp_outage *b) {
  return a->is_local == b->is_local && memcmp(a->addr, b->addr, sizeof a->addr) == 0;
}

/* ---- outages of the process ---- */

/* Returns the notice of an interface, NULL when it has none. */
static struct notice *find_notice(const struct harp_outage *who) {
  for (unsigned i = 0; i < notices.count; i++)
    if (same(&notices.at[i].who, who)) return &notices.at[i];
  return NULL;
}

/* Notes that one more engine has it as out. Returns whether that engine is to log it. */
static bool put_notice(const struct harp_outage *who) {
  pthread_mutex_lock(&notices.lock);
  struct notice *n = find_notice(who);
  bool is_news = !n || n->is_back;
  if (!n && notices.count < NOTICES_MAX) {
    n = &notices.at[notices.count++];
    *n = (struct notice){.who = *who};
  }
  if (n) {
    n->engines++;
    n->is_back = false;
  }
  pthread_mutex_unlock(&notices.lock);
  return is_news;
}

/* Notes that an engine has it as out no more: it is back, or its peers are gone. Returns whether that it is
 * back is still to be logged. */
static bool take_notice(const struct harp_outage *who, bool is_back) {
  pthread_mutex_lock(&notices.lock);
  struct notice *n = find_notice(who);
  bool is_news = !n || !n->is_back;
  if (n) {
    n->is_back = n->is_back || is_back;
    HARP_ASSERT(n->engines);
    if (!--n->engines) *n = notices.at[--notices.count];
  }
  pthread_mutex_unlock(&notices.lock);
  return is_back && is_news;
}

/* ---- what the paths show ---- */

static struct party *find_party(struct review *r, const struct harp_outage *who) {
  for (unsigned i = 0; i < r->count; i++)
    if (same(&r->parties[i].who, who)) return &r->parties[i];
  return NULL;
}

static struct party *party_of(struct review *r, const struct party *like) {
  struct party *known = find_party(r, &like->who);
  if (known || r->count == PARTIES_MAX) return known;
  r->parties[r->count] = *like;
  return &r->parties[r->count++];
}

static struct party party_at(const struct harp_peer *peer, const struct sockaddr_storage *a) {
  struct party p = {.peer = peer, .family = (uint8_t)harp_address_version(a)};
  memcpy(p.who.addr, harp_address_ip(a), harp_ip_bytes(a->ss_family));
  return p;
}

static bool is_out(const struct party *p) {
  return p->fails && !p->works;
}

static bool uses_interfaces(const struct harp_peer *peer) {
  return peer->links && peer->is_multihomed && peer->session.state == HARP_SESSION_OPEN;
}

static void note(struct review *r, const struct party *like, const struct harp_eni_report *report,
                 unsigned eni) {
  struct party *p = party_of(r, like);
  if (p && report->works >> eni & 1) p->works = true;
  if (p && report->fails >> eni & 1) p->fails = true;
}

static struct party ours_at(const struct harp_engine *e, const struct harp_peer *peer, unsigned eni) {
  struct party p = party_at(peer, &e->enis[eni].addr);
  p.who.is_local = true;
  p.ifname = e->enis[eni].ifname;
  return p;
}

static void take_in_ours(struct review *r, const struct harp_engine *e, const struct harp_peer *peer) {
  struct harp_eni_report report = harp_eni_report_of(peer->session.sender, HARP_ENI_LOCAL, 0);
  for (unsigned eni = 0; eni < e->eni_count; eni++) {
    struct party p = ours_at(e, peer, eni);
    if (report.used >> eni & 1) note(r, &p, &report, eni);
  }
}

/* After all peers were looked at for ours: paths over an interface of ours that is out show nothing of the
 * peer's. */
static void take_in_theirs(struct review *r, const struct harp_engine *e, const struct harp_peer *peer) {
  uint32_t out = 0;
  for (unsigned eni = 0; eni < e->eni_count; eni++) {
    struct party p = ours_at(e, peer, eni);
    const struct party *known = find_party(r, &p.who);
    if (known && is_out(known)) out |= 1u << eni;
  }
  struct harp_eni_report report = harp_eni_report_of(peer->session.sender, HARP_ENI_REMOTE, out);
  for (unsigned eni = 0; eni < HARP_ENDPOINT_ENIS_MAX; eni++) {
    struct party p = party_at(peer, &peer->enis[eni]);
    if (report.used >> eni & 1) note(r, &p, &report, eni);
  }
}

/* Logs that an interface is out, or back. */
static void log_change(struct harp_engine *e, const struct party *p, harp_ns now) {
  struct harp_log_limit *log = &e->outages.log;
  char address[INET6_ADDRSTRLEN] = "?";
  inet_ntop(p->family == 6 ? AF_INET6 : AF_INET, p->who.addr, address, sizeof address);
  if (p->who.is_local && is_out(p))
    HARP_INFO_LIMITED(
        log, now,
        "%s: nothing gets through on this interface (%s); its connections continue over the others "
        "of %s, and it is used again once it works",
        p->ifname, address, e->enis_name);
  else if (p->who.is_local)
    HARP_INFO_LIMITED(log, now, "%s: this interface works again", p->ifname);
  else if (is_out(p))
    HARP_INFO_LIMITED(log, now,
                      "%s: nothing gets through to the interface %s of %s; the connection continues over the "
                      "others, and it is used again once it works",
                      e->enis_name, address, p->peer->name);
  else
    HARP_INFO_LIMITED(log, now, "%s: the interface %s of %s works again", e->enis_name, address,
                      p->peer->name);
}

/* Returns the place of an interface among those that are out, `count` when it is not. */
static unsigned find(const struct harp_outages *o, const struct harp_outage *who) {
  unsigned i = 0;
  while (i < o->count && !same(&o->at[i], who)) i++;
  return i;
}

/* Begins or ends the outage of an interface; logs it when it is time. */
static void update(struct harp_engine *e, const struct party *p, harp_ns now) {
  struct harp_outages *o = &e->outages;
  unsigned known = find(o, &p->who);
  if (known == o->count) {
    if (!is_out(p) || o->count == HARP_OUTAGES_MAX) return;
    o->at[o->count] = p->who;
    o->at[o->count++].since_ns = now;
  }
  HARP_ASSERT(known < o->count && o->count <= HARP_OUTAGES_MAX);
  struct harp_outage *outage = &o->at[known];
  harp_ns report_at_ns = outage->since_ns + (outage->is_local ? REPORT_NS : REPORT_PEER_NS);
  if (p->works) {
    if (outage->is_reported && take_notice(outage, true)) log_change(e, p, now);
    *outage = o->at[--o->count];
  } else if (is_out(p) && !outage->is_reported && now >= report_at_ns) {
    outage->is_reported = true;
    if (put_notice(outage)) log_change(e, p, now);
  } else if (!outage->is_reported) {
    o->due_ns = HARP_MIN(o->due_ns, HARP_MAX(report_at_ns, now + REPORT_NS / 8));
  }
}

/* Whether an outage is to be dropped: not logged yet and over, or of a peer without links. */
static bool is_over(struct review *r, const struct harp_outage *outage) {
  const struct party *p = find_party(r, outage);
  return outage->is_reported ? !p && !outage->is_local : !p || !is_out(p);
}

static void forget_one(struct harp_outages *o, unsigned i) {
  HARP_ASSERT(i < o->count);
  if (o->at[i].is_reported) (void)take_notice(&o->at[i], false);
  o->at[i] = o->at[--o->count];
}

static void forget(struct harp_outages *o, struct review *r) {
  for (unsigned i = o->count; i-- > 0;)
    if (is_over(r, &o->at[i])) forget_one(o, i);
}

void harp_outages_expect(struct harp_engine *e, unsigned eni, harp_ns now) {
  struct harp_outages *o = &e->outages;
  HARP_ASSERT(o->count < HARP_OUTAGES_MAX);
  struct harp_outage *outage = &o->at[o->count++];
  *outage = ours_at(e, NULL, eni).who;
  outage->since_ns = now;
  outage->is_reported = true;
  (void)put_notice(outage);
}

void harp_outages_forget(struct harp_outages *o) {
  while (o->count) forget_one(o, o->count - 1);
}

static void review(struct harp_engine *e, harp_ns now) {
  struct review r;
  struct harp_outages *o = &e->outages;
  r.count = 0;
  struct harp_peer_walk ours = harp_engine_peers(e), theirs = ours;
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&ours));)
    if (uses_interfaces(peer)) take_in_ours(&r, e, peer);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&theirs));)
    if (uses_interfaces(peer)) take_in_theirs(&r, e, peer);
  forget(o, &r);
  o->due_ns = HARP_NEVER;
  for (unsigned i = 0; i < r.count; i++) update(e, &r.parties[i], now);
  if (o->count) o->due_ns = HARP_MIN(o->due_ns, now + RECHECK_NS);
}

void harp_outages_review(struct harp_engine *e, harp_ns now) {
  uint64_t changes = e->counters.path_up + e->counters.path_down;
  if (harp_likely(changes == e->outages.seen && now < e->outages.due_ns) || now < e->outages.next_ns) return;
  e->outages.seen = changes;
  e->outages.next_ns = now + REVIEW_NS;
  review(e, now);
}

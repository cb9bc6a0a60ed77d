#include "engine/outage.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"

/* An interface that links use. */
struct party {
  struct harp_outage who;
  const struct harp_link *link; /* one of them: whose peer it belongs to */
  const char *ifname;           /* of ours */
  uint8_t family;
  bool works, fails; /* some path over it is up; some is down */
};

enum { PARTIES_MAX = 128 };

struct review {
  unsigned count;
  struct party parties[PARTIES_MAX];
};

static bool same(const struct harp_outage *a, const struct harp_outage *b) {
  return a->is_local == b->is_local && memcmp(a->addr, b->addr, sizeof a->addr) == 0;
}

static struct party *party_of(struct review *r, const struct party *like) {
  for (unsigned i = 0; i < r->count; i++)
    if (same(&r->parties[i].who, &like->who)) return &r->parties[i];
  if (r->count == PARTIES_MAX) return NULL;
  r->parties[r->count] = *like;
  return &r->parties[r->count++];
}

static struct party party_at(const struct harp_link *link, const struct sockaddr_storage *a) {
  struct party p = {.link = link, .family = a->ss_family == AF_INET6 ? 6 : 4};
  if (p.family == 6)
    memcpy(p.who.addr, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
  else
    memcpy(p.who.addr, &((const struct sockaddr_in *)a)->sin_addr, 4);
  return p;
}

static void note(struct review *r, const struct party *like, enum harp_path_state state) {
  struct party *p = party_of(r, like);
  if (p && state == HARP_PATH_UP) p->works = true;
  if (p && state == HARP_PATH_DOWN) p->fails = true;
}

/* Takes in the paths of a sender. One that has no path at all left says nothing of interfaces: its peer may
 * be gone. */
static void take_in(struct review *r, const struct harp_engine *e, const struct harp_link *link) {
  const struct harp_sender *s = link->conn.sender;
  bool any_up = false;
  for (unsigned i = 0; i < s->path_count; i++) any_up |= s->paths[i].state == HARP_PATH_UP;
  for (unsigned i = 0; i < s->path_count && any_up; i++) {
    const struct harp_path *path = &s->paths[i];
    const struct harp_instance *eni = &e->enis[path->local_eni];
    struct party ours = party_at(link, &eni->addr),
                 theirs = party_at(link, &link->peer_enis[path->remote_eni]);
    ours.who.is_local = true;
    ours.ifname = eni->ifname;
    note(r, &ours, path->state);
    note(r, &theirs, path->state);
  }
}

static void tell(const struct harp_engine *e, const struct party *p, bool is_out) {
  char address[INET6_ADDRSTRLEN] = "?";
  inet_ntop(p->family == 6 ? AF_INET6 : AF_INET, p->who.addr, address, sizeof address);
  if (p->who.is_local && is_out)
    HARP_WARN("%s: nothing gets through on this interface (%s) any more; its connections go on over the "
              "others of %s, and it is used again when it works",
              p->ifname, address, e->name);
  else if (p->who.is_local)
    HARP_INFO("%s: this interface works again", p->ifname);
  else if (is_out)
    HARP_WARN("%s: nothing gets through to the interface %s of %s any more; the connection goes on over the "
              "others, and it is used again when it works",
              e->name, address, p->link->peer);
  else
    HARP_INFO("%s: the interface %s of %s works again", e->name, address, p->link->peer);
}

/* Returns the place of an interface among those that are out, `count` when it is not. */
static unsigned find(const struct harp_outages *o, const struct harp_outage *who) {
  unsigned i = 0;
  while (i < o->count && !same(&o->at[i], who)) i++;
  return i;
}

static void review(struct harp_engine *e) {
  struct harp_outages *o = &e->outages;
  struct review r;
  r.count = 0;
  for (uint32_t slot = 0; slot < HARP_ENGINE_LINKS_MAX; slot++) {
    const struct harp_link *link = e->links[slot];
    if (!link || link == HARP_SLOT_RESERVED || !link->is_multihomed) continue;
    if (link->conn.state == HARP_CONN_OPEN && link->conn.sender) take_in(&r, e, link);
  }
  for (unsigned i = 0; i < r.count; i++) {
    struct party *p = &r.parties[i];
    unsigned known = find(o, &p->who);
    bool is_out = p->fails && !p->works;
    if (is_out == (known < o->count)) continue;
    if (is_out && o->count == HARP_OUTAGES_MAX) continue;
    if (is_out)
      o->at[o->count++] = p->who;
    else if (p->works)
      o->at[known] = o->at[--o->count];
    else
      continue; /* neither works nor fails: not tried yet */
    tell(e, p, is_out);
  }
}

void harp_outages_review(struct harp_engine *e) {
  uint64_t changes = e->counters.path_up + e->counters.path_down;
  if (harp_likely(changes == e->outages.seen)) return;
  e->outages.seen = changes;
  review(e);
}

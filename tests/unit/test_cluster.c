/* SPDX-License-Identifier: Apache-2.0 */
/* The model of clusters: links lose and delay what they should, TCP delivers everything in order whatever is
 * lost, messages wait for those that they depend on, equal seeds make equal runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "cluster/collective.h"

static struct agenda agenda;

/* ---- trips ---- */

static unsigned lost;

static void count_lost(struct trip *t, const struct parcel *p) {
  (void)t;
  (void)p;
  lost++;
}

static void on_arrival(struct source *s, harp_ns now) {
  (void)s;
  (void)now;
}

static void test_a_trip_takes_the_time_of_its_links(void **state) {
  (void)state;
  struct hop hops[2];
  struct lane end;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(8), .queue_bytes = 3000};
  agenda_init(&agenda, AGENDA_BEGIN_NS);
  hop_init(&hops[0], &agenda, &w, 100);
  hop_init(&hops[1], &agenda, &w, 200);
  lane_init(&end, &agenda, on_arrival);
  struct trip t = {.hops = {&hops[0], &hops[1]}, .count = 2, .to = &end, .lose = count_lost};
  lost = 0;
  for (unsigned i = 0; i < 4; i++) {
    struct parcel p = {.number = i, .bytes = 1000};
    trip_start(&t, &p, AGENDA_BEGIN_NS);
  }
  agenda_run(&agenda, AGENDA_BEGIN_NS + HARP_US(100));
  assert_int_equal(lost, 1); /* the queue holds three */
  assert_int_equal(hops[0].lost, 1);
  assert_int_equal(hops[1].lost, 0);
  for (unsigned i = 0; i < 3; i++) {
    struct parcel p;
    assert_true(lane_take(&end, &p, HARP_NEVER - 1));
    assert_int_equal(p.number, i);
    assert_int_equal(p.at_ns, AGENDA_BEGIN_NS + (i + 1) * 1000 + 100 + 1000 + 200);
  }
  hops[1].is_down = true;
  trip_start(&t, &(struct parcel){.bytes = 1000}, agenda.now);
  agenda_run(&agenda, agenda.now + HARP_US(100));
  assert_int_equal(hops[1].lost, 1);
  hop_fini(&hops[0]);
  hop_fini(&hops[1]);
  lane_fini(&end);
  agenda_fini(&agenda);
}

/* ---- TCP ---- */

static uint64_t progress;
static harp_ns progress_ns;

static void on_progress(struct socket *s, harp_ns now) {
  assert_true(s->received > progress);
  assert_true(s->received <= s->end);
  progress = s->received;
  progress_ns = now;
}

struct pipe {
  struct hop there, back;
  struct socket socket;
};

enum { SEGMENT = 1448 };

static void open_pipe(struct pipe *p, double gbit_s, uint64_t queue_bytes, uint32_t loss_ppm) {
  struct wire w = {.ps_per_byte = wire_ps_per_byte(gbit_s), .queue_bytes = queue_bytes};
  agenda_init(&agenda, AGENDA_BEGIN_NS);
  hop_init(&p->there, &agenda, &w, HARP_US(50));
  hop_init(&p->back, &agenda, &w, HARP_US(50));
  p->there.loss_ppm = loss_ppm;
  p->there.rng.state = 7;
  socket_init(&p->socket, &agenda, SEGMENT, 1);
  p->socket.there.trip.hops[0] = &p->there;
  p->socket.back.trip.hops[0] = &p->back;
  p->socket.there.trip.count = p->socket.back.trip.count = 1;
  p->socket.on_progress = on_progress;
  progress = 0;
}

static void close_pipe(struct pipe *p) {
  socket_fini(&p->socket);
  hop_fini(&p->there);
  hop_fini(&p->back);
  agenda_fini(&agenda);
}

static void test_tcp_delivers_all_whatever_is_lost(void **state) {
  (void)state;
  for (uint32_t percent = 0; percent <= 30; percent += 10) {
    static struct pipe p;
    open_pipe(&p, 10, 16 << 20, percent * 10000);
    p.back.loss_ppm = percent * 10000;
    socket_write(&p.socket, 3000, AGENDA_BEGIN_NS);
    agenda_run(&agenda, AGENDA_BEGIN_NS + HARP_MS(1000) * 2000);
    assert_int_equal(progress, 3000);
    assert_int_equal(p.socket.lost, p.there.lost);
    assert_true(percent ? p.socket.lost > 0 : p.socket.lost == 0);
    assert_int_equal(p.socket.flight_count, 0);
    close_pipe(&p);
  }
}

static void test_tcp_fills_its_link(void **state) {
  (void)state;
  static struct pipe p;
  enum { SEGMENTS = 100000 };
  open_pipe(&p, 10, 1 << 20, 0);
  socket_write(&p.socket, SEGMENTS, AGENDA_BEGIN_NS);
  agenda_run(&agenda, AGENDA_BEGIN_NS + HARP_MS(1000));
  double gbit_s = SEGMENTS * (SEGMENT + 52.0) * 8 / (double)(progress_ns - AGENDA_BEGIN_NS);
  assert_int_equal(progress, SEGMENTS);
  assert_true(gbit_s > 9.5 && gbit_s <= 10);
  close_pipe(&p);
}

/* What a socket may send waits in the socket, and not in the queue of its host. */
static void test_tcp_keeps_a_host_queue_short(void **state) {
  (void)state;
  static struct pipe p;
  open_pipe(&p, 0.1, (uint64_t)1 << 40, 0);
  socket_write(&p.socket, 3000, AGENDA_BEGIN_NS);
  double superframes = 2 * 65536.0 / SEGMENT * (SEGMENT + 52);
  for (unsigned i = 0; i < 400; i++) {
    agenda_run(&agenda, agenda.now + HARP_MS(1));
    double bytes = (double)wire_queue_ns(&p.there.wire, agenda.now) / 80;
    assert_true(bytes <= superframes);
    if (i > 20 && progress < 2800) assert_true(bytes > 0);
  }
  assert_int_equal(progress, 3000);
  close_pipe(&p);
}

/* One segment that is lost, with nothing behind it: a probe finds it after two round trips; when the probe is
 * lost as well, a timeout. */
static void test_tcp_finds_a_lost_tail(void **state) {
  (void)state;
  static struct pipe p;
  open_pipe(&p, 10, 1 << 20, 0);
  socket_write(&p.socket, 100, AGENDA_BEGIN_NS);
  agenda_run(&agenda, AGENDA_BEGIN_NS + HARP_MS(10));
  assert_int_equal(progress, 100);
  for (unsigned probes_lost = 0; probes_lost < 2; probes_lost++) {
    harp_ns at = agenda.now;
    p.there.is_down = true;
    socket_write(&p.socket, 1, at);
    p.there.is_down = probes_lost != 0;
    agenda_run(&agenda, at + HARP_MS(10));
    assert_int_equal(progress == 101 + probes_lost, !probes_lost);
    p.there.is_down = false;
    agenda_run(&agenda, at + HARP_MS(1000));
    assert_int_equal(progress, 101 + probes_lost);
    if (probes_lost)
      assert_true(progress_ns - at > HARP_MS(200) && progress_ns - at < HARP_MS(210));
    else
      assert_true(progress_ns - at < HARP_MS(3));
  }
  close_pipe(&p);
}

/* ---- collectives ---- */

static struct fabric fabric;
static struct collective collective;
static struct cluster_scenario scenario;
static unsigned done;

static void on_done(struct collective *c, harp_ns now) {
  (void)c;
  (void)now;
  done++;
}

static void open_cluster(const char *const *settings) {
  scenario = cluster_scenario_default();
  for (; *settings; settings++) assert_true(cluster_scenario_set(&scenario, *settings));
  assert_null(cluster_scenario_fault(&scenario));
  agenda_init(&agenda, AGENDA_BEGIN_NS);
  fabric_init(&fabric, &agenda, &scenario);
  collective_init(&collective, &fabric);
  collective.on_done = on_done;
  done = 0;
}

static void close_cluster(void) {
  collective_fini(&collective);
  fabric_fini(&fabric);
  agenda_fini(&agenda);
}

static void run_operation(void) {
  unsigned before = done;
  collective_begin(&collective, agenda.now);
  for (unsigned i = 0; i < 2000 && done == before; i++) agenda_run(&agenda, agenda.now + HARP_MS(1));
  assert_int_equal(done, before + 1);
}

/* What each connection has been allowed follows from what those before it have received. */
static void check_order(void) {
  for (size_t i = 0; i < collective.count; i++) {
    const struct edge *e = &collective.edges[i];
    assert_true(e->received <= e->allowed);
    for (unsigned k = 0; k < e->before_count; k++) {
      const struct edge *b = e->before[k];
      uint64_t come = b->received - b->base;
      uint64_t most = e->config.is_gate ? (edge_is_done(b) ? e->config.messages : 0) : e->config.first + come;
      assert_true(e->allowed - e->base <= most);
    }
  }
}

static void test_messages_wait_for_those_before(void **state) {
  (void)state;
  static const char *const names[] = {"collective=ring", "collective=tree", "collective=alltoall",
                                      "collective=incast"};
  static const char *const transports[] = {"transport=harp", "transport=tcp"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(names) * HARP_ARRAY_COUNT(transports); i++) {
    open_cluster((const char *const[]){names[i / 2], transports[i % 2], "hosts=6", "interfaces=2",
                                       "size_mb=2", "peers=2", "per_leaf=3", "loss=0.5", NULL});
    collective_begin(&collective, agenda.now);
    for (unsigned k = 0; k < 200000 && !done; k++) {
      agenda_run(&agenda, agenda.now + HARP_US(10));
      check_order();
    }
    assert_int_equal(done, 1);
    run_operation(); /* once more, over the same connections */
    for (size_t k = 0; k < collective.count; k++) {
      const struct edge *e = &collective.edges[k];
      assert_int_equal(e->received, 2 * e->config.messages);
    }
    close_cluster();
  }
}

static uint64_t bytes_of_busiest(void) {
  uint64_t out[FABRIC_HOSTS_MAX] = {0}, in[FABRIC_HOSTS_MAX] = {0}, most = 0;
  for (size_t i = 0; i < collective.count; i++) {
    const struct edge_config *c = &collective.edges[i].config;
    out[c->from] += c->messages * c->message_bytes;
    in[c->to] += c->messages * c->message_bytes;
  }
  for (unsigned host = 0; host < fabric.hosts; host++) most = HARP_MAX(most, HARP_MAX(out[host], in[host]));
  return most;
}

static void test_the_busiest_host_moves_what_is_told(void **state) {
  (void)state;
  static const char *const names[] = {"collective=ring", "collective=tree", "collective=alltoall",
                                      "collective=incast"};
  static const char *const hosts[] = {"hosts=2", "hosts=3", "hosts=4", "hosts=5",
                                      "hosts=8", "hosts=9", "hosts=13"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(names) * HARP_ARRAY_COUNT(hosts); i++) {
    open_cluster((const char *const[]){names[i / HARP_ARRAY_COUNT(hosts)], hosts[i % HARP_ARRAY_COUNT(hosts)],
                                       "interfaces=1", "size_mb=45", NULL});
    assert_in_range(bytes_of_busiest(), collective.host_bytes - 1024, collective.host_bytes);
    close_cluster();
  }
}

/* A host that passes on what others send to it is inside one tree of a pair at most. */
static void test_trees_share_the_work(void **state) {
  (void)state;
  static const char *const hosts[] = {"hosts=4", "hosts=7", "hosts=16"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(hosts); i++) {
    open_cluster((const char *const[]){hosts[i], "collective=tree", "interfaces=1", NULL});
    unsigned children[2][FABRIC_HOSTS_MAX] = {{0}};
    size_t half = collective.count / 2;
    for (size_t k = 0; k < collective.count; k++) {
      bool is_up = k % half < half / 2;
      if (is_up) children[k / half][collective.edges[k].config.to]++;
    }
    for (unsigned host = 0; host < fabric.hosts; host++) {
      assert_true(children[0][host] <= 2 && children[1][host] <= 2);
      assert_true(children[0][host] < 2 || !children[1][host]);
    }
    close_cluster();
  }
}

static void test_an_operation_moves_its_bytes(void **state) {
  (void)state;
  open_cluster((const char *const[]){"hosts=4", "interfaces=2", "size_mb=8", NULL});
  run_operation();
  for (size_t i = 0; i < collective.count; i++)
    assert_int_equal(collective.edges[i].received, collective.edges[i].config.messages);
  assert_int_equal(collective.host_bytes, 2 * 8 * 3 * (1 << 20) / 4);
  close_cluster();
}

static harp_ns time_of_operation(const char *const *settings) {
  open_cluster(settings);
  run_operation();
  harp_ns begin = agenda.now;
  collective_begin(&collective, begin);
  harp_ns last = 0;
  for (unsigned i = 0; i < 2000 && done < 2; i++) agenda_run(&agenda, agenda.now + HARP_MS(1));
  for (size_t i = 0; i < collective.count; i++) last = HARP_MAX(last, collective.edges[i].done_ns);
  close_cluster();
  return last - begin;
}

static void test_hosts_begin_up_to_the_skew_late(void **state) {
  (void)state;
  open_cluster((const char *const[]){"hosts=16", "collective=alltoall", "interfaces=1", "skew_us=100", NULL});
  collective_begin(&collective, agenda.now);
  harp_ns begin = agenda.now, starts[16] = {0};
  for (unsigned i = 0; i <= 100; i++) {
    for (size_t k = 0; k < collective.count; k++) {
      const struct edge *e = &collective.edges[k];
      if (e->has_begun && !starts[e->config.from]) starts[e->config.from] = agenda.now;
      if (!e->has_begun) assert_int_equal(e->allowed, e->base);
      assert_true(e->has_begun || !starts[e->config.from]);
    }
    agenda_run(&agenda, begin + HARP_US(1) * (i + 1));
  }
  harp_ns first = HARP_NEVER, last = 0;
  for (unsigned host = 0; host < 16; host++) {
    first = HARP_MIN(first, starts[host]);
    last = HARP_MAX(last, starts[host]);
  }
  assert_true(first > 0 && last - first > HARP_US(50));
  close_cluster();
}

static void test_equal_seeds_make_equal_operations(void **state) {
  (void)state;
  static const char *const one[] = {"hosts=4", "interfaces=2", "size_mb=4", "loss=1", NULL};
  static const char *const other[] = {"hosts=4", "interfaces=2", "size_mb=4", "loss=1", "seed=2", NULL};
  harp_ns took = time_of_operation(one);
  assert_int_equal(took, time_of_operation(one));
  assert_int_not_equal(took, time_of_operation(other));
}

static void test_an_operation_takes_about_the_ideal(void **state) {
  (void)state;
  static const char *const transports[] = {"transport=harp", "transport=tcp"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(transports); i++) {
    harp_ns took = time_of_operation(
        (const char *const[]){transports[i], "hosts=2", "interfaces=2", "rate=10", "size_mb=32", NULL});
    double ideal_ns = 32 * (1 << 20) * 8.0 / 20;
    assert_true((double)took > ideal_ns && (double)took < 1.08 * ideal_ns);
  }
}

/* Half of the rate between the leaves, if the hash spreads the connections evenly; never less. */
static void test_fewer_links_between_switches_take_longer(void **state) {
  (void)state;
  harp_ns took = time_of_operation((const char *const[]){"hosts=4", "interfaces=4", "per_leaf=1", "spines=2",
                                                         "oversubscribed=2", "size_mb=32", NULL});
  double ideal_ns = 2 * 0.75 * 32 * (1 << 20) * 8.0 / 100;
  assert_true((double)took > 2 * ideal_ns);
}

static void test_switches_send_around_a_failed_link(void **state) {
  (void)state;
  open_cluster((const char *const[]){"hosts=4", "interfaces=4", "per_leaf=2", "spines=4", "size_mb=8",
                                     "fail_ms=1", "reroute_ms=5", "transport=tcp", NULL});
  for (unsigned i = 0; i < 6; i++) run_operation();
  assert_true(fabric.climb[0].is_down);
  assert_true(fabric.is_rerouted);
  uint64_t at_failed = fabric.climb[0].lost + fabric.descend[0].lost;
  run_operation();
  assert_int_equal(fabric.climb[0].lost + fabric.descend[0].lost, at_failed);
  close_cluster();
}

/* ---- parameters ---- */

static void test_what_cannot_be_simulated_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"hosts=1",      "hosts=2.5",       "hosts=2000",  "interfaces=9",
                                      "paths=9",      "rate=0",          "mtu=100",     "depth=33",
                                      "message_kb=0", "collective=star", "transport=x", "cc=nonsense",
                                      "operations=0", "spines=65",       "sockets=0",   "oversubscribed=0"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(wrong); i++) {
    struct cluster_scenario s = cluster_scenario_default();
    assert_null(cluster_scenario_fault(&s));
    assert_true(cluster_scenario_set(&s, wrong[i]));
    assert_non_null(cluster_scenario_fault(&s));
  }
  struct cluster_scenario s = cluster_scenario_default();
  assert_false(cluster_scenario_set(&s, "nonsense=1"));
  assert_false(cluster_scenario_set(&s, "hosts=many"));
  assert_true(cluster_scenario_set(&s, "hosts=1024") && cluster_scenario_set(&s, "collective=alltoall"));
  assert_non_null(strstr(cluster_scenario_fault(&s), "connections"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_trip_takes_the_time_of_its_links),
      cmocka_unit_test(test_tcp_delivers_all_whatever_is_lost),
      cmocka_unit_test(test_tcp_fills_its_link),
      cmocka_unit_test(test_tcp_keeps_a_host_queue_short),
      cmocka_unit_test(test_tcp_finds_a_lost_tail),
      cmocka_unit_test(test_messages_wait_for_those_before),
      cmocka_unit_test(test_the_busiest_host_moves_what_is_told),
      cmocka_unit_test(test_trees_share_the_work),
      cmocka_unit_test(test_an_operation_moves_its_bytes),
      cmocka_unit_test(test_hosts_begin_up_to_the_skew_late),
      cmocka_unit_test(test_equal_seeds_make_equal_operations),
      cmocka_unit_test(test_an_operation_takes_about_the_ideal),
      cmocka_unit_test(test_fewer_links_between_switches_take_longer),
      cmocka_unit_test(test_switches_send_around_a_failed_link),
      cmocka_unit_test(test_what_cannot_be_simulated_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

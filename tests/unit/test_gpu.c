/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU that a process works with, and the ENI that is nearest to it: on trees of machines with known
 * places. */
#include "engine/engine_open.h"
#include "host/gpu.h"
#include "net/near.h"
#include "unit/host_tree.h"

#define BUS   "sys/devices/"
#define LEFT  "pci0000:00/0000:00:01.0/" /* a switch of node 0: GPU 3b and ENI 3c */
#define RIGHT "pci0000:80/0000:80:01.0/" /* one of node 1: GPU 8b and ENI 8c */

static struct harp_gpu gpu;

static void add_device(const char *place, const char *node) {
  const char *pci = strrchr(place, '/') + 1;
  char path[256], target[256];
  snprintf(path, sizeof path, BUS "%s/numa_node", place);
  tree_write(path, node);
  snprintf(path, sizeof path, "sys/bus/pci/devices/%s", pci);
  snprintf(target, sizeof target, "../../../devices/%s", place);
  tree_link(path, target);
}

static void add_gpu(const char *shown, const char *uuid) {
  char path[256], text[256];
  snprintf(path, sizeof path, "proc/driver/nvidia/gpus/%s/information", shown);
  snprintf(text, sizeof text, "Model: \t\t NVIDIA H100\nIRQ:   \t\t 30\nGPU UUID: \t %s\n", uuid);
  tree_write(path, text);
}

static int set_up(void **state) {
  tree_setup(state);
  add_device(LEFT "0000:3b:00.0", "0\n");
  add_device(LEFT "0000:3c:00.0", "0\n");
  add_device(RIGHT "0000:8b:00.0", "1\n");
  add_device(RIGHT "0000:8c:00.0", "1\n");
  add_gpu("0000:8B:00.0", "GPU-22222222-aa");
  add_gpu("0000:3b:00.0", "GPU-11111111-bb");
  memset(&gpu, 0, sizeof gpu);
  return 0;
}

static const char *found_with(const char *const *environment) {
  struct harp_local local = harp_local_of_process(environment, tree_path("proc"));
  bool found = harp_gpu_of_process(tree_path("proc"), tree_path("sys"), environment, &local, &gpu);
  return found ? gpu.pci : "none";
}

#define FOUND(...) found_with((const char *const[]){"PATH=/bin", ##__VA_ARGS__, NULL})

static void test_which_gpu(void **state) {
  (void)state;
  assert_string_equal(FOUND(), "none"); /* there are two */
  assert_string_equal(FOUND("LOCAL_RANK=0"), "0000:3b:00.0");
  assert_string_equal(FOUND("LOCAL_RANK=1"), "0000:8b:00.0");
  assert_string_equal(FOUND("LOCAL_RANK=2"), "none");
  assert_string_equal(FOUND("LOCAL_RANK=x"), "none");
  assert_string_equal(FOUND("SLURM_LOCALID=0", "OMPI_COMM_WORLD_LOCAL_RANK=1"), "0000:8b:00.0");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=1"), "0000:8b:00.0");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=1", "LOCAL_RANK=7"), "0000:8b:00.0");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=1,0", "LOCAL_RANK=1"), "0000:3b:00.0");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=GPU-2222"), "0000:8b:00.0");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES= GPU-1111"), "0000:3b:00.0");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=GPU-3333"), "none");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=-1", "LOCAL_RANK=0"), "none");
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=0,1,5,1", "LOCAL_RANK=2"), "none"); /* 5 ends it */
  assert_string_equal(FOUND("CUDA_VISIBLE_DEVICES=0,5,1", "LOCAL_RANK=2"), "0000:3b:00.0");
  assert_string_equal(
      FOUND("CUDA_VISIBLE_DEVICES=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
            "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1",
            "LOCAL_RANK=63"),
      "0000:3b:00.0");
}

static void test_without_a_driver_there_is_none(void **state) {
  (void)state;
  const char *const environment[] = {"LOCAL_RANK=0", NULL};
  struct harp_local local = harp_local_of_process(environment, tree_path("absent"));
  assert_false(harp_gpu_of_process(tree_path("absent"), tree_path("sys"), environment, &local, &gpu));
  assert_int_equal(local.sharers, 1);
}

static void test_place_among_processes(void **state) {
  (void)state;
  static const struct {
    const char *environment[3];
    struct harp_local local;
  } rows[] = {
      {{NULL}, {false, 0, 0, 2}}, /* one for each GPU */
      {{"LOCAL_RANK=3", "LOCAL_WORLD_SIZE=8"}, {true, 3, 8, 8}},
      {{"LOCAL_RANK=3"}, {true, 3, 0, 2}},
      {{"LOCAL_RANK=8", "LOCAL_WORLD_SIZE=8"}, {true, 8, 0, 2}}, /* contradicts itself */
      {{"LOCAL_RANK=x", "OMPI_COMM_WORLD_LOCAL_RANK=0"}, {true, 0, 0, 2}},
      {{"OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"}, {true, 1, 4, 4}},
      {{"MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"}, {true, 1, 4, 4}},
      {{"SLURM_LOCALID=2", "SLURM_NTASKS_PER_NODE=4"}, {true, 2, 0, 2}},
      {{"LOCAL_RANK=99999999999", NULL}, {false, 0, 0, 2}},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    struct harp_local local = harp_local_of_process(rows[i].environment, tree_path("proc"));
    assert_int_equal(local.has_rank, rows[i].local.has_rank);
    assert_int_equal(local.rank, rows[i].local.rank);
    assert_int_equal(local.count, rows[i].local.count);
    assert_int_equal(local.sharers, rows[i].local.sharers);
  }
}

static void add_pci(const char *pci, const char *vendor, const char *class) {
  char path[256];
  snprintf(path, sizeof path, "sys/bus/pci/devices/%s/vendor", pci);
  tree_write(path, vendor);
  snprintf(path, sizeof path, "sys/bus/pci/devices/%s/class", pci);
  tree_write(path, class);
}

/* As harpctl numbers them, which writes `gpu` into conf files: also those that a container hides. */
static void test_number_of_a_gpu(void **state) {
  (void)state;
  const char *const environment[] = {"LOCAL_RANK=0", NULL};
  struct harp_local local = harp_local_of_process(environment, tree_path("proc"));
  assert_true(harp_gpu_of_process(tree_path("proc"), tree_path("absent"), environment, &local, &gpu));
  assert_int_equal(gpu.number, 0);
  add_pci("0000:01:00.0", "0x10de\n", "0x030200\n");
  add_pci("0000:02:00.0", "0x10de\n", "0x030000\n");
  add_pci("0000:02:00.1", "0x10de\n", "0x040300\n"); /* its sound */
  add_pci("0000:03:00.0", "0x1234\n", "0x030000\n"); /* not NVIDIA's */
  add_pci("0000:90:00.0", "0x10de\n", "0x030200\n");
  assert_string_equal(FOUND("LOCAL_RANK=0"), "0000:3b:00.0");
  assert_int_equal(gpu.number, 2);
  add_pci("0000:8b:00.0", "0x10de\n", "0x030200\n");
  assert_string_equal(FOUND("LOCAL_RANK=1"), "0000:8b:00.0");
  assert_int_equal(gpu.number, 2); /* the GPU itself is not lower */
}

static void test_how_near(void **state) {
  char place[4][256];
  (void)state;
  assert_string_equal(FOUND("LOCAL_RANK=0"), "0000:3b:00.0");
  assert_int_equal(gpu.numa, 0);
  static const char *const places[] = {LEFT "0000:3c:00.0", "pci0000:00/0000:00:06.0", RIGHT "0000:8c:00.0",
                                       ""};
  for (unsigned i = 0; i < 3; i++) {
    snprintf(place[i], sizeof place[i], "%s", tree_path(BUS));
    snprintf(place[i] + strlen(place[i]), sizeof place[i] - strlen(place[i]), "%s", places[i]);
  }
  unsigned bridge = harp_gpu_nearness(&gpu, place[0], 0), root = harp_gpu_nearness(&gpu, place[1], 0);
  unsigned node = harp_gpu_nearness(&gpu, "", 0), far = harp_gpu_nearness(&gpu, place[2], 1);
  assert_true(bridge > root && root > node && node > far);
  assert_int_equal(far, 0);
  assert_int_equal(harp_gpu_nearness(&gpu, "", -1), 0);
  gpu.numa = -1; /* a machine with one node */
  assert_int_equal(harp_gpu_nearness(&gpu, "", -1), 0);
}

/* ---- the order of a device's ENIs ---- */

static struct harp_instance enis[3];

static const char *order(unsigned a, unsigned b, unsigned c) {
  static char text[64];
  struct harp_engine_enis all = {.count = 3};
  const unsigned nearness[] = {a, b, c};
  for (unsigned i = 0; i < 3; i++) {
    snprintf(enis[i].ifname, sizeof enis[i].ifname, "%u", i);
    enis[i].gpu_nearness = nearness[i];
    all.at[i] = &enis[i];
  }
  tree_log[0] = 0;
  harp_near_first(&all);
  snprintf(text, sizeof text, "%s%s%s", all.at[0]->ifname, all.at[1]->ifname, all.at[2]->ifname);
  return text;
}

static void test_nearest_first(void **state) {
  (void)state;
  for (unsigned i = 0; i < 3; i++) enis[i].addr.ss_family = AF_INET;
  assert_string_equal(order(0, 0, 0), "012");
  assert_string_equal(tree_log, "");
  assert_string_equal(order(5, 1, 5), "021"); /* equal ones stay in their order */
  assert_string_equal(tree_log, "");
  assert_string_equal(order(1, 5, 5), "120");
  assert_string_equal(
      tree_log, "I 1: it is nearer to the GPU of this process than 0, and goes first of 3 interfaces\n");
  assert_string_equal(order(1, 2, 3), "210");
  enis[2].addr.ss_family = AF_INET6; /* the first one of two families stays, as on all hosts */
  assert_string_equal(order(1, 2, 3), "012");
}

/* Each process begins with another of equally near ones. */
static void test_each_rank_first_on_another(void **state) {
  static const char *const orders[] = {"012", "120", "201", "012"}, *const near[] = {"120", "210"};
  (void)state;
  for (unsigned i = 0; i < 3; i++) enis[i].addr.ss_family = AF_INET;
  for (unsigned rank = 0; rank < 4; rank++) {
    for (unsigned i = 0; i < 3; i++) enis[i].local = (struct harp_local){true, rank, 4, 4};
    assert_string_equal(order(0, 0, 0), orders[rank]);
    assert_string_equal(order(1, 5, 5), near[rank % 2]);
  }
  assert_string_equal(order(0, 0, 0), "012");
  assert_string_equal(tree_log, "");
  for (unsigned i = 0; i < 3; i++) enis[i].local = (struct harp_local){true, 2, 4, 4};
  assert_string_equal(order(0, 0, 0), "201");
  assert_string_equal(tree_log, "I 2: it goes first of 3 interfaces in the process with local rank 2\n");
  for (unsigned i = 0; i < 3; i++) enis[i].local = (struct harp_local){0};
}

/* Those that work have the control connections, also where an absent one is nearer. */
static void test_absent_last(void **state) {
  (void)state;
  for (unsigned i = 0; i < 3; i++) enis[i].addr.ss_family = AF_INET;
  enis[0].is_absent = true;
  assert_string_equal(order(3, 1, 2), "210");
  assert_string_equal(tree_log, "");
  enis[1].addr.ss_family = AF_INET6;
  assert_string_equal(order(0, 0, 0), "210");
  enis[0].is_absent = false;
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tree_teardown)
  const struct CMUnitTest tests[] = {
      T(test_which_gpu),
      T(test_without_a_driver_there_is_none),
      T(test_number_of_a_gpu),
      T(test_how_near),
      T(test_nearest_first),
      T(test_absent_last),
      T(test_place_among_processes),
      T(test_each_rank_first_on_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

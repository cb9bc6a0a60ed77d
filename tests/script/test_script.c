/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every *.script file beside this one; lib/script.h documents them. HARP_SCRIPTS names another
 * folder. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/script.h"

enum { SCRIPTS_MAX = 100 };

static void run(void **state) {
  assert_true(script_run(*state));
}

static int is_script(const struct dirent *e) {
  const char *dot = strrchr(e->d_name, '.');
  return dot && !strcmp(dot, ".script");
}

int main(void) {
  static char files[SCRIPTS_MAX][512];
  static struct CMUnitTest tests[SCRIPTS_MAX];
  char here[256] = __FILE__;
  struct dirent **names;
  const char *folder = getenv("HARP_SCRIPTS");
  *strrchr(here, '/') = 0;
  int count = scandir(folder ? folder : here, &names, is_script, alphasort);
  if (count <= 0 || count > SCRIPTS_MAX)
    return fprintf(stderr, "no scripts in %s\n", folder ? folder : here), 1;
  for (int i = 0; i < count; i++) {
    snprintf(files[i], sizeof files[i], "%s/%s", folder ? folder : here, names[i]->d_name);
    tests[i] = (struct CMUnitTest){.name = names[i]->d_name, .test_func = run, .initial_state = files[i]};
  }
  int failed = _cmocka_run_group_tests("scripts", tests, (size_t)count, NULL, NULL);
  for (int i = 0; i < count; i++) free(names[i]);
  free(names);
  return failed;
}
